//! Time limits of the executor (requirements §1.4). Settings only in tests: an operator has no reason to change them.

use std::time::Duration;

pub use crate::runner::orphans::strays::StrayGraces;
pub use crate::spool::Patience;
pub use crate::supervise::Graces;

/// Every limit of the executor, with the values of the requirements as default.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until the facade found us ready, counted from the SVID (EXE-4).
    pub ready: Duration,
    /// Between two questions for readiness.
    pub ready_interval: Duration,
    /// One question for readiness.
    pub ready_try: Duration,
    /// How long a Declare is repeated (NEW-164): the claim limit.
    pub declare: Duration,
    /// How long a call that is not final is repeated before the runner hears of the failure.
    pub hold: Duration,
    /// How long nothing may move in a streamed exchange.
    pub no_progress: Duration,
    /// Between two keep-alives (NEW-107).
    pub keep_alive: Duration,
    /// One report to the facade.
    pub report: Duration,
    /// How long a goodbye is tried.
    pub goodbye: Duration,
    /// When a runner is ended.
    pub graces: Graces,
    /// How long final reports are kept.
    pub patience: Patience,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ready: Duration::from_secs(120),
            ready_interval: Duration::from_millis(250),
            ready_try: Duration::from_secs(2),
            declare: Duration::from_secs(120),
            hold: Duration::from_secs(10),
            no_progress: forward::NO_PROGRESS,
            keep_alive: Duration::from_secs(30),
            report: Duration::from_secs(5),
            goodbye: Duration::from_secs(15),
            graces: Graces::default(),
            patience: Patience::default(),
        }
    }
}
