//! The stream: made when it is not there, else held against what we need (CFG-12), and looked at for how full it is
//! (NEW-40).

use async_nats::jetstream::ErrorCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::QueueError;
use super::api::Api;
use super::failure::Failure;
use super::fit::{Verdict, judge, wanted};
use super::names::Names;
use crate::nats::{REPLICAS, TOO_FEW_SERVERS};

/// How full a stream may be before nothing is fetched any more (NEW-40).
const NEARLY_FULL_PERCENT: u64 = 80;

#[derive(Deserialize)]
pub(super) struct Info {
    /// When it was made: another one under the same name begins its places again.
    pub(super) created: String,
    config: Map<String, Value>,
    state: State,
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
        fit(api, names).await?;
        Ok(info(api, &names.stream).await?)
    };
    open().await.map_err(|error| match error {
        QueueError::Unavailable { cause } => {
            QueueError::Unavailable { cause: format!("open assignment stream {}: {cause}", names.stream) }
        }
        other => other,
    })
}

async fn fit(api: &Api, names: &Names) -> Result<(), QueueError> {
    let found = match info(api, &names.stream).await {
        Ok(found) => found,
        Err(failure) if failure.is(ErrorCode::STREAM_NOT_FOUND) => {
            return create(api, &names.stream, wanted(names)).await;
        }
        Err(failure) => return Err(failure.into()),
    };
    match judge(&found.config, names) {
        Verdict::Fits => Ok(()),
        Verdict::Refuse { differences } => Err(unfit(&names.stream, &differences)),
        Verdict::Repair { config, differences } => {
            let repaired = api.call::<Value>(&format!("STREAM.UPDATE.{}", names.stream), &config).await;
            match repaired {
                Ok(_) => {
                    let differences = differences.join("; ");
                    tracing::warn!(component = "queue", stream = names.stream, differences, "stream repaired");
                    Ok(())
                }
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
    match made {
        Ok(_) => Ok(()),
        Err(Failure::Refused { text, .. }) => Err(QueueError::Unusable {
            cause: format!("open assignment stream {stream}: it is not there and cannot be made: {text}"),
            remedy: "make it as docs/nats.md shows, or give this user the right and the account the room".to_owned(),
        }),
        Err(failure) => Err(failure.into()),
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
        };
        assert_eq!(info(79_999, 0, json!({ "max_msgs": 100_000 })).nearly_full(), None);
        let full = info(80_000, 0, json!({ "max_msgs": 100_000 })).nearly_full();
        assert_eq!(full.as_deref(), Some("the stream is 80 % full: 80000 of 100000 messages"));
        assert!(info(1, 900, json!({ "max_bytes": 1000 })).nearly_full().unwrap().ends_with("900 of 1000 bytes"));
        assert_eq!(info(1, u64::MAX, json!({ "max_bytes": -1 })).nearly_full(), None);
    }
}
