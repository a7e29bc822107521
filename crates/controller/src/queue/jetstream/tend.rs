//! The work beside the calls: signs of progress for what is leased (NEW-43), how full the stream is (NEW-40), and what the
//! server tells of stream and consumers without being asked (NEW-42).

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use futures::StreamExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Inner, consumer, stream};
use crate::queue::QueueError;

/// How often the server hears that a message is still worked on (requirements §1.4).
const SIGN_OF_PROGRESS: Duration = Duration::from_secs(20);

/// How often the stream is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Runs until the stream is gone.
pub(super) async fn tend(inner: Arc<Inner>) -> QueueError {
    let (mut looks, mut told) = (interval(LOOK), Instant::now());
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut advisories = inner.worker.listen(&advisories_of(&inner.names.stream)).await;
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            Some(advisory) = advisories.next() => {
                heed(&inner, &advisory.subject).await;
                continue;
            }
        }
        if told.elapsed() >= SIGN_OF_PROGRESS {
            told = Instant::now();
            let leases = inner.shelf().leases();
            for reply in &leases {
                inner.worker.in_progress(reply).await;
            }
        }
        let trouble = match stream::info(&inner.producer, &inner.names.stream).await {
            Ok(info) => info.nearly_full(),
            Err(failure) if failure.is(ErrorCode::STREAM_NOT_FOUND) => return failure.into(),
            Err(failure) => Some(QueueError::from(failure).to_string()),
        };
        tell(&inner, trouble);
    }
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

/// An advisory is told to the operator; a consumer that was changed or removed by somebody is brought back.
async fn heed(inner: &Inner, subject: &str) {
    let Some(backend) = inner.backends.iter().find(|backend| subject.ends_with(&inner.names.durable(**backend))) else {
        tracing::warn!(component = "queue", advisory = subject, "NATS tells of the stream");
        return;
    };
    if let Some(word) =
        [".MAX_DELIVERIES.", ".DELETED.", ".TERMINATED."].into_iter().find(|word| subject.contains(word))
    {
        tracing::error!(
            component = "queue",
            advisory = subject,
            word,
            "somebody changed our consumer; it is set right"
        );
        if let Err(error) = consumer::create(&inner.worker, &inner.names, *backend).await {
            tracing::error!(component = "queue", advisory = subject, %error, "it could not be set right");
        }
    }
}
