//! Leadership: at most one process fetches, launches and reaps for one registration (NEW-59, NEW-60).
//!
//! Invariant: whoever holds [`Held`] is the only one while [`Tenure::permits`] an [`Act::Decide`]. Where nobody can be
//! asked who leads it rests: it decides nothing, and goes on speaking for its tasks ([`Act::Speak`]) until it is
//! confirmed again or hears of another one. When [`Held::lost`] returns it must stop at once. [`Held::release`] gives
//! the leadership up and waits for it; dropping [`Held`] gives it up in the background.
//!
//! On one host the proof is a lock on a file, which the kernel frees when the process ends, however it ends ([`mod@file`]).
//! Between hosts it is a key in NATS or a Lease in Kubernetes that must be written again and again ([`key_value`],
//! [`kubernetes`]; both by the same [`rules`]). A proof of the second kind can
//! end while a process is frozen, between its last look and what it does next. No lease can exclude that: what such a
//! process still sends is fenced by the epochs of executors (NEW-4) and by the compare-and-set of whatever it writes.

mod boot_time;
#[cfg(test)]
pub(crate) mod contract;
pub mod file;
pub mod key_value;
pub mod kubernetes;
mod renew;
mod rules;
#[cfg(test)]
mod testing;

use std::path::PathBuf;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join};
use tokio::sync::watch;

use crate::telemetry::events::{LeaderEvent, leader_transition};
use boot_time::BootTime;
pub use file::FileLock;
pub use key_value::{KeyValueError, KeyValueLease};
pub use kubernetes::{KubernetesLease, KubernetesLeaseError};
use rules::Seen;
pub use rules::{Times, Unconfirmed};

/// A way to become the only one.
pub trait Leadership: Send + Sync + 'static {
    /// Waits until this process leads; a file lock waits only a moment, since its holder is not expected to go. Dropping
    /// the future stops waiting.
    ///
    /// # Errors
    /// [`LeaseError`], whose text says what to do.
    fn acquire(&self) -> BoxFuture<'_, Result<Held, LeaseError>>;
}

/// The proof of leadership, for as long as it lives.
pub struct Held {
    tenure: Tenure,
    hold: Box<dyn Send + Sync>,
    released: BoxFuture<'static, ()>,
    place: Option<String>,
}

impl Held {
    /// A leadership that dropping `hold` gives up; `released` is ready when that is over.
    fn new(tenure: Tenure, hold: impl Send + Sync + 'static, released: BoxFuture<'static, ()>) -> Self {
        Self { tenure, hold: Box::new(hold), released, place: None }
    }

    /// A leadership that is the only one at this place by itself.
    fn at(self, place: Option<String>) -> Self {
        Self { place, ..self }
    }

    /// What at most one living process works on, and this one does for as long as it holds this: whoever held the same one
    /// before is gone. None where there is no such thing, or the system does not tell it.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// Ready when the leadership is gone without our doing. May be asked for by any number of parts.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.tenure.clone().ended()
    }

    /// What parts that act as the leader look at before they act.
    #[must_use]
    pub fn tenure(&self) -> Tenure {
        self.tenure.clone()
    }

    /// This leadership, which gives up `other` as well, after itself; `other` lasts as long as its proof is held.
    #[must_use]
    pub fn keeping(self, other: Self) -> Self {
        let Self { tenure, hold, released, place } = self;
        let both = (hold, other.hold);
        let place = place.or(other.place);
        Self { tenure, hold: Box::new(both), released: join(other.released, released).map(drop).boxed(), place }
    }

    /// Gives the leadership up, and is ready when the next one may lead, or when that could not be said within the
    /// implementation's limit. Call it after the last thing that only a leader may do (SCH-10).
    pub async fn release(self) {
        drop(self.hold);
        self.released.await;
    }
}

/// How long a leadership lasts, for everybody who acts on it.
#[derive(Debug, Clone)]
pub struct Tenure(watch::Receiver<Standing>);

impl Tenure {
    /// A tenure that lasts as `standing` says, and is over with [`Lost::Released`] when the sender is gone.
    fn new(standing: Standing) -> (watch::Sender<Standing>, Self) {
        let (sender, receiver) = watch::channel(standing);
        (sender, Self(receiver))
    }

    /// Why the leadership is over, for good; none while this process leads or rests.
    #[must_use]
    pub fn over(&self) -> Option<Lost> {
        // Before the value: who ends it writes why and only then goes away.
        let gone = self.0.has_changed().is_err();
        match &*self.0.borrow() {
            Standing::Over(lost) => Some(lost.clone()),
            Standing::Until { .. } | Standing::ForGood => gone.then_some(Lost::Released),
        }
    }

    /// Whether this may be done now. Looks at the clock: a process that was frozen learns here, before any of its timers has
    /// run, that it may do nothing.
    ///
    /// # Errors
    /// Why not.
    pub fn permits(&self, act: Act) -> Result<(), Fenced> {
        if let Some(lost) = self.over() {
            return Err(Fenced::Over(lost));
        }
        let until = match (&*self.0.borrow(), act) {
            (Standing::Until { end, .. }, Act::Decide) => *end,
            (Standing::Until { end, speaks }, Act::Speak) => (*end).max(*speaks),
            (Standing::ForGood, _) => return Ok(()),
            // It ended this moment.
            (Standing::Over(lost), _) => return Err(Fenced::Over(lost.clone())),
        };
        if BootTime::now() < until { Ok(()) } else { Err(Fenced::InDoubt) }
    }

    /// Ready when [`Tenure::over`] says why.
    async fn ended(mut self) {
        // Without a sender it is over too.
        let _ = self.0.wait_for(|standing| matches!(standing, Standing::Over(_))).await;
    }
}

/// What is done in the name of the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Tasks are taken, started, given away, judged or ended.
    Decide,
    /// A task that is held is said to be alive; its own executor is believed.
    Speak,
}

/// Why something may not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fenced {
    /// Never again.
    #[error(transparent)]
    Over(Lost),
    /// Not now.
    #[error("the lease was not renewed in time, and nobody can be asked who leads")]
    InDoubt,
}

/// What is known of a leadership.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// It lasts until it is released.
    ForGood,
    /// It lasts until `end`, unless it is prolonged; its holder may speak until `speaks`, when that is later.
    Until { end: BootTime, speaks: BootTime },
    /// It is over and does not come back.
    Over(Lost),
}

/// Why a leadership is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Somebody else wrote himself in.
    #[error("{by} holds the lease now")]
    Taken {
        /// Who.
        by: String,
    },
    /// What proved it is not there any more.
    #[error("the lease was removed")]
    Removed,
    /// We gave it up.
    #[error("the lease was released")]
    Released,
}

/// Why there is no leadership.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another process has it.
    #[error(
        "{path}: this state folder is in use by {holder}; two controllers must not share one registration. \
         Stop that one first, or give this one its own folder with --state"
    )]
    Taken {
        /// The lock file.
        path: PathBuf,
        /// Who wrote itself into the file: process id and start, as far as they can be read.
        holder: String,
    },
    /// The lock file cannot be used.
    #[error("{path}: {cause}; the state folder must exist on a local disk and be writable for this user")]
    Unusable {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The lease in NATS cannot be used.
    #[error(transparent)]
    KeyValue(#[from] KeyValueError),
    /// The Lease in Kubernetes cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesLeaseError),
}

/// Says who leads, once for each.
fn announce(seen: &Seen, announced: &mut Option<String>) {
    if let Seen::Theirs { holder, .. } = seen
        && announced.as_ref() != Some(holder)
    {
        leader_transition(LeaderEvent::Standby, Some(holder));
        *announced = Some(holder.clone());
    }
}
