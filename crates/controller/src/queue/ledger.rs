//! The small keyed records beside the queue: what ended, which repository stands behind a name, and what was set aside
//! (NEW-45, NEW-51).
//!
//! Values are short JSON texts that their owners write and read; nothing here looks into them, and none may hold a
//! secret.

use domain::id::{AssignmentId, PayloadDigest};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

use super::QueueError;

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A task that has begun or ended, written when its message goes; kept for longer than any redelivery can come
    /// (NEW-45).
    Tombstone,
    /// Which repository stands behind an identity.
    Pin,
    /// Which host started a task, written before its first executor is made.
    Begun,
    /// What could not be processed, without secrets: ids, digest, sizes, error class, times (NEW-51).
    SetAside,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Tombstone => "tombstone",
            Self::Pin => "pin",
            Self::Begun => "begun",
            Self::SetAside => "set_aside",
        }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unique within its kind.
    pub key: String,
    /// The owner's text, without secrets.
    pub value: String,
    /// When it was written last.
    pub at: Timestamp,
}

/// Keyed records, durable when a call that changes them is `Ok`. One caller at a time changes a key: the leader.
pub trait Ledger: Send + Sync + 'static {
    /// Writes a record, in place of an earlier one of the same key.
    ///
    /// # Errors
    /// [`QueueError::Full`], [`QueueError::Unavailable`], [`QueueError::Unusable`].
    fn put(&self, kind: Kind, entry: Entry) -> BoxFuture<'_, Result<(), QueueError>>;

    /// Writes a record unless one of this key is there; returns the one that holds, in one step.
    ///
    /// # Errors
    /// As [`Ledger::put`].
    fn put_if_absent(&self, kind: Kind, new: Entry) -> BoxFuture<'_, Result<Entry, QueueError>>;

    /// The record of this key.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`], [`QueueError::Unusable`].
    fn get(&self, kind: Kind, key: &str) -> BoxFuture<'_, Result<Option<Entry>, QueueError>>;

    /// All records of a kind, by key.
    ///
    /// # Errors
    /// As [`Ledger::get`].
    fn list(&self, kind: Kind) -> BoxFuture<'_, Result<Vec<Entry>, QueueError>>;

    /// Takes a record away; one that is not there is `Ok`.
    ///
    /// # Errors
    /// As [`Ledger::get`].
    fn remove(&self, kind: Kind, key: &str) -> BoxFuture<'_, Result<(), QueueError>>;

    /// Whether this life of the assignment has ended; another digest under the same id is another life (NEW-3).
    ///
    /// # Errors
    /// As [`Ledger::get`].
    fn is_ended(&self, id: AssignmentId, digest: &PayloadDigest) -> BoxFuture<'_, Result<bool, QueueError>> {
        let tombstone = self.get(Kind::Tombstone, &life(id, digest));
        async move { Ok(tombstone.await?.is_some()) }.boxed()
    }
}

/// The key of a tombstone.
pub(crate) fn life(id: AssignmentId, digest: &PayloadDigest) -> String {
    format!("{id}.{digest}")
}
