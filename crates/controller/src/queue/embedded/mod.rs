//! The queue of one host: a SQLite file with a write-ahead log that is synced at every commit, written by one thread.
//!
//! What is acknowledged has reached the disk; a kill at any moment loses nothing that was acknowledged. Leases live in
//! the thread's memory and are gone with the process.

mod store;
mod table;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use domain::id::Backend;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use self::store::Store;
use self::writer::Writer;
use super::ledger::Ledger;
use super::{Delivery, Disposition, Key, Message, Published, Queue, QueueError, Waiting};
use crate::clock::Clock;

/// No message takes more than this part of the file: one task must not keep all others out.
const MESSAGE_SHARE: u64 = 16;

/// Where the file is and how large it may grow.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The database file; made with mode 0600 when it is not there. Its folder must exist.
    pub path: PathBuf,
    /// Limit of the file in bytes, write-ahead log not counted (requirements §1.4: 1 GiB).
    pub max_bytes: u64,
    /// The time that is written down.
    pub clock: Clock,
}

impl Settings {
    /// The limit of requirements §1.4, and a clock that starts now.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, max_bytes: 1 << 30, clock: Clock::start() }
    }
}

/// The embedded queue. Cloning gives another handle to the same thread; the file is closed when the last one is gone.
#[derive(Clone)]
pub struct Embedded {
    writer: Writer,
    largest_message: usize,
}

impl Embedded {
    /// Opens or makes the file.
    ///
    /// # Errors
    /// [`QueueError::Unusable`] for a file of a newer version, a damaged one, or one that cannot be made;
    /// [`QueueError::Full`], [`QueueError::Unavailable`] as in every call.
    pub async fn open(settings: Settings) -> Result<Self, QueueError> {
        let largest_message = usize::try_from(settings.max_bytes / MESSAGE_SHARE).unwrap_or(usize::MAX);
        Ok(Self { largest_message, writer: Writer::start(move || Store::open(&settings)).await? })
    }

    /// The records beside the queue, in the same file.
    #[must_use]
    pub fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::new(self.writer.clone())
    }
}

impl Queue for Embedded {
    fn largest_message(&self) -> usize {
        self.largest_message
    }

    fn publish(&self, message: Message) -> BoxFuture<'_, Result<Published, QueueError>> {
        self.writer.call(move |store| store.publish(&message))
    }

    fn list(&self, backend: Backend) -> BoxFuture<'_, Result<Vec<Waiting>, QueueError>> {
        self.writer.call(move |store| store.list(backend))
    }

    fn pull(&self, backend: Backend, now: Timestamp) -> BoxFuture<'_, Result<Option<Delivery>, QueueError>> {
        let returns = self.writer.clone();
        let leased = self.writer.call(move |store| {
            Ok(store.pull(backend, now)?.map(|delivery| Leased { delivery: Some(delivery), returns }))
        });
        async move { Ok(leased.await?.and_then(Leased::keep)) }.boxed()
    }

    fn settle(&self, key: Key, disposition: Disposition) -> BoxFuture<'_, Result<(), QueueError>> {
        self.writer.call(move |store| store.settle(&key, disposition))
    }

    /// A full disk is told by the publish that meets it.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Leases end with the process, and nobody else writes the file.
    fn tend(&self) -> BoxFuture<'static, QueueError> {
        futures::future::pending().boxed()
    }
}

/// A delivery on its way from the thread to the caller. When the caller is gone before it arrives, the lease is given
/// back; it would otherwise stand until the next restart.
struct Leased {
    delivery: Option<Delivery>,
    returns: Writer,
}

impl Leased {
    fn keep(mut self) -> Option<Delivery> {
        self.delivery.take()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(delivery) = self.delivery.take() {
            self.returns.send(move |store| store.release(&delivery.key()));
        }
    }
}
