//! What a server must offer beside its RunnerService and its pages so that it can be asked.

use std::time::Duration;

use futures::future::LocalBoxFuture;
use jiff::Timestamp;

use crate::gitea::{Action, Event, JobId, JobSpec, Scope, Status, StepView};

/// The answer of a control.
pub type Answer<'a, T> = LocalBoxFuture<'a, anyhow::Result<T>>;

/// A server with its administrator's hands: the real Gitea, or its double.
pub trait Side {
    /// The instance URL, without a slash at its end.
    fn url(&self) -> String;
    /// Makes `owner/name`.
    fn create_repository<'a>(&'a self, repository: &'a str) -> Answer<'a, ()>;
    /// Gives a repository another name of the same owner.
    fn rename_repository<'a>(&'a self, repository: &'a str, name: &'a str) -> Answer<'a, ()>;
    /// Deletes a repository with all that belongs to it.
    fn delete_repository<'a>(&'a self, repository: &'a str) -> Answer<'a, ()>;
    /// The registration token of a scope.
    fn registration_token<'a>(&'a self, scope: &'a Scope) -> Answer<'a, String>;
    /// Starts one run with these jobs, all of one repository; the ids of its jobs, oldest first.
    fn push(&self, jobs: Vec<JobSpec>) -> Answer<'_, Vec<JobId>>;
    /// A user cancels the job's run.
    fn cancel(&self, job: JobId) -> Answer<'_, ()>;
    /// A user runs all jobs of the job's run again.
    fn rerun(&self, job: JobId) -> Answer<'_, ()>;
    /// A user deletes the job's run, which must have ended.
    fn delete_run(&self, job: JobId) -> Answer<'_, ()>;
    /// Takes a runner out of service or puts it back.
    fn set_service<'a>(&'a self, uuid: &'a str, service: Service) -> Answer<'a, ()>;
    /// Deletes a registration.
    fn delete_runner<'a>(&'a self, uuid: &'a str) -> Answer<'a, ()>;
    /// What the server has stored about a job.
    fn look(&self, job: JobId) -> Answer<'_, Observed>;
    /// How long it may take with what it does in the background: releasing jobs, sending webhooks.
    fn background(&self) -> Duration;
    /// Lets so much of the server's time pass, its sweeps included.
    fn let_pass(&self, time: Duration) -> Answer<'_, ()>;
    /// `ZOMBIE_TASK_TIMEOUT` as set, plus the interval of its sweep.
    fn zombie_after(&self) -> Duration;
    /// `ENDLESS_TASK_TIMEOUT` as set, plus the interval of its sweep.
    fn endless_after(&self) -> Duration;
    /// `ABANDONED_JOB_TIMEOUT` as set, plus the interval of its sweep.
    fn abandoned_after(&self) -> Duration;
}

/// Whether a runner is given jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// It is.
    On,
    /// It is disabled.
    Off,
}

/// A job as the server stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Status of the job.
    pub status: Status,
    /// Steps of its latest task.
    pub steps: Vec<StepView>,
    /// Rows of its log as stored.
    pub rows: Vec<String>,
    /// When it ended, in whole seconds; `None` or 1970 if no time was named.
    pub stopped: Option<Timestamp>,
    /// The webhooks about it so far.
    pub deliveries: Vec<Delivery>,
}

impl Observed {
    /// The statuses of its steps.
    #[must_use]
    pub fn step_statuses(&self) -> Vec<Status> {
        self.steps.iter().map(|step| step.status).collect()
    }

    /// How many webhooks of this kind were sent.
    #[must_use]
    pub fn delivered(&self, event: Event, action: Action) -> usize {
        self.deliveries.iter().filter(|delivery| **delivery == (Delivery { event, action })).count()
    }
}

/// A webhook about a job, or about its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// About what.
    pub event: Event,
    /// What happened.
    pub action: Action,
}
