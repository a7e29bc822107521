//! The webhooks that Gitea would send, as a record.

use jiff::Timestamp;

use super::job::JobId;
use super::server::{Server, Status};

/// The event of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// About one job.
    WorkflowJob,
    /// About a whole run.
    WorkflowRun,
}

/// `action` of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Waits for a runner.
    Queued,
    /// Blocked by another job.
    Waiting,
    /// Handed to a runner.
    InProgress,
    /// Ended.
    Completed,
}

/// One delivery (§15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// When, on Gitea's clock.
    pub at: Timestamp,
    /// What it is about.
    pub event: Event,
    /// What happened.
    pub action: Action,
    /// The job, also for the event of a run.
    pub job: JobId,
    /// The job's status then.
    pub status: Status,
}

impl Server {
    pub(crate) fn announce(&mut self, job: i64, now: Timestamp, action: Action) {
        self.send(Event::WorkflowJob, job, now, action);
    }

    /// A terminal request also announces the run, if that has ended (§7.2).
    pub(crate) fn announce_run_end(&mut self, job: i64, now: Timestamp) {
        let Some(run) = self.jobs.get(&job).map(|job| job.run) else { return };
        if self.jobs.values().filter(|job| job.run == run).all(|job| job.status.is_end()) {
            self.send(Event::WorkflowRun, job, now, Action::Completed);
        }
    }

    fn send(&mut self, event: Event, job: i64, at: Timestamp, action: Action) {
        let Some(row) = self.jobs.get(&job) else { return };
        let webhook = Webhook { at, event, action, job: JobId(job), status: row.status };
        self.webhooks.push(webhook);
    }
}
