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
//! | put back | it comes again after 60 s | never waited for | – |

mod api;
mod consumer;
mod names;
mod records;
mod shelf;
mod stream;
mod tend;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::header::{HeaderMap, NATS_MESSAGE_ID};
use async_nats::{Client, Subject};
use domain::id::{Backend, InstanceId};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use self::api::{Api, Failure, Handed, Lying};
use self::names::Names;
use self::records::{Records, TRIES};
use self::shelf::{Shelf, Tries, Turn};
use super::ledger::{Entry, Kind, Ledger, life};
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
    /// What former processes left: where each message lies, and its failed tries.
    async fn remember(&self) -> Result<(), QueueError> {
        for record in self.records.read_all(TRIES).await? {
            let tries = serde_json::from_str::<Tries>(&record.value);
            if let (Some(key), Ok(tries)) = (key_of_life(&record.key), tries) {
                self.shelf().recall(key, tries);
            }
        }
        for backend in self.backends.clone() {
            self.read(backend, |key, lying| self.shelf().lies(&key, lying.sequence)).await?;
        }
        Ok(())
    }

    /// Every message of a backend that is not over, oldest first, by reading: that delivers none (NEW-157).
    async fn read(&self, backend: Backend, mut each: impl FnMut(Key, Lying)) -> Result<(), QueueError> {
        let (stream, subject) = (&self.names.stream, self.names.subject(backend));
        let mut from = 1;
        while let Some(lying) = self.worker.next(stream, &subject, from).await? {
            from = lying.sequence.saturating_add(1);
            let key = self.ours(lying.id.as_deref(), backend, lying.sequence)?;
            if self.records.is_ended(key.id, &key.digest).await? {
                self.worker.delete(stream, lying.sequence).await?;
            } else {
                each(key, lying);
            }
        }
        Ok(())
    }

    async fn publish(&self, message: Message) -> Result<Published, QueueError> {
        let key = Key { id: message.id, digest: message.digest.clone() };
        let _turn = self.publishing.lock().await;
        if self.records.is_ended(key.id, &key.digest).await? {
            return Err(QueueError::Ended { id: key.id, digest: key.digest });
        }
        let known = self.shelf().of(key.id);
        if let Some((stored, place)) = known {
            if self.lies_at(&stored, place).await? {
                return same(stored, key);
            }
            self.shelf().forget(&stored);
        }
        let place = match self.store(&message, &key, None).await? {
            // An id that the server remembers, from an answer that was lost: believed after comparing (PUB-2).
            stored if stored.duplicate && self.lies_at(&key, stored.sequence).await? => {
                self.shelf().lies(&key, stored.sequence);
                return Ok(Published::Duplicate);
            }
            stored if stored.duplicate => self.store(&message, &key, Some(stored.sequence)).await?.sequence,
            stored => stored.sequence,
        };
        self.shelf().lies(&key, place);
        Ok(Published::New)
    }

    async fn store(&self, message: &Message, key: &Key, again: Option<u64>) -> Result<api::Stored, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, self.names.message_id(key, again));
        // Another stream that takes our subjects must not swallow a task.
        headers.insert("Nats-Expected-Stream", self.names.stream.as_str());
        self.producer.publish(&self.names.subject(message.backend), headers, message.body.clone().into()).await
    }

    /// Whether the message of this life lies there.
    async fn lies_at(&self, key: &Key, place: u64) -> Result<bool, QueueError> {
        let lying = self.producer.at(&self.names.stream, place).await?;
        Ok(lying.and_then(|lying| self.names.key(&lying.id?)).as_ref() == Some(key))
    }

    async fn list(&self, backend: Backend) -> Result<Vec<Waiting>, QueueError> {
        let mut all = Vec::new();
        self.read(backend, |key, lying| {
            let mut shelf = self.shelf();
            shelf.lies(&key, lying.sequence);
            let tries = shelf.tries(&key);
            all.push(Waiting {
                attempts: tries.map_or(0, |tries| tries.attempts),
                next_try: tries.map_or(lying.time, |tries| tries.next_try),
                last_error: tries.map(|tries| tries.last_error.clone()),
                enqueued_at: lying.time,
                leased: shelf.lease(&key).is_some(),
                body: lying.body,
                id: key.id,
                digest: key.digest,
            });
        })
        .await?;
        Ok(all)
    }

    async fn pull(this: &Arc<Self>, backend: Backend, now: Timestamp) -> Result<Option<Leased>, QueueError> {
        let durable = this.names.durable(backend);
        loop {
            let handed = match this.worker.pull(&this.names.stream, &durable).await {
                Ok(handed) => handed,
                // Somebody removed it (CON-4): made again, and if that does not help the pass says so.
                Err(failure @ (Failure::Nobody { .. } | Failure::Refused { .. })) => {
                    tracing::error!(component = "queue", consumer = durable, ?failure, "consumer gone; made again");
                    consumer::create(&this.worker, &this.names, backend).await?;
                    this.worker.pull(&this.names.stream, &durable).await?
                }
                Err(failure) => return Err(failure.into()),
            };
            let Some(handed) = handed else { return Ok(None) };
            match this.judge(&handed, backend, now).await {
                Ok(Some((key, attempts))) => return Ok(Some(Leased::new(this, key, attempts, handed))),
                Ok(None) => {}
                Err(error) => {
                    this.worker.give_back(&handed.reply, Duration::ZERO).await;
                    return Err(error);
                }
            }
        }
    }

    /// What becomes of a message that the server handed out: leased, with its failed tries, or not now.
    async fn judge(
        &self,
        handed: &Handed,
        backend: Backend,
        now: Timestamp,
    ) -> Result<Option<(Key, u32)>, QueueError> {
        let key = self.ours(handed.id.as_deref(), backend, handed.sequence)?;
        if self.records.is_ended(key.id, &key.digest).await? {
            self.worker.acknowledge(&handed.reply).await?;
            return Ok(None);
        }
        let turn = self.shelf().handed(&key, handed.sequence, handed.reply.clone(), now);
        match turn {
            Turn::Leased { attempts } => Ok(Some((key, attempts))),
            Turn::Joined => Ok(None),
            Turn::NotYet { pause } => {
                self.worker.give_back(&handed.reply, pause).await;
                Ok(None)
            }
        }
    }

    /// Nothing is taken past a message that is not ours (NEW-41, PRC-2).
    fn ours(&self, id: Option<&str>, backend: Backend, place: u64) -> Result<Key, QueueError> {
        id.and_then(|id| self.names.key(id)).ok_or_else(|| {
            let (stream, subject) = (&self.names.stream, self.names.subject(backend));
            QueueError::Unusable {
                cause: format!("message {place} of stream {stream} on {subject} was not written by this instance"),
                remedy: format!(
                    "find out who writes there; `nats stream get {stream} {place}` shows it, and `nats stream rmm {stream} \
                     {place}` removes it. Nothing is started until then"
                ),
            }
        })
    }

    async fn settle(&self, key: Key, disposition: Disposition) -> Result<(), QueueError> {
        match disposition {
            Disposition::Ack => self.bury(&key, "acknowledged").await,
            Disposition::Reject { reason } => {
                tracing::info!(assignment = %key.id, %reason, "message rejected");
                self.bury(&key, reason.as_str()).await
            }
            Disposition::Retry { at, error } => self.retry(&key, at, error).await,
            Disposition::Release => {
                self.put_back(&key, Duration::ZERO).await;
                Ok(())
            }
        }
    }

    /// The record first: a message that comes back without it would be tried at once, as if nothing had been.
    async fn retry(&self, key: &Key, at: Timestamp, error: String) -> Result<(), QueueError> {
        let Some(tries) = self.shelf().failed(key, at, error) else { return Ok(()) };
        let value = serde_json::to_string(&tries).unwrap_or_default();
        let record = Entry { key: life(key.id, &key.digest), value, at: self.clock.now() };
        self.records.write(TRIES, &record).await?;
        self.shelf().recall(key.clone(), tries);
        let pause = Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default();
        self.put_back(key, pause).await;
        Ok(())
    }

    async fn put_back(&self, key: &Key, pause: Duration) {
        let lease = self.shelf().release(key);
        if let Some(reply) = lease {
            self.worker.give_back(&reply, pause).await;
        }
    }

    /// Tombstone, then the message, then what was noted about it. Without room for a tombstone it goes all the same: a
    /// full server must be able to empty itself. Also where no message is known: a publish whose answer was lost may have
    /// left one, and the tombstone meets it when it comes.
    async fn bury(&self, key: &Key, outcome: &str) -> Result<(), QueueError> {
        let tombstone = Entry { key: life(key.id, &key.digest), value: outcome.to_owned(), at: self.clock.now() };
        match self.records.put_if_absent(Kind::Tombstone, tombstone.clone()).await {
            Ok(_) | Err(QueueError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        let (lease, place) = {
            let shelf = self.shelf();
            (shelf.lease(key), shelf.place(key))
        };
        let acknowledged = match &lease {
            Some(reply) => self.acknowledged(reply).await?,
            None => false,
        };
        if let Some(place) = place.filter(|_| !acknowledged) {
            self.worker.delete(&self.names.stream, place).await?;
        }
        if self.shelf().tries(key).is_some() {
            self.records.erase(TRIES, &tombstone.key).await?;
        }
        self.shelf().forget(key);
        Ok(())
    }

    /// False: the consumer that handed it out is gone, so the message must be taken out by its place.
    async fn acknowledged(&self, reply: &Subject) -> Result<bool, QueueError> {
        match self.worker.acknowledge(reply).await {
            Ok(()) => Ok(true),
            Err(Failure::Nobody { .. }) => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        // One value, replaced as a whole.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Each change is one call: a panic leaves no half of it.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn same(stored: Key, offered: Key) -> Result<Published, QueueError> {
    if stored == offered {
        return Ok(Published::Duplicate);
    }
    Err(QueueError::Conflict { id: offered.id, stored: stored.digest, offered: offered.digest })
}

/// The message whose records have this key.
fn key_of_life(text: &str) -> Option<Key> {
    let (id, digest) = text.split_once('.')?;
    Some(Key { id: id.parse().ok()?, digest: digest.to_owned().try_into().ok()? })
}

/// A delivery on its way to the caller. When the caller is gone before it arrives, it is given back.
struct Leased {
    inner: Arc<Inner>,
    delivery: Option<Delivery>,
}

impl Leased {
    fn new(inner: &Arc<Inner>, Key { id, digest }: Key, attempts: u32, handed: Handed) -> Self {
        let delivery = Some(Delivery { id, digest, attempts, body: handed.body.into() });
        Self { inner: Arc::clone(inner), delivery }
    }

    fn keep(mut self) -> Option<Delivery> {
        self.delivery.take()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let (Some(delivery), Ok(runtime)) = (self.delivery.take(), tokio::runtime::Handle::try_current()) else { return };
        let inner = Arc::clone(&self.inner);
        runtime.spawn(async move { inner.put_back(&delivery.key(), Duration::ZERO).await });
    }
}
