//! What an executor and the facade say to each other beside RunnerService (NEW-105, NEW-107, NEW-158).
//!
//! Every call carries the assignment id in `x-runner-uuid` and the capability in `x-runner-token`, over the same mTLS
//! connection as everything else. Nothing here is ever a job result; an interruption only forbids SUCCESS.

use serde::{Deserialize, Serialize};

/// `GET`: 200 once assignment, capability and identity are right and the facade is ready; else 401 or 503 with a
/// [`NotReady`] body (NEW-105).
pub const READY_PATH: &str = "/executor/v1/ready";

/// `POST` of a [`Report`], answered by a [`Reply`] (NEW-107).
pub const REPORT_PATH: &str = "/executor/v1/report";

/// Header that carries the assignment id on every call of an executor.
pub const ASSIGNMENT_HEADER: &str = "x-runner-uuid";

/// Header that carries the capability on every call of an executor.
pub const CAPABILITY_HEADER: &str = "x-runner-token";

/// The one word that says what is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReady {
    /// `assignment`, `capability`, `identity` or `facade`.
    pub missing: String,
}

/// What an executor tells about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Report {
    /// The exact SVID is there and the facade was found ready.
    Hello,
    /// The official runner was started.
    RunnerStarted,
    /// Every 30 s while the runner lives, so that silence means something.
    KeepAlive,
    /// SIGTERM reached the executor while the runner lived; sent before the signal is passed on (NEW-158).
    Interrupted {
        /// What is known of the cause, for the job's log.
        cause: String,
    },
    /// The last word.
    Goodbye {
        /// The runner's exit code; none when it never started or a signal ended it.
        runner_exit: Option<i32>,
        /// An interruption happened (counts like [`Report::Interrupted`] while no final state was accepted).
        interrupted: bool,
        /// Every final report of the runner was delivered.
        delivered: bool,
    },
}

/// The facade's answer to a [`Report`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// False: end the runner in order and say goodbye (the assignment has ended or belongs to a newer epoch).
    pub go_on: bool,
}
