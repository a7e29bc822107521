//! The work beside the calls: signs of progress for what is leased (NEW-43), how full the stream is (NEW-40), whether
//! stream and consumers are still as they were opened, and what the server tells of them without being asked (NEW-42).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use domain::id::Backend;
use futures::StreamExt as _;
use jiff::SignedDuration;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::api::Api;
use super::failure::Failure;
use super::{Inner, consumer, stream};
use crate::queue::QueueError;

const DAY: Duration = Duration::from_hours(24);
const MONTH: SignedDuration = SignedDuration::from_hours(30 * 24);

/// After what the server told: one look for all that it tells meanwhile.
const HURRIED: Duration = Duration::from_millis(200);

/// Runs until the stream or the bucket of records is gone.
pub(super) async fn tend(inner: Arc<Inner>) -> QueueError {
    let (mut looks, mut told) = (interval(inner.pace.look), Instant::now());
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut advisories = inner.worker.listen(&advisories_of(&inner.names.stream)).await;
    let (mut given_up, mut days, mut hurried) = (BTreeSet::new(), interval(DAY), false);
    loop {
        tokio::select! {
            _ = looks.tick() => hurried = false,
            _ = days.tick() => {
                forget(&inner).await;
                continue;
            }
            Some(advisory) = advisories.next() => {
                let heeded = heed(&inner, &advisory.subject);
                if heeded != Heeded::Nothing && !hurried {
                    looks.reset_after(HURRIED.min(inner.pace.look));
                    hurried = true;
                }
                given_up.extend(heeded.given_up());
                continue;
            }
        }
        if told.elapsed() >= inner.pace.sign {
            told = Instant::now();
            let leases = inner.shelf().leases();
            for reply in &leases {
                inner.worker.in_progress(reply).await;
            }
        }
        match look(&inner, &mut given_up).await {
            Ok(trouble) => tell(&inner, trouble),
            Err(Gone(error)) => return error,
        }
    }
}

/// What ended so long ago comes no more: a message is kept for a week (NEW-45).
async fn forget(inner: &Inner) {
    let Ok(before) = inner.clock.now().checked_sub(MONTH) else { return };
    if let Err(error) = inner.records.forget(before).await {
        tracing::warn!(component = "queue", %error, "old records are kept for another day");
    }
}

/// The queue cannot be used any more.
struct Gone(QueueError);

/// What keeps the queue from taking more; what can be set right is.
async fn look(inner: &Inner, given_up: &mut BTreeSet<Backend>) -> Result<Option<String>, Gone> {
    let Inner { names, producer, worker, .. } = inner;
    let info = match opened(producer, &names.stream, &inner.created).await? {
        Ok(info) => info,
        Err(failure) => return Ok(Some(QueueError::from(failure).to_string())),
    };
    if let Err(failure) = opened(worker, &names.records(), &inner.records.created).await? {
        return Ok(Some(QueueError::from(failure).to_string()));
    }
    if inner.still_leads().is_err() {
        // The consumer has the same name for whoever leads.
        return Ok(info.nearly_full());
    }
    let (api, names, ack_wait) = (&inner.worker, &inner.names, inner.pace.ack_wait);
    for backend in &inner.backends {
        let _turn = inner.shaping.lock().await;
        let right = match consumer::set_right(api, names, ack_wait, *backend).await {
            Ok(()) if given_up.contains(backend) => consumer::take_over(api, names, ack_wait, *backend).await,
            other => other,
        };
        match right {
            Ok(()) => drop(given_up.remove(backend)),
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    Ok(info.nearly_full())
}

/// The stream, as long as it is the one that was opened.
async fn opened(api: &Api, stream: &str, created: &str) -> Result<Result<stream::Info, Failure>, Gone> {
    match stream::info(api, stream).await {
        Ok(info) if info.created != created => Err(gone(stream, "was removed and made anew")),
        Err(failure) if failure.is(ErrorCode::STREAM_NOT_FOUND) => Err(gone(stream, "is gone")),
        seen => Ok(seen),
    }
}

fn gone(stream: &str, how: &str) -> Gone {
    Gone(QueueError::Unusable {
        cause: format!("the stream {stream} {how}, and with it what it held"),
        remedy: "restore it from a backup if there is one, else start again: an empty one is made where there is none"
            .to_owned(),
    })
}

/// Said once when it comes and once when it goes.
fn tell(inner: &Inner, trouble: Option<String>) {
    let mut known = inner.trouble();
    match (&*known, &trouble) {
        (None, Some(trouble)) => tracing::error!(component = "queue", trouble, "nothing is fetched until this is over"),
        (Some(_), None) => tracing::info!(component = "queue", "the queue takes tasks again"),
        _ => {}
    }
    *known = trouble;
}

/// What the server publishes about a stream of ours and its consumers.
fn advisories_of(stream: &str) -> [String; 2] {
    [format!("$JS.EVENT.ADVISORY.STREAM.*.{stream}"), format!("$JS.EVENT.ADVISORY.CONSUMER.*.{stream}.>")]
}

/// What there is to do about an advisory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heeded {
    Nothing,
    /// Look at once.
    Look,
    /// The same, and this one's consumer is made anew: it has given a message up, which no look at it shows.
    GivenUp(Backend),
}

impl Heeded {
    fn given_up(self) -> Option<Backend> {
        match self {
            Self::GivenUp(backend) => Some(backend),
            Self::Nothing | Self::Look => None,
        }
    }
}

/// Tells the operator.
fn heed(inner: &Inner, advisory: &str) -> Heeded {
    let Some(event) = Event::read(advisory) else { return Heeded::Nothing };
    let backend = inner.backends.iter().find(|backend| event.consumer == Some(&inner.names.durable(**backend)));
    match (event.what, backend) {
        ("MAX_DELIVERIES" | "MSG_TERMINATED", Some(backend)) => {
            tracing::error!(
                component = "queue",
                advisory,
                "somebody made our consumer give up a message; it is made anew"
            );
            Heeded::GivenUp(*backend)
        }
        // Each message that is put back is told.
        ("MSG_NAKED" | "CREATED", _) => Heeded::Nothing,
        (_, None) if event.consumer.is_some() => Heeded::Nothing,
        _ => {
            tracing::warn!(component = "queue", advisory, "NATS tells of the queue");
            Heeded::Look
        }
    }
}

/// `$JS.EVENT.ADVISORY.<STREAM or CONSUMER>.<what>.<stream>[.<consumer>]`.
#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    what: &'a str,
    consumer: Option<&'a str>,
}

impl<'a> Event<'a> {
    fn read(subject: &'a str) -> Option<Self> {
        let mut tokens = subject.strip_prefix("$JS.EVENT.ADVISORY.")?.split('.').skip(1);
        let what = tokens.next()?;
        Some(Self { what, consumer: tokens.nth(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-42: the names of NATS.
    #[test]
    fn advisories_are_read() {
        let read = |subject| Event::read(subject).map(|event| (event.what, event.consumer));
        let pod = Some("f66f031b-pod");
        assert_eq!(read("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.f66f031b-pod"), Some(("MAX_DELIVERIES", pod)));
        assert_eq!(read("$JS.EVENT.ADVISORY.STREAM.DELETED.S"), Some(("DELETED", None)));
        assert_eq!(read("ci.runner"), None);
    }
}
