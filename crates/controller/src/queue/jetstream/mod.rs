//! The queue of a platform: a work-queue stream of NATS JetStream, one subject and one durable consumer per instance and
//! backend (requirements D, PUB, CON).
//!
//! A message leaves the stream when it is acknowledged and the server has said so, or is taken out by its place when
//! nobody has it in hand (NEW-157). Before either its tombstone is written, so that whatever the server may still hand
//! out creates nothing (NEW-45). Deliveries are not counted: failed tries are records of our own (NEW-46).
//!
//! | call | fails | hangs | carried out without an answer |
//! |---|---|---|---|
//! | publish | the task is held in memory and published again | 5 s, then the same | the same id again: the server says "duplicate", and what lies there is compared |
//! | pull | the next pass pulls again | 5 s | it comes again after 60 s without a sign |
//! | tombstone | the message stays, settled again | 5 s | written once more |
//! | acknowledge, take out | settled again | 5 s | nothing is left to do, and the repeat finds that |
//! | put back | it comes again after 60 s | 5 s, then the same | the same |

mod api;
mod consumer;
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

use async_nats::Client;
use domain::id::{Backend, InstanceId};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use self::api::Api;
use self::hand_out::Leased;
use self::names::Names;
use self::records::Records;
use self::shelf::Shelf;
use super::ledger::Ledger;
use super::{Delivery, Disposition, Key, Message, Published, Queue, QueueError, Waiting};
use crate::clock::Clock;

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
}

/// The queue in JetStream. Cloning gives another handle.
#[derive(Clone)]
pub struct JetStream {
    inner: Arc<Inner>,
}

struct Inner {
    producer: Api,
    worker: Api,
    names: Names,
    backends: Vec<Backend>,
    records: Records,
    shelf: Mutex<Shelf>,
    /// One publish at a time: two of one number would not see each other.
    publishing: tokio::sync::Mutex<()>,
    trouble: Mutex<Option<String>>,
    clock: Clock,
}

impl JetStream {
    /// Makes or verifies stream, bucket and consumers, and reads where everything lies. Only the leader may open it.
    ///
    /// # Errors
    /// [`QueueError::Unusable`] for a stream or consumer that is not fit, [`QueueError::Unavailable`] when NATS does not
    /// answer.
    pub async fn open(settings: Settings) -> Result<Self, QueueError> {
        let Settings { producer, worker, stream, subject_base, instance, backends, clock } = settings;
        let names = Names::new(&stream, &subject_base, instance);
        let (producer, worker) = (Api::new(producer), Api::new(worker));
        stream::ensure(&producer, &names).await?;
        let records = Records::open(worker.clone(), names.clone()).await?;
        for backend in &backends {
            consumer::take_over(&worker, &names, *backend).await?;
        }
        let inner = Inner {
            producer,
            worker,
            names,
            backends,
            records,
            shelf: Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
            clock,
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

impl Queue for JetStream {
    fn publish(&self, message: Message) -> BoxFuture<'_, Result<Published, QueueError>> {
        async move { self.inner.publish(message).await }.boxed()
    }

    fn largest_message(&self) -> usize {
        self.inner.producer.max_payload().saturating_sub(HEADERS)
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
        self.inner.trouble().clone()
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
