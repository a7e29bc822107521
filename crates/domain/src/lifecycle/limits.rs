//! How long each state may last (requirements §1.4 and §7.1).

use jiff::SignedDuration;

/// Durations that end a wait. The defaults are those of requirements §1.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the fetch until a slot must be there.
    pub queue_wait: SignedDuration,
    /// Gitea ends every task this long after its fetch (its `ENDLESS_TASK_TIMEOUT`).
    pub endless: SignedDuration,
    /// A task is not started when less than this is left until then (NEW-31).
    pub least_budget: SignedDuration,
    /// From the object until its executor runs.
    pub pending: SignedDuration,
    /// From the running executor until it has its SVID.
    pub identity: SignedDuration,
    /// From the SVID until it asks for its task.
    pub claim: SignedDuration,
    /// From the claim until the runner's first update.
    pub first_update: SignedDuration,
    /// A claimed executor may be silent for this long, its keep-alive included.
    pub silence: SignedDuration,
    /// From an announced interruption to the end.
    pub interrupted: SignedDuration,
    /// From Gitea's cancel until we end the task or, where it has ended, close the log ourselves.
    pub cancel_grace: SignedDuration,
    /// From the accepted end until the executor is removed.
    pub terminal_grace: SignedDuration,
    /// Pulse before the runner's first UpdateTask.
    pub heartbeat: SignedDuration,
    /// Pulse for a claimed task whose executor is silent.
    pub heartbeat_silent: SignedDuration,
    /// A task that starts within this time has no row about its wait.
    pub quiet_start: SignedDuration,
    /// The least time between two rows about a wait.
    pub quiet: SignedDuration,
    /// After a start of the controller nobody's silence is judged (NEW-62).
    pub start_grace: SignedDuration,
    /// Launches that may fail before the task is given up (NEW-46).
    pub launches: u32,
    /// Executors that may die before the claim and are replaced.
    pub relaunches: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let secs = SignedDuration::from_secs;
        Self {
            queue_wait: secs(60 * 60),
            endless: secs(3 * 60 * 60),
            least_budget: Self::LEAST_BUDGET,
            pending: secs(15 * 60),
            identity: secs(5 * 60),
            claim: secs(2 * 60),
            first_update: secs(2 * 60),
            silence: secs(5 * 60),
            interrupted: secs(6 * 60),
            cancel_grace: secs(60),
            terminal_grace: secs(60),
            heartbeat: secs(5),
            heartbeat_silent: secs(30),
            quiet_start: secs(5),
            quiet: secs(30),
            start_grace: secs(2 * 60),
            launches: 30,
            relaunches: 3,
        }
    }
}

impl Limits {
    /// What must be left of Gitea's endless limit when a job starts (NEW-31).
    pub const LEAST_BUDGET: SignedDuration = SignedDuration::from_mins(10);

    /// The pause before the launch that follows the `deaths`-th dead executor: 0, 5, 20 s.
    #[must_use]
    pub fn relaunch_pause(deaths: u32) -> SignedDuration {
        SignedDuration::from_secs(match deaths {
            0 | 1 => 0,
            2 => 5,
            _ => 20,
        })
    }
}
