//! The stream: made when it is not there, else held against what we need (CFG-12, NEW-40, requirements §1.4).
//!
//! What would lose or hide a task is repaired where the server can do it without loss: a limit that is too narrow, an old
//! message dropped for a new one. Storage and retention cannot be changed; then the start is refused with the difference.
//! What is wider than we need is an operator's choice and stays.

use async_nats::jetstream::ErrorCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::QueueError;
use super::api::{Api, Failure};
use super::names::Names;

const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;

/// At least so long a message is kept, in nanoseconds: far longer than any wait.
const MAX_AGE: i64 = 7 * DAY;
const MAX_MESSAGES: i64 = 100_000;
const MAX_BYTES: i64 = 1 << 30;
/// How long a message id is remembered by the server, in nanoseconds.
const DUPLICATE_WINDOW: i64 = DAY;
/// In a cluster a message lies on so many servers.
const REPLICAS: i64 = 3;

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
}

impl Info {
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

/// What the stream needs before it holds our tasks.
#[derive(Debug, Clone, PartialEq)]
enum Verdict {
    Fits,
    Repair { config: Map<String, Value>, differences: Vec<String> },
    Refuse { differences: Vec<String> },
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
    let alone = |failure: &Failure| {
        [ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED, ErrorCode::INSUFFICIENT_RESOURCES, ErrorCode::CLUSTER_NO_PEERS]
            .iter()
            .any(|code| failure.is(*code))
    };
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

fn wanted(names: &Names) -> Map<String, Value> {
    let wanted = json!({
        "subjects": [names.all_subjects()],
        "retention": "workqueue",
        "storage": "file",
        "discard": "new",
        "max_age": MAX_AGE,
        "max_msgs": MAX_MESSAGES,
        "max_bytes": MAX_BYTES,
        "max_msg_size": -1,
        "max_consumers": -1,
        "duplicate_window": DUPLICATE_WINDOW,
    });
    match wanted {
        Value::Object(wanted) => wanted,
        _ => Map::new(),
    }
}

fn judge(found: &Map<String, Value>, names: &Names) -> Verdict {
    let wanted = wanted(names);
    let mut refused = Vec::new();
    for fixed in ["retention", "storage"] {
        if found.get(fixed) != wanted.get(fixed) {
            refused.push(differs(found, &wanted, fixed));
        }
    }
    for forbidden in ["deny_delete", "sealed", "no_ack"] {
        if found.get(forbidden) == Some(&Value::Bool(true)) {
            refused.push(format!("{forbidden} is true, and must not be"));
        }
    }
    let subjects: Vec<&str> =
        found.get("subjects").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if !subjects.iter().any(|subject| covers(subject, &names.all_subjects())) {
        refused.push(format!("it takes {}, and must take {}", subjects.join(", "), names.all_subjects()));
    }
    if !refused.is_empty() {
        return Verdict::Refuse { differences: refused };
    }
    let mut narrow = Vec::new();
    if found.get("discard") != wanted.get("discard") {
        narrow.push("discard");
    }
    let number = |of: &Map<String, Value>, name: &str| of.get(name).and_then(Value::as_i64).unwrap_or(0);
    for limit in ["max_age", "max_msgs", "max_bytes"] {
        let has = number(found, limit);
        // None, or below nothing: no limit.
        if has > 0 && has < number(&wanted, limit) {
            narrow.push(limit);
        }
    }
    if number(found, "duplicate_window") < DUPLICATE_WINDOW {
        narrow.push("duplicate_window");
    }
    if narrow.is_empty() {
        return Verdict::Fits;
    }
    let mut config = found.clone();
    for name in &narrow {
        config.insert((*name).to_owned(), wanted.get(*name).cloned().unwrap_or_default());
    }
    Verdict::Repair { config, differences: narrow.iter().map(|name| differs(found, &wanted, name)).collect() }
}

fn differs(found: &Map<String, Value>, wanted: &Map<String, Value>, name: &str) -> String {
    let show = |of: &Map<String, Value>| of.get(name).map_or_else(|| "unset".to_owned(), ToString::to_string);
    format!("{name} is {}, and must be {}", show(found), show(wanted))
}

/// Whether a subject with wildcards takes everything of another one.
fn covers(filter: &str, subject: &str) -> bool {
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn names() -> Names {
        Names::new("CI_RUNNER", "ci.runner", "f66f031b".parse().unwrap())
    }

    fn with(changes: &Value) -> Map<String, Value> {
        let mut config = wanted(&names());
        config.extend(changes.as_object().unwrap().clone());
        config
    }

    /// CFG-12, F25, F26: what loses tasks is refused with the difference or repaired; what is wider stays.
    #[test]
    fn a_stream_is_held_against_what_we_need() {
        let refusals = [
            (json!({ "retention": "limits" }), r#"retention is "limits", and must be "workqueue""#),
            (json!({ "storage": "memory" }), r#"storage is "memory", and must be "file""#),
            (json!({ "subjects": ["ci.other.>"] }), "it takes ci.other.>, and must take ci.runner.>"),
            (json!({ "deny_delete": true }), "deny_delete is true, and must not be"),
        ];
        for (change, difference) in refusals {
            assert_eq!(judge(&with(&change), &names()), Verdict::Refuse { differences: vec![difference.to_owned()] });
        }
        for (change, name) in [
            (json!({ "discard": "old" }), "discard"),
            (json!({ "max_age": DAY }), "max_age"),
            (json!({ "max_msgs": 10_000 }), "max_msgs"),
            (json!({ "max_bytes": 1024 }), "max_bytes"),
            (json!({ "duplicate_window": 120 }), "duplicate_window"),
        ] {
            let Verdict::Repair { config, differences } = judge(&with(&change), &names()) else { panic!("{change}") };
            assert_eq!((&config, differences.len()), (&wanted(&names()), 1));
            assert!(differences[0].starts_with(name), "{differences:?}");
        }
        let wider = json!({ "max_age": 0, "max_msgs": -1, "max_bytes": -1, "subjects": ["a", ">"], "num_replicas": 5 });
        for fits in [json!({}), wider] {
            assert_eq!(judge(&with(&fits), &names()), Verdict::Fits, "{fits}");
        }
    }

    /// CFG-12: an operator's own settings survive a repair, those of newer servers too.
    #[test]
    fn a_repair_keeps_what_it_does_not_know() {
        let found = with(&json!({ "max_age": DAY, "allow_msg_ttl": true, "placement": { "cluster": "east" } }));
        let Verdict::Repair { config, .. } = judge(&found, &names()) else { panic!("it is not repaired") };
        assert_eq!((&config["allow_msg_ttl"], &config["placement"]["cluster"]), (&json!(true), &json!("east")));
    }

    /// NEW-40, T38: 80 % of either limit.
    #[test]
    fn nearly_full_is_told_with_numbers() {
        let info = |messages, bytes, changes: Value| Info {
            created: String::new(),
            config: with(&changes),
            state: State { messages, bytes },
        };
        assert_eq!(info(79_999, 0, json!({})).nearly_full(), None);
        let full = info(80_000, 0, json!({})).nearly_full();
        assert_eq!(full.as_deref(), Some("the stream is 80 % full: 80000 of 100000 messages"));
        assert!(info(1, 900, json!({ "max_bytes": 1000 })).nearly_full().unwrap().ends_with("900 of 1000 bytes"));
        assert_eq!(info(1, u64::MAX, json!({ "max_bytes": -1 })).nearly_full(), None);
    }

    #[test]
    fn wildcards() {
        for (filter, subject, covered) in [
            ("ci.runner.>", "ci.runner.>", true),
            (">", "ci.runner.>", true),
            ("ci.>", "ci.runner.>", true),
            ("ci.*", "ci.runner.>", false),
            ("ci.*.>", "ci.runner.>", true),
            ("ci.runner.*", "ci.runner.>", false),
            ("ci.runner", "ci.runner.>", false),
            ("ci.runner.>.x", "ci.runner.y", true),
        ] {
            assert_eq!(covers(filter, subject), covered, "{filter} {subject}");
        }
    }
}
