//! The stream: made when it is not there, else held against what we need (CFG-12), and looked at for how full it is
//! (NEW-40). One that was made while too few servers were there is spread over more at a later start.

use async_nats::jetstream::ErrorCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::QueueError;
use super::api::Api;
use super::failure::Failure;
use super::fit::{Verdict, judge, wanted};
use super::names::Names;
use crate::nats::{FEW_REPLICAS, REPLICAS, TOO_FEW_SERVERS};

/// How full a stream may be before nothing is fetched any more (NEW-40).
const NEARLY_FULL_PERCENT: u64 = 80;

#[derive(Deserialize)]
pub(super) struct Info {
    /// When it was made: another one under the same name begins its places again.
    pub(super) created: String,
    pub(super) config: Map<String, Value>,
    state: State,
    /// Where it lies; of a server of its own it has no name.
    cluster: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct State {
    messages: u64,
    bytes: u64,
    first_seq: u64,
    last_seq: u64,
}

impl Info {
    /// The place of its first message, and the one behind its last.
    pub(super) fn places(&self) -> (u64, u64) {
        (self.state.first_seq, self.state.last_seq.saturating_add(1))
    }

    /// The stream's own limit of a message in bytes, where it has one.
    pub(super) fn max_msg_size(&self) -> Option<usize> {
        self.config.get("max_msg_size")?.as_u64()?.try_into().ok()
    }

    /// Its configuration for as many servers as should store it, where a cluster stores it on fewer.
    fn spread(&self) -> Option<Map<String, Value>> {
        self.cluster.as_ref()?.get("name")?;
        let few = self.config.get("num_replicas")?.as_u64()? < u64::try_from(REPLICAS).ok()?;
        few.then(|| {
            let mut config = self.config.clone();
            config.insert("num_replicas".to_owned(), REPLICAS.into());
            config
        })
    }

    /// What is nearly full, with its numbers.
    pub(super) fn nearly_full(&self) -> Option<String> {
        let of = |what: &str, used: u64, limit: &str| {
            let limit = self.config.get(limit)?.as_u64().filter(|limit| *limit > 0)?;
            let percent = used.saturating_mul(100) / limit;
            (percent >= NEARLY_FULL_PERCENT)
                .then(|| format!("the stream is {percent} % full: {used} of {limit} {what}"))
        };
        of("messages", self.state.messages, "max_msgs").or_else(|| of("bytes", self.state.bytes, "max_bytes"))
    }
}

/// The stream as it is now.
pub(super) async fn info(api: &Api, stream: &str) -> Result<Info, Failure> {
    api.ask_for(&format!("STREAM.INFO.{stream}")).await
}

/// Makes the stream, or sees that it is fit.
pub(super) async fn ensure(api: &Api, names: &Names) -> Result<Info, QueueError> {
    let open = async || {
        let made = fit(api, names).await?;
        let found = info(api, &names.stream).await?;
        // One that was just made lies on as many servers as there are.
        if !made {
            spread(api, &names.stream, &found).await;
        }
        Ok(found)
    };
    open().await.map_err(|error| match error {
        QueueError::Unavailable { cause } => {
            QueueError::Unavailable { cause: format!("open assignment stream {}: {cause}", names.stream) }
        }
        other => other,
    })
}

/// Whether it had to be made.
async fn fit(api: &Api, names: &Names) -> Result<bool, QueueError> {
    let found = match info(api, &names.stream).await {
        Ok(found) => found,
        Err(failure) if failure.is(ErrorCode::STREAM_NOT_FOUND) => {
            return create(api, &names.stream, wanted(names)).await.map(|()| true);
        }
        Err(failure) => return Err(failure.into()),
    };
    match judge(&found.config, names) {
        Verdict::Fits => Ok(false),
        Verdict::Refuse { differences } => Err(unfit(&names.stream, &differences)),
        Verdict::Repair { config, differences } => {
            let repaired = api.call::<Value>(&format!("STREAM.UPDATE.{}", names.stream), &config).await;
            match repaired {
                Ok(_) => {
                    let differences = differences.join("; ");
                    tracing::warn!(component = "queue", stream = names.stream, differences, "stream repaired");
                    Ok(false)
                }
                Err(failure) if failure.is_passing() => Err(failure.into()),
                Err(Failure::Refused { text, .. }) => {
                    Err(unfit(&names.stream, &[differences, vec![format!("it cannot be repaired: {text}")]].concat()))
                }
                Err(failure) => Err(failure.into()),
            }
        }
    }
}

/// Makes a stream; on three servers where there are as many.
pub(super) async fn create(api: &Api, stream: &str, mut config: Map<String, Value>) -> Result<(), QueueError> {
    let call = format!("STREAM.CREATE.{stream}");
    config.insert("name".to_owned(), stream.into());
    config.insert("num_replicas".to_owned(), REPLICAS.into());
    let alone = |failure: &Failure| TOO_FEW_SERVERS.iter().any(|code| failure.is(*code));
    let mut made = api.call::<Value>(&call, &config).await;
    if made.as_ref().err().is_some_and(alone) {
        tracing::warn!(component = "queue", stream, "there are not three servers to store on; one does");
        config.insert("num_replicas".to_owned(), 1.into());
        made = api.call::<Value>(&call, &config).await;
    }
    made.map(drop).map_err(|failure| unmade(stream, failure))
}

/// A server that cannot just now is asked on.
fn unmade(stream: &str, failure: Failure) -> QueueError {
    match failure {
        Failure::Refused { ref text, .. } if !failure.is_passing() => QueueError::Unusable {
            cause: format!("open assignment stream {stream}: it is not there and cannot be made: {text}"),
            remedy: "make it as docs/nats.md shows, or give this user the right and the account the room".to_owned(),
        },
        failure => failure.into(),
    }
}

/// Has a stream stored on more servers that was made while too few were there: the others of a cluster may have joined
/// since. What keeps it from that is told at each start, and is no reason not to work.
pub(super) async fn spread(api: &Api, stream: &str, found: &Info) {
    let Some(config) = found.spread() else { return };
    match api.call::<Value>(&format!("STREAM.UPDATE.{stream}"), &config).await {
        Ok(_) => tracing::info!(component = "queue", stream, servers = REPLICAS, "stored on more servers from now on"),
        Err(failure) => {
            let cause = QueueError::from(failure).to_string();
            tracing::warn!(component = "queue", stream, cause, remedy = FEW_REPLICAS, "stored on too few servers");
        }
    }
}

fn unfit(stream: &str, differences: &[String]) -> QueueError {
    QueueError::Unusable {
        cause: format!("open assignment stream {stream}: {}", differences.join("; ")),
        remedy: "change the stream, or name another one with NATS_STREAM; docs/nats.md shows its settings".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    /// NEW-40, T38: 80 % of either limit.
    #[test]
    fn nearly_full_is_told_with_numbers() {
        let info = |messages, bytes, limits: Value| Info {
            created: String::new(),
            config: limits.as_object().unwrap().clone(),
            state: State { messages, bytes, first_seq: 1, last_seq: messages },
            cluster: None,
        };
        assert_eq!(info(79_999, 0, json!({ "max_msgs": 100_000 })).nearly_full(), None);
        let full = info(80_000, 0, json!({ "max_msgs": 100_000 })).nearly_full();
        assert_eq!(full.as_deref(), Some("the stream is 80 % full: 80000 of 100000 messages"));
        assert!(info(1, 900, json!({ "max_bytes": 1000 })).nearly_full().unwrap().ends_with("900 of 1000 bytes"));
        assert_eq!(info(1, u64::MAX, json!({ "max_bytes": -1 })).nearly_full(), None);
    }

    /// CFG-12: a server that cannot make a stream just now is asked on; one that will not ends the start.
    #[test]
    fn a_server_without_a_leader_is_asked_on() {
        let refused = |code, status| Failure::Refused { code, status, text: "no".to_owned() };
        let passing = unmade("S", refused(ErrorCode::CLUSTER_NOT_AVAILABLE, 503));
        assert!(matches!(passing, QueueError::Unavailable { .. }), "{passing}");
        let ended = unmade("S", refused(ErrorCode::STORAGE_RESOURCES_EXCEEDED, 500));
        assert!(matches!(ended, QueueError::Unusable { .. }), "{ended}");
    }

    /// NEW-50, CFG-12: fewer servers than there could be are seen in a cluster only; more stay.
    #[test]
    fn a_stream_on_too_few_servers_is_seen() {
        let info = |cluster: Option<Value>, replicas: u64| Info {
            created: String::new(),
            config: json!({ "name": "S", "num_replicas": replicas }).as_object().unwrap().clone(),
            state: State { messages: 0, bytes: 0, first_seq: 1, last_seq: 0 },
            cluster: cluster.map(|cluster| cluster.as_object().unwrap().clone()),
        };
        // A server of its own tells who leads too (2.15.2), or nothing (2.9.10).
        assert_eq!((info(None, 1).spread(), info(Some(json!({ "leader": "NDQ2" })), 1).spread()), (None, None));
        let cluster = || Some(json!({ "name": "C1", "leader": "n0" }));
        assert_eq!((info(cluster(), 3).spread(), info(cluster(), 5).spread()), (None, None));
        let wider = json!({ "name": "S", "num_replicas": 3 });
        assert_eq!(info(cluster(), 1).spread().as_ref(), wider.as_object());
    }
}
