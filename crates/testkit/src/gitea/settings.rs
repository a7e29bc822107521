//! Timeouts and first numbers of the server.

use std::time::Duration;

/// How the server is set up; `Settings::default()` is Gitea's own (§6).
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `ZOMBIE_TASK_TIMEOUT`: a task silent for so long is failed. Default 10 minutes.
    pub zombie_timeout: Duration,
    /// How often the zombie sweep runs. Default 5 minutes.
    pub zombie_sweep: Duration,
    /// `ENDLESS_TASK_TIMEOUT`: a task may run so long, counted from its fetch. Default 3 hours.
    pub endless_timeout: Duration,
    /// How often the endless sweep runs. Default 30 minutes.
    pub endless_sweep: Duration,
    /// `ABANDONED_JOB_TIMEOUT`: a job that nobody fetches is cancelled. Default 24 hours.
    pub abandoned_timeout: Duration,
    /// How often the abandoned sweep runs. Default 6 hours.
    pub abandoned_sweep: Duration,
    /// Seconds of Gitea per real second. Default 1.
    pub clock_rate: f64,
    /// An empty answer to FetchTask is held so long in case a job comes (no release does that yet). Default none.
    pub long_poll: Option<Duration>,
    /// `X-Gitea-Actions-Capabilities` of the Declare reply (1.27 sends `job-summary`). Default none.
    pub capabilities_header: Option<&'static str>,
    /// The global tasks version at the start; 0 is an empty table. Default 0.
    pub first_version: i64,
    /// The number of the first runner. Default 1.
    pub first_runner: i64,
    /// The number of the first task. Default 1.
    pub first_task: i64,
    /// The number of the first run. Default 1.
    pub first_run: i64,
}

impl Default for Settings {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        Self {
            zombie_timeout: Duration::from_secs(10 * MINUTE),
            zombie_sweep: Duration::from_secs(5 * MINUTE),
            endless_timeout: Duration::from_secs(3 * HOUR),
            endless_sweep: Duration::from_secs(30 * MINUTE),
            abandoned_timeout: Duration::from_secs(24 * HOUR),
            abandoned_sweep: Duration::from_secs(6 * HOUR),
            clock_rate: 1.0,
            long_poll: None,
            capabilities_header: None,
            first_version: 0,
            first_runner: 1,
            first_task: 1,
            first_run: 1,
        }
    }
}
