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

/// Header on the facade's replies of Gitea's artifact services: the base URL under which Gitea names itself in them. The
/// executor's proxy needs it (NEW-110) and keeps it from the job.
pub const GITEA_BASE_HEADER: &str = "x-gdr-gitea-base";

/// How an executor ends when its end is not its runner's (requirements §1.5); every other exit code is the runner's own,
/// or 128 and the number of a signal. None says anything about the job's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExecutorExit {
    /// Missing or malformed launch environment (EXE-1). A runner that crashed ends with 2 as well.
    Usage = 2,
    /// The assigned X.509-SVID did not come in time (NEW-111).
    NoIdentity = 10,
    /// The facade could not be reached, or did not find the executor right, in time (EXE-4).
    NoFacade = 11,
    /// `unauthenticated`: there is no work for this executor (NEW-160).
    NothingToDo = 12,
    /// The runner could not be started.
    NotStarted = 13,
    /// A final report was not delivered before the spool's end (NEW-112).
    ReportLost = 14,
}

impl ExecutorExit {
    const ALL: [Self; 6] =
        [Self::Usage, Self::NoIdentity, Self::NoFacade, Self::NothingToDo, Self::NotStarted, Self::ReportLost];

    /// The code of the process.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What the code of a process means; none when it is the runner's own or a signal's.
    #[must_use]
    pub fn of_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|exit| i32::from(exit.code()) == code)
    }
}

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
        /// Why there never was a runner; none when there was one. Executors of before this field leave it out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        never_started: Option<NeverStarted>,
    },
}

/// Why an executor never had a runner. Text of the executor, no secret in it; readers bound it all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeverStarted {
    /// One word, as in the executor's log.
    pub reason: String,
    /// One sentence for people; may be empty.
    pub detail: String,
}

/// The facade's answer to a [`Report`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// False: end the runner in order and say goodbye (the assignment has ended or belongs to a newer epoch).
    pub go_on: bool,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// NEW-107: the last word of an executor that never had a runner, and that of an older executor.
    #[test]
    fn goodbyes() {
        let old = r#"{"event":"goodbye","runner_exit":0,"interrupted":false,"delivered":true}"#;
        let goodbye =
            Report::Goodbye { runner_exit: Some(0), interrupted: false, delivered: true, never_started: None };
        assert_eq!(serde_json::from_str::<Report>(old).unwrap(), goodbye);
        assert_eq!(serde_json::to_string(&goodbye).unwrap(), old);
        let never_started = NeverStarted { reason: "runner_not_started".to_owned(), detail: "no file".to_owned() };
        let goodbye = Report::Goodbye {
            runner_exit: None,
            interrupted: false,
            delivered: true,
            never_started: Some(never_started),
        };
        let text = serde_json::to_string(&goodbye).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), goodbye);
    }

    /// NEW-119: the table of §1.5.
    #[test]
    fn exit_codes() {
        let codes = ExecutorExit::ALL.map(ExecutorExit::code);
        assert_eq!(codes, [2, 10, 11, 12, 13, 14]);
        for exit in ExecutorExit::ALL {
            assert_eq!(ExecutorExit::of_code(i32::from(exit.code())), Some(exit));
        }
        for other in [0, 1, 15, 143, -1, 256 + 10] {
            assert_eq!(ExecutorExit::of_code(other), None, "{other}");
        }
    }
}
