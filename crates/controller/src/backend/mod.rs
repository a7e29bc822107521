//! Where executors are made: one object per executor, found again by its name and judged by its metadata.
//!
//! Every call is idempotent (WRK-9), because every answer can be lost. Used slots are counted from [`Backend::list`]
//! and nothing else (NEW-55).

#[cfg(test)]
pub(crate) mod contract;
pub mod local;
pub mod pod;
#[cfg(test)]
pub(crate) mod samples;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use domain::capability::Capability;
use domain::executor_api::ExecutorExit;
use domain::metadata::{ExecutorRecord, Mark, Unreadable};
use domain::reason::Reason;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;

/// A place that runs executors.
pub trait Backend: Send + Sync + 'static {
    /// Finds the executor of this assignment, instance, digest and epoch, or makes it, and binds its identity (WRK-1,
    /// WRK-2). One that has ended already is [`Ensured::Ready`] as well: it is never started a second time.
    ///
    /// # Errors
    /// [`BackendError`]. After [`BackendError::Transient`] an executor may exist; call again. [`BackendError::QuotaUsedUp`]
    /// is for this call alone.
    fn ensure(&self, launch: Launch) -> BoxFuture<'_, Result<Ensured, BackendError>>;

    /// Every executor of ours, unreadable ones included (POD-13, NEW-56), and what nobody but us can own although an
    /// earlier registration made it.
    ///
    /// # Errors
    /// [`BackendError`] when the list as a whole cannot be had; it is then no evidence of anything (NEW-62).
    fn list(&self) -> BoxFuture<'_, Result<Vec<Observed>, BackendError>>;

    /// Adds to the executor's metadata; durable before it returns, except [`Mark::Steps`] (NEW-53).
    ///
    /// # Errors
    /// [`BackendError`]; the mark may be written or not, call again.
    fn mark(&self, name: &str, mark: Mark) -> BoxFuture<'_, Result<Marked, BackendError>>;

    /// The last report that an executor left undelivered (NEW-112), sealed; none where nothing outlives an executor.
    ///
    /// # Errors
    /// [`BackendError`]; there may be one, call again.
    fn last_report(&self, name: &str) -> BoxFuture<'_, Result<Option<Vec<u8>>, BackendError>> {
        let _ = name;
        futures::future::ready(Ok(None)).boxed()
    }

    /// Takes the identity away, kills what still runs, removes the object. `Ok` means that nothing is left; an executor
    /// that is not there is `Ok`.
    ///
    /// # Errors
    /// [`BackendError`]; the executor holds its slot until a later call is `Ok`.
    fn delete(&self, name: &str) -> BoxFuture<'_, Result<(), BackendError>>;

    /// Ready when something may have changed since the last time it was ready: a reason for the next [`Backend::list`]
    /// to come early. For one listener. Never ready where changes are only seen by looking.
    fn changed(&self) -> BoxFuture<'_, ()> {
        futures::future::pending().boxed()
    }
}

/// What an executor is made of. No `Debug`: it holds the capability.
pub struct Launch {
    /// What is written on the object.
    pub record: ExecutorRecord,
    /// What the runner declares, never empty.
    pub labels: Vec<String>,
    /// The executor's secret.
    pub capability: Capability,
}

/// Whether the executor is there with its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    /// It exists and its identity is bound.
    Ready,
    /// It exists or is being made; call again (PRC-7).
    NotYet,
}

/// One executor as a list found it.
#[derive(Debug, Clone)]
pub struct Observed {
    /// `<assignment>-<instance>-e<epoch>`.
    pub name: String,
    /// Its metadata, or why it is in quarantine.
    pub record: Result<Arc<ExecutorRecord>, Unreadable>,
    /// What it does.
    pub state: ExecutorState,
}

/// What an executor does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutorState {
    /// Not started yet.
    Pending,
    /// Not started yet, and the text says what holds it up (NEW-28).
    HeldUp(String),
    /// It runs.
    Running,
    /// It ended and nothing of it runs any more.
    Ended(Exit),
    /// What runs it has ended it, or will never start it.
    Failed(Failure),
    /// Gone without a word.
    Vanished,
}

/// Why an executor ended or will not start, as its platform tells (NEW-66).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The word of the closed list.
    pub reason: Reason,
    /// What happened, with numbers.
    pub cause: String,
}

impl ExecutorState {
    /// [`ExecutorState::Vanished`] in words.
    pub const VANISHED: &str = "the executor's processes are gone without a word (killed, or the host was restarted)";
}

/// How an executor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code (requirements §1.5), when it ended by itself.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When.
    pub at: Timestamp,
}

impl Exit {
    /// It did what it was there for, or had nothing to do.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.code.is_some_and(|code| code == 0 || ExecutorExit::of_code(code) == Some(ExecutorExit::NothingToDo))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "the executor ended with exit code {code}"),
            (None, Some(signal)) => write!(f, "the executor was ended by signal {signal}"),
            (None, None) => f.write_str("the executor ended"),
        }
    }
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// It is on the object.
    Written,
    /// There is no such executor any more.
    Gone,
}

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// A retry is useless.
    #[error("{cause}; {remedy}")]
    Permanent {
        /// For the report to Gitea.
        reason: Reason,
        /// What is wrong.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// Worth a retry.
    #[error("{cause}")]
    Transient {
        /// What happened.
        cause: String,
        /// Not before this time has passed, when the far side said so.
        retry_after: Option<Duration>,
    },
    /// Others use up what the backend may have: worth a wait, and no failure of an attempt (NEW-66).
    #[error("{cause}")]
    QuotaUsedUp {
        /// Which quota, with its numbers.
        cause: String,
        /// As in [`BackendError::Transient`].
        retry_after: Option<Duration>,
    },
    /// Another executor has the name: an older life of the assignment's id (NEW-3). It is not adopted; it is judged on
    /// its own, and the call succeeds under another epoch, or when the other one is deleted.
    #[error("executor {name} belongs to another life of this assignment (payload {found}, wanted {wanted})")]
    Conflict {
        /// The contested name.
        name: String,
        /// The payload digest on the object.
        found: String,
        /// Ours.
        wanted: String,
    },
}
