//! What waits for an executor: one sealed message per assignment, durable from the moment [`Queue::publish`] returns.
//!
//! Invariant 2: only this room takes a message away, and only on a [`Disposition`] that says why. Invariant 9: nothing
//! else makes a message go, no age, no limit of deliveries, no restart. A delivery is a lease in memory; whoever starts
//! again begins with everything that was not settled (NEW-34, NEW-50, NEW-52).
//!
//! Two engines stand behind the trait: the one for a single host ([`embedded`]) and NATS JetStream ([`jetstream`]). The
//! suite in `contract` says what both keep.

#[cfg(test)]
pub(crate) mod contract;
pub mod embedded;
pub mod jetstream;
pub mod ledger;
pub mod unopened;

use domain::id::{AssignmentId, Backend, PayloadDigest};
use domain::reason::Reason;
use futures::future::BoxFuture;
use jiff::Timestamp;

/// A durable queue of sealed assignments.
///
/// Every method may be repeated when its answer was lost: publishing again is [`Published::Duplicate`], settling again
/// is `Ok`, and a pull whose caller went away gives its message back.
pub trait Queue: Send + Sync + 'static {
    /// Stores the message; it is durable when this is `Ok` (PUB-1, PUB-2).
    ///
    /// # Errors
    /// [`QueueError::Conflict`] when another task holds the id, [`QueueError::Ended`] when this one was settled before,
    /// [`QueueError::Full`] when there is no room. After
    /// [`QueueError::Unavailable`] the message may or may not be stored: publish the same message again.
    fn publish(&self, message: Message) -> BoxFuture<'_, Result<Published, QueueError>>;

    /// The largest body it takes, in bytes (NEW-37). A larger one is not published: it would be refused for ever.
    fn largest_message(&self) -> usize;

    /// Everything of one backend that is not settled, oldest first, leased or not.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`], [`QueueError::Unusable`].
    fn list(&self, backend: Backend) -> BoxFuture<'_, Result<Vec<Waiting>, QueueError>>;

    /// The oldest message of this backend that is not leased and whose next try is not after `now`. Call it with a free
    /// slot in hand (NEW-34, CON-3); the lease lasts until [`Queue::settle`] or the end of the process.
    ///
    /// # Errors
    /// [`QueueError::Unavailable`], [`QueueError::Unusable`].
    fn pull(&self, backend: Backend, now: Timestamp) -> BoxFuture<'_, Result<Option<Delivery>, QueueError>>;

    /// Carries out what is to happen with a message. One that goes leaves a tombstone, by which a late redelivery is known
    /// (NEW-45). A message that is already gone is `Ok`, also when another life of its id has come meanwhile, which stays
    /// as it is; one that is not leased (recovered after a restart) can be settled as well.
    ///
    /// # Errors
    /// On any error nothing has changed, or the change is durable: settle again.
    fn settle(&self, key: Key, disposition: Disposition) -> BoxFuture<'_, Result<(), QueueError>>;

    /// What keeps it from taking more tasks now, in words: it is away, or nearly full. While there is something nothing
    /// is fetched (NEW-40, NEW-47).
    fn trouble(&self) -> Option<String>;

    /// The work beside the calls: signs of life for what is leased, and a look at how full it is. Runs for as long as the
    /// queue is used; ready only when it cannot be used any more.
    fn tend(&self) -> BoxFuture<'static, QueueError>;
}

/// Names a message: that of one life of a task's number. Another life of the number is another message (NEW-3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The assignment.
    pub id: AssignmentId,
    /// Which life of that id.
    pub digest: PayloadDigest,
}

/// One assignment on its way into the queue. No `Debug`: the body is the task, if sealed.
#[derive(Clone)]
pub struct Message {
    /// The assignment; a queue holds at most one message of it.
    pub id: AssignmentId,
    /// Which life of that id it is (NEW-3).
    pub digest: PayloadDigest,
    /// Which backend serves it.
    pub backend: Backend,
    /// The sealed envelope, opaque here.
    pub body: Vec<u8>,
}

/// What became of a published message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// It was not there before.
    New,
    /// A message of the same id and digest was there and stays as it is. The sealed bytes may differ: sealing the same
    /// task twice gives two texts.
    Duplicate,
}

/// A message as an operator, or a pass over the queue, sees it. No `Debug`, like [`Message`].
#[derive(Clone)]
pub struct Waiting {
    /// The assignment.
    pub id: AssignmentId,
    /// Which life of that id it is.
    pub digest: PayloadDigest,
    /// Tries that failed so far (NEW-46).
    pub attempts: u32,
    /// Not pulled before this time; the time of enqueueing when no try failed yet.
    pub next_try: Timestamp,
    /// Text of the last failure.
    pub last_error: Option<String>,
    /// When it was stored.
    pub enqueued_at: Timestamp,
    /// Somebody in this process works on it.
    pub leased: bool,
    /// The sealed envelope.
    pub body: Vec<u8>,
}

impl Waiting {
    /// By what it is settled.
    #[must_use]
    pub fn key(&self) -> Key {
        Key { id: self.id, digest: self.digest.clone() }
    }
}

/// A leased message. No `Debug`, like [`Message`].
#[derive(Clone)]
pub struct Delivery {
    /// The assignment.
    pub id: AssignmentId,
    /// Which life of that id it is.
    pub digest: PayloadDigest,
    /// Tries that failed before this one.
    pub attempts: u32,
    /// The sealed envelope.
    pub body: Vec<u8>,
}

impl Delivery {
    /// By what it is settled.
    #[must_use]
    pub fn key(&self) -> Key {
        Key { id: self.id, digest: self.digest.clone() }
    }
}

/// What is to happen with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Its executor sent the first update, or Gitea accepted a final state: it goes (PRC-9).
    Ack,
    /// The try failed: once more, not before `at`. Counts as an attempt (NEW-46).
    Retry {
        /// The earliest time of the next pull.
        at: Timestamp,
        /// What went wrong, for `status` and for the report when the attempts are used up. No secrets.
        error: String,
    },
    /// Not started, because we stop or lost the slot: back at once, no attempt counted (CON-4, NEW-44).
    Release,
    /// It can never run, and Gitea has been told so: it goes. Never a way to drop something silently.
    Reject {
        /// What Gitea was told.
        reason: Reason,
    },
}

/// Why a queue or ledger operation did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// Another task holds this id; it stays, nothing was replaced (PRC-4).
    #[error(
        "{id}: the queue holds another task under this id (stored payload {stored}, offered {offered}); \
         the stored one is kept"
    )]
    Conflict {
        /// The contested id.
        id: AssignmentId,
        /// Digest of what is stored.
        stored: PayloadDigest,
        /// Digest of what was offered.
        offered: PayloadDigest,
    },
    /// This life of the id was settled before: a late redelivery, which creates nothing (NEW-45).
    #[error("{id}: this task has begun or ended here before (payload {digest}); it is not taken again")]
    Ended {
        /// Whose.
        id: AssignmentId,
        /// Which life of it.
        digest: PayloadDigest,
    },
    /// There is no room; nothing that was stored is affected.
    #[error("the queue is full: {cause}; {remedy}")]
    Full {
        /// Which limit was met.
        cause: String,
        /// What an operator can do.
        remedy: String,
    },
    /// It did not work this time, or there was no answer in time. Worth a retry.
    #[error("the queue is unavailable: {cause}")]
    Unavailable {
        /// What happened.
        cause: String,
    },
    /// It cannot work until somebody acts; a retry is useless.
    #[error("the queue cannot be used: {cause}; {remedy}")]
    Unusable {
        /// What is wrong.
        cause: String,
        /// What an operator can do.
        remedy: String,
    },
}
