//! The durable consumer of one backend (CON-1, CON-2): made or brought up to date, refused when it is another one's.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::QueueError;
use super::api::Api;
use super::failure::Failure;
use super::names::Names;
use domain::id::Backend;

/// Never what holds us up: a message that waits for its next try counts as outstanding at the server, and what is worked
/// on is bounded by slots (CON-3).
const MAX_ACK_PENDING: i64 = 100_000;

#[derive(Deserialize)]
struct Info {
    config: Map<String, Value>,
    delivered: Delivered,
}

#[derive(Deserialize)]
struct Delivered {
    consumer_seq: u64,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Fits,
    Update,
    Refuse(Vec<String>),
}

/// Makes the consumer, or sees that it is ours. Whoever opens the queue leads, so what a former process had in hand is
/// nobody's: a consumer that ever handed something out is made anew, which hands it out again at once, and with it whatever
/// it had given up.
pub(super) async fn take_over(
    api: &Api,
    names: &Names,
    ack_wait: Duration,
    backend: Backend,
) -> Result<(), QueueError> {
    match look(api, names, ack_wait, backend).await? {
        Some((Verdict::Fits, Delivered { consumer_seq: 0 })) => Ok(()),
        Some((Verdict::Refuse(differences), _)) => Err(refusal(names, backend, &differences)),
        found => {
            if found.is_some() {
                remove(api, names, backend).await?;
            }
            create(api, names, ack_wait, backend).await
        }
    }
}

/// Sees that the consumer is as it was left; one that was removed or changed is made anew. Not only changed back: what it
/// had given up meanwhile would never be handed out. What is in hand comes again, and joins.
pub(super) async fn set_right(
    api: &Api,
    names: &Names,
    ack_wait: Duration,
    backend: Backend,
) -> Result<(), QueueError> {
    let durable = names.durable(backend);
    match look(api, names, ack_wait, backend).await? {
        Some((Verdict::Fits, _)) => return Ok(()),
        Some((Verdict::Refuse(differences), _)) => return Err(refusal(names, backend, &differences)),
        Some((Verdict::Update, _)) => {
            tracing::error!(component = "queue", consumer = durable, "somebody changed our consumer; it is made anew");
            remove(api, names, backend).await?;
        }
        None => {
            tracing::error!(component = "queue", consumer = durable, "somebody removed our consumer; it is made anew")
        }
    }
    create(api, names, ack_wait, backend).await
}

async fn look(
    api: &Api,
    names: &Names,
    ack_wait: Duration,
    backend: Backend,
) -> Result<Option<(Verdict, Delivered)>, Failure> {
    match api.ask_for::<Info>(&format!("CONSUMER.INFO.{}.{}", names.stream, names.durable(backend))).await {
        Ok(Info { config, delivered }) => Ok(Some((judge(&config, &wanted(names, ack_wait, backend)), delivered))),
        Err(failure) if failure.is(ErrorCode::CONSUMER_NOT_FOUND) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn refusal(names: &Names, backend: Backend, differences: &[String]) -> QueueError {
    let (stream, durable) = (&names.stream, names.durable(backend));
    QueueError::Unusable {
        cause: format!("the consumer {durable} of stream {stream} is not ours: {}", differences.join("; ")),
        remedy: format!("remove it (nats consumer rm {stream} {durable}), or give this instance another INSTANCE_ID"),
    }
}

/// Makes or updates it; nothing changes when it is there as we want it.
pub(super) async fn create(api: &Api, names: &Names, ack_wait: Duration, backend: Backend) -> Result<(), QueueError> {
    let (stream, durable) = (&names.stream, names.durable(backend));
    let body = json!({ "stream_name": stream, "config": wanted(names, ack_wait, backend) });
    let made = api.call::<Value>(&format!("CONSUMER.DURABLE.CREATE.{stream}.{durable}"), &body).await;
    made.map(drop).map_err(|failure| match failure {
        Failure::Refused { ref text, .. } if !failure.is_passing() => QueueError::Unusable {
            cause: format!("the consumer {durable} of stream {stream} cannot be made: {text}"),
            remedy: "docs/nats.md shows its settings and the rights that this user needs".to_owned(),
        },
        other => other.into(),
    })
}

async fn remove(api: &Api, names: &Names, backend: Backend) -> Result<(), QueueError> {
    let call = format!("CONSUMER.DELETE.{}.{}", names.stream, names.durable(backend));
    match api.ask_for::<Value>(&call).await {
        Err(failure) if !failure.is(ErrorCode::CONSUMER_NOT_FOUND) => Err(failure.into()),
        _ => Ok(()),
    }
}

fn wanted(names: &Names, ack_wait: Duration, backend: Backend) -> Value {
    json!({
        "durable_name": names.durable(backend),
        "filter_subject": names.subject(backend),
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "ack_wait": i64::try_from(ack_wait.as_nanos()).unwrap_or(i64::MAX),
        "max_deliver": -1,
        "max_ack_pending": MAX_ACK_PENDING,
    })
}

fn judge(found: &Map<String, Value>, wanted: &Value) -> Verdict {
    let differs = |name: &&str| found.get(*name) != wanted.get(*name);
    let show = |name: &str| {
        let is = found.get(name).map_or_else(|| "unset".to_owned(), ToString::to_string);
        format!("{name} is {is}, and must be {}", wanted.get(name).cloned().unwrap_or_default())
    };
    let mut foreign: Vec<String> =
        ["filter_subject", "deliver_policy", "ack_policy"].into_iter().filter(differs).map(show).collect();
    if found.contains_key("deliver_subject") {
        foreign.push("it pushes, and must be pulled from".to_owned());
    }
    if !foreign.is_empty() {
        return Verdict::Refuse(foreign);
    }
    let changed = ["ack_wait", "max_deliver", "max_ack_pending", "replay_policy"].iter().any(differs);
    // Then it hands out nothing, or nothing that can be opened.
    let useless = found.get("pause_until").is_some_and(|until| !until.is_null())
        || found.get("headers_only") == Some(&Value::Bool(true));
    if changed || useless { Verdict::Update } else { Verdict::Fits }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// CON-1, CON-2, F20, F27: limits are brought up to date; another one's consumer is refused with the difference.
    #[test]
    fn a_consumer_is_held_against_what_we_need() {
        let names = Names::new("CI_RUNNER", "ci.runner", "f66f031b".parse().unwrap());
        let wanted = wanted(&names, Duration::from_mins(1), Backend::Pod);
        let with = |changes: Value| {
            let mut config = wanted.as_object().unwrap().clone();
            config.extend(changes.as_object().unwrap().clone());
            judge(&config, &wanted)
        };
        assert_eq!(with(json!({})), Verdict::Fits);
        for change in [json!({ "ack_wait": 1 }), json!({ "max_deliver": 1000 }), json!({ "max_ack_pending": 2 })] {
            assert_eq!(with(change), Verdict::Update);
        }
        for change in [
            json!({ "pause_until": "2100-01-01T00:00:00Z" }),
            json!({ "headers_only": true }),
            json!({ "replay_policy": "original" }),
        ] {
            assert_eq!(with(change), Verdict::Update);
        }
        assert_eq!(with(json!({ "pause_until": null, "headers_only": false })), Verdict::Fits);
        let foreign = r#"filter_subject is "ci.runner.pod", and must be "ci.runner.f66f031b.pod""#.to_owned();
        assert_eq!(with(json!({ "filter_subject": "ci.runner.pod" })), Verdict::Refuse(vec![foreign]));
        assert!(matches!(with(json!({ "deliver_subject": "x" })), Verdict::Refuse(_)));
    }
}
