//! Local jobs behind walls: own processes, own mounts, own `/tmp`, and as root a user of their own.
//!
//! Two short stages stand between the [supervisor](super::supervisor) and its executor, both of them this program:
//!
//! ```text
//! supervisor ── stage::outer ──────────── stage::inner ──exec──▶ executor
//!               new namespaces; waits     first process of the new PID namespace:
//!               and ends as it ended      mounts, gives up every right and
//!                                           some system calls
//! ```
//!
//! Invariants: what a job may see is decided by `plan`, a pure function; every file of the host is read-only to
//! it; whatever it started ends with its first process, and that one with its supervisor; nothing is started when any
//! step of this fails.

pub(super) mod accounts;
mod kernel;
mod mounts;
mod plan;
mod refusal;
pub mod stage;
mod trial;
mod users;

use std::path::PathBuf;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

pub use self::refusal::NotIsolated;
pub use self::trial::prove;
pub use self::users::UserRange;
use self::users::somebody_in;
pub(super) use self::users::{Taken, Users, owner};

/// What a job may see of the host, and how much it may start: the same for every job of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// The state folder; hidden but for the executor's own part.
    pub state: PathBuf,
    /// Folders that are empty to a job: the home of whoever runs us.
    pub hidden: Vec<PathBuf>,
    /// Files that are empty to a job: secrets outside of those folders.
    pub blank: Vec<PathBuf>,
    /// What stays in sight although it lies in a hidden folder or in one that is the job's own.
    pub shared: Vec<Shared>,
    /// Most processes and threads at a time.
    pub processes: u64,
}

/// A file or folder of the host that jobs see at its own path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Absolute.
    pub path: PathBuf,
    /// What a job may do there, beside what its user may.
    pub access: Access,
}

/// What may be done in a part of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Nothing is changed.
    ReadOnly,
    /// As the host's permissions say.
    Writable,
}

/// The walls of one executor, as its launch file holds them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Isolation {
    pub(super) walls: Walls,
    pub(super) user: JobUser,
}

/// Whose processes a job's are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JobUser {
    /// This uid and gid, nobody else's. Needs root.
    Own(u32),
    /// Ours, in a user namespace in which nobody else exists.
    Ours,
}

impl JobUser {
    /// Root gives every job a user of its own, the given one; nobody else can.
    pub(super) fn of_this_process(uid: u32) -> Self {
        if geteuid().is_root() { Self::Own(uid) } else { Self::Ours }
    }
}
