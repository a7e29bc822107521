//! Why an executor ended, and its exit code (requirements §1.5), which never says anything about the job's result.

use std::process::ExitCode;

use domain::executor_api::ExecutorExit;

/// Why the executor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Missing or malformed launch environment.
    Usage,
    /// The assigned X.509-SVID did not come in time.
    NoIdentity,
    /// The facade could not be reached, or did not find us right, in time.
    NoFacade,
    /// There is no work for this executor.
    NothingToDo,
    /// The runner could not be started.
    NotStarted,
    /// A signal came before the runner was started.
    Interrupted {
        /// The number of that signal.
        signal: i32,
    },
    /// The runner ended.
    Runner(RunnerEnd),
}

/// How the runner process ended, and what became of its last words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunnerEnd {
    /// Its exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    /// Everything it reported at its end was delivered.
    pub(crate) delivered: Delivered,
}

/// What became of the final reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// Nothing is owed to the facade.
    All,
    /// The spool gave up (NEW-112).
    NotAll,
}

impl Exit {
    /// The process exit code of this end.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage => ExecutorExit::Usage.code(),
            Self::NoIdentity => ExecutorExit::NoIdentity.code(),
            Self::NoFacade => ExecutorExit::NoFacade.code(),
            Self::NothingToDo => ExecutorExit::NothingToDo.code(),
            Self::NotStarted => ExecutorExit::NotStarted.code(),
            Self::Interrupted { signal } => by_signal(*signal),
            Self::Runner(RunnerEnd { delivered: Delivered::NotAll, .. }) => ExecutorExit::ReportLost.code(),
            Self::Runner(RunnerEnd { code: Some(code), .. }) => u8::try_from(*code).unwrap_or(1),
            Self::Runner(RunnerEnd { signal: Some(signal), .. }) => by_signal(*signal),
            Self::Runner(RunnerEnd { .. }) => 1,
        }
    }

    /// The executor could not do its work. A runner that fails is none of its failures.
    pub(crate) fn is_failure(&self) -> bool {
        match self {
            Self::Usage | Self::NoIdentity | Self::NoFacade | Self::NotStarted => true,
            Self::NothingToDo | Self::Interrupted { .. } => false,
            Self::Runner(end) => end.delivered == Delivered::NotAll,
        }
    }

    /// One word for the termination message and the log.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::NoIdentity => "no_identity",
            Self::NoFacade => "no_facade",
            Self::NothingToDo => "nothing_to_do",
            Self::NotStarted => "runner_not_started",
            Self::Interrupted { .. } => "interrupted_before_start",
            Self::Runner(RunnerEnd { delivered: Delivered::NotAll, .. }) => "report_not_delivered",
            Self::Runner(_) => "runner_ended",
        }
    }
}

impl From<&Exit> for ExitCode {
    fn from(exit: &Exit) -> Self {
        Self::from(exit.code())
    }
}

/// The shell's convention: 128 and the signal's number.
fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(code: Option<i32>, signal: Option<i32>, delivered: Delivered) -> Exit {
        Exit::Runner(RunnerEnd { code, signal, delivered })
    }

    /// NEW-119: the table of §1.5.
    #[test]
    fn codes() {
        for (exit, code) in [
            (Exit::Usage, 2),
            (Exit::NoIdentity, 10),
            (Exit::NoFacade, 11),
            (Exit::NothingToDo, 12),
            (Exit::NotStarted, 13),
            (Exit::Interrupted { signal: 15 }, 143),
            (runner(Some(0), None, Delivered::All), 0),
            (runner(Some(1), None, Delivered::All), 1),
            (runner(None, Some(9), Delivered::All), 137),
            (runner(Some(0), None, Delivered::NotAll), 14),
            (runner(None, None, Delivered::All), 1),
        ] {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }
}
