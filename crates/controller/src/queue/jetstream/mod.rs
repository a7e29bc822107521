//! The queue of a platform: a work-queue stream of NATS JetStream, one subject and one durable consumer per instance and
//! backend (requirements D, PUB, CON).
//!
//! A message leaves the stream when it is acknowledged and the server has said so, or is taken out by its place when
//! nobody has it in hand (NEW-157). Before either its tombstone is written, so that whatever the server may still hand
//! out creates nothing (NEW-45). Deliveries are not counted: failed tries are records of our own (NEW-46).
//!
//! A call waits for a connection for 5 s; without one nothing was done.
//!
//! | call | fails | hangs | carried out without an answer |
//! |---|---|---|---|
//! | publish | the task is held in memory and published again | 5 s, then the same | the same id again: the server says "duplicate", and what lies there is compared |
//! | pull | the next pass pulls again | 5 s | it comes again after 60 s without a sign |
//! | tombstone | the message stays, settled again | 5 s | written once more |
//! | acknowledge | taken out by its place | 5 s, then the same | it is seen to be gone |
//! | take out | settled again | 5 s | nothing is left to do, and the repeat finds that |
//! | put back | it comes again after 60 s | 5 s, then the same | the same |

mod api;
mod consumer;
mod earlier;
mod failure;
mod fit;
mod hand_out;
mod names;
mod publish;
mod read;
mod records;
mod settle;
mod shelf;
mod stream;
mod tend;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::Client;
use domain::id::{Backend, InstanceId};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use self::api::Api;
pub use self::earlier::{EarlierSubject, Left};
use self::failure::NOT_CONNECTED;
use self::hand_out::Leased;
use self::names::Names;
use self::records::Records;
use self::shelf::Shelf;
use super::ledger::Ledger;
use super::{Delivery, Disposition, Key, Message, Published, Queue, QueueError, Waiting};
use crate::clock::Clock;
use crate::lease::Tenure;

/// What headers and subject take of the largest message.
const HEADERS: usize = 4096;

/// How the queue is reached, and what is ours in it.
pub struct Settings {
    /// Publishes and keeps the stream (CFG-3).
    pub producer: Client,
    /// Pulls, acknowledges, and keeps the records; never the same connection.
    pub worker: Client,
    /// The stream's name.
    pub stream: String,
    /// What subjects begin with.
    pub subject_base: String,
    /// Our name.
    pub instance: InstanceId,
    /// Whose messages are pulled here.
    pub backends: Vec<Backend>,
    /// The time that is written down and compared.
    pub clock: Clock,
    /// How long messages may be taken; none: for ever.
    pub tenure: Option<Tenure>,
}

/// The times of the engine (requirements §1.4); tests shorten them.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// How long an answer may take; a healthy server needs milliseconds, one that elects a leader about two seconds.
    answer: Duration,
    /// How long a message stays with who has it in hand and says nothing.
    ack_wait: Duration,
    /// How often the server hears that a message is still worked on: three times in that time (NEW-43).
    sign: Duration,
    /// How often stream and consumers are looked at.
    look: Duration,
}

const PACE: Pace = Pace {
    answer: Duration::from_secs(5),
    ack_wait: Duration::from_secs(60),
    sign: Duration::from_secs(20),
    look: Duration::from_secs(5),
};

/// The queue in JetStream. Cloning gives another handle.
#[derive(Clone)]
pub struct JetStream {
    inner: Arc<Inner>,
}

struct Inner {
    producer: Api,
    worker: Api,
    names: Names,
    /// When the stream was made that this process knows the places of.
    created: String,
    /// The stream's own limit of a message in bytes.
    largest: Option<usize>,
    backends: Vec<Backend>,
    records: Records,
    shelf: Mutex<Shelf>,
    /// One publish at a time: two of one number would not see each other.
    publishing: tokio::sync::Mutex<()>,
    /// One at a time sets a consumer right: one that is made while it is being removed keeps what the old one had given up.
    shaping: tokio::sync::Mutex<()>,
    trouble: Mutex<Option<String>>,
    pace: Pace,
    clock: Clock,
    tenure: Option<Tenure>,
}

impl JetStream {
    /// Makes or verifies stream, bucket and consumers, and reads where everything lies. Only the leader may open it.
    ///
    /// # Errors
    /// [`QueueError::Unusable`] for a stream or consumer that is not fit, [`QueueError::Unavailable`] when NATS does not
    /// answer.
    pub async fn open(settings: Settings) -> Result<Self, QueueError> {
        Self::open_at(settings, PACE).await
    }

    async fn open_at(settings: Settings, pace: Pace) -> Result<Self, QueueError> {
        let Settings { producer, worker, stream, subject_base, instance, backends, clock, tenure } = settings;
        let names = Names::new(&stream, &subject_base, instance);
        let (producer, worker) = (Api::new(producer, pace.answer), Api::new(worker, pace.answer));
        let stream = stream::ensure(&producer, &names).await?;
        let records = Records::open(worker.clone(), names.clone()).await?;
        for backend in &backends {
            consumer::take_over(&worker, &names, pace.ack_wait, *backend).await?;
        }
        let inner = Inner {
            producer,
            worker,
            names,
            created: stream.created.clone(),
            largest: stream.max_msg_size(),
            backends,
            records,
            shelf: Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            shaping: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
            pace,
            clock,
            tenure,
        };
        inner.remember().await?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The records beside the queue, in a bucket of the same servers.
    #[must_use]
    pub fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::new(self.inner.records.clone())
    }
}

/// The records of an instance, for one who does not work on its queue. Nothing is made.
///
/// # Errors
/// [`QueueError::Unusable`] where there are none, [`QueueError::Unavailable`] when NATS does not answer.
pub async fn records(
    worker: Client,
    stream: &str,
    subject_base: &str,
    instance: InstanceId,
) -> Result<Arc<dyn Ledger>, QueueError> {
    let names = Names::new(stream, subject_base, instance);
    Ok(Arc::new(Records::find(Api::new(worker, PACE.answer), names).await?))
}

impl Queue for JetStream {
    fn publish(&self, message: Message) -> BoxFuture<'_, Result<Published, QueueError>> {
        async move { self.inner.publish(message).await }.boxed()
    }

    fn largest_message(&self) -> usize {
        let server = self.inner.producer.max_payload();
        self.inner.largest.map_or(server, |stream| stream.min(server)).saturating_sub(HEADERS)
    }

    fn list(&self, backend: Backend) -> BoxFuture<'_, Result<Vec<Waiting>, QueueError>> {
        async move { self.inner.list(backend).await }.boxed()
    }

    fn pull(&self, backend: Backend, now: Timestamp) -> BoxFuture<'_, Result<Option<Delivery>, QueueError>> {
        let inner = Arc::clone(&self.inner);
        // In a task of its own: a message must not come for a caller who is gone.
        let pulled = tokio::spawn(async move { Inner::pull(&inner, backend, now).await });
        async move {
            let leased = pulled.await.map_err(|error| QueueError::Unavailable { cause: error.to_string() })??;
            Ok(leased.and_then(Leased::keep))
        }
        .boxed()
    }

    fn settle(&self, key: Key, disposition: Disposition) -> BoxFuture<'_, Result<(), QueueError>> {
        async move { self.inner.settle(key, disposition).await }.boxed()
    }

    fn trouble(&self) -> Option<String> {
        let connected = [&self.inner.producer, &self.inner.worker].iter().all(|api| api.is_connected());
        if connected { self.inner.trouble().clone() } else { Some(NOT_CONNECTED.to_owned()) }
    }

    fn tend(&self) -> BoxFuture<'static, QueueError> {
        tend::tend(Arc::clone(&self.inner)).boxed()
    }
}

impl Inner {
    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        // One value, replaced as a whole.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Each change is one call: a panic leaves no half of it.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
