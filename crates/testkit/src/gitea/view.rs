//! What a test can see of a job, and what a person would see on its page.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runner_proto::runner::v1::Result as TaskResult;

use super::job::JobId;
use super::server::{Server, Status};
use super::webhook::{Action, Event};

/// A job as Gitea stores it, with its latest attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobState {
    /// The job.
    pub job: JobId,
    /// Its run.
    pub run: i64,
    /// Its status.
    pub status: Status,
    /// The end result; `None` while it has not ended.
    pub result: Option<TaskResult>,
    /// The task of the latest attempt.
    pub task: Option<i64>,
    /// The tasks of all attempts, oldest first.
    pub attempts: Vec<i64>,
    /// The runner that holds the latest attempt, by uuid.
    pub runner: Option<String>,
    /// The steps of the latest attempt.
    pub steps: Vec<StepView>,
    /// The log of the latest attempt.
    pub log: Vec<LogLine>,
    /// Whether that log is sealed.
    pub archived: bool,
    /// The outputs that arrived.
    pub outputs: BTreeMap<String, String>,
    /// When the latest attempt was fetched.
    pub started: Option<Timestamp>,
    /// When it ended, in whole seconds; 1970 if the terminal update named no time.
    pub stopped: Option<Timestamp>,
    /// What the zombie sweep looks at.
    pub updated: Option<Timestamp>,
    /// `workflow_job` webhooks with `completed` so far.
    pub completed_webhooks: usize,
    /// UpdateTask calls after the end: each sent those webhooks again.
    pub updates_after_end: u32,
}

impl JobState {
    /// The rows of the log, without their times.
    #[must_use]
    pub fn rows(&self) -> Vec<&str> {
        self.log.iter().map(|line| line.content.as_str()).collect()
    }

    /// Where the job page shows each row (§10.1).
    #[must_use]
    pub fn page(&self) -> Page {
        let shown = |status: Status| matches!(status, Status::Running | Status::Success | Status::Failure);
        let ran = |step: &StepView| matches!(step.status, Status::Success | Status::Failure);
        let rows = |from: i64, to: i64| {
            let clamp = |at: i64| usize::try_from(at).unwrap_or_default().min(self.log.len());
            let (from, to) = (clamp(from), clamp(to));
            self.log[from.min(to)..to].iter().map(|line| line.content.clone()).collect::<Vec<_>>()
        };
        let end = i64::try_from(self.log.len()).unwrap_or(i64::MAX);
        let Some(first) = self.steps.iter().find(|step| shown(step.status)) else {
            let steps = vec![Vec::new(); self.steps.len()];
            return Page { set_up: rows(0, end), steps, complete: Vec::new() };
        };
        let last_ran = self.steps.iter().rposition(ran);
        let completes =
            last_ran.is_some_and(|last| self.steps[last].status == Status::Failure || last + 1 == self.steps.len());
        let after = first.log_index + self.steps.iter().map(|step| step.log_length).sum::<i64>();
        Page {
            set_up: rows(0, first.log_index),
            steps: self.steps.iter().map(|step| rows(step.log_index, step.log_index + step.log_length)).collect(),
            complete: if completes { rows(after, end) } else { Vec::new() },
        }
    }
}

/// A step as Gitea stores it. Times are whole seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepView {
    /// Its status.
    pub status: Status,
    /// When it started.
    pub started: Option<Timestamp>,
    /// When it stopped.
    pub stopped: Option<Timestamp>,
    /// Its first row in the log.
    pub log_index: i64,
    /// How many rows are its own.
    pub log_length: i64,
}

/// A stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The time the runner gave it.
    pub time: Option<Timestamp>,
    /// Its text as stored.
    pub content: String,
}

/// The job page: rows under "Set up job", under each step, and under "Complete job".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// "Set up job".
    pub set_up: Vec<String>,
    /// The user's steps.
    pub steps: Vec<Vec<String>>,
    /// "Complete job".
    pub complete: Vec<String>,
}

impl Server {
    pub(crate) fn view(&self, job: i64) -> Option<JobState> {
        let row = self.jobs.get(&job)?;
        let task = row.attempts.last().and_then(|id| self.tasks.get(id));
        let about = |hook: &&super::webhook::Webhook| hook.job.0 == job && hook.event == Event::WorkflowJob;
        let completed = self.webhooks.iter().filter(about).filter(|hook| hook.action == Action::Completed).count();
        let steps = task.map(|task| {
            let view = |step: &super::server::StepRow| StepView {
                status: step.status,
                started: step.started,
                stopped: step.stopped,
                log_index: step.log_index,
                log_length: step.log_length,
            };
            task.steps.iter().map(view).collect()
        });
        let line = |(time, content): &(Option<Timestamp>, String)| LogLine { time: *time, content: content.clone() };
        Some(JobState {
            job: JobId(job),
            run: row.run,
            status: row.status,
            result: row.status.is_end().then(|| row.status.result()),
            task: task.map(|task| task.id),
            attempts: row.attempts.clone(),
            runner: task.and_then(|task| self.runners.get(&task.runner)).map(|runner| runner.uuid.clone()),
            steps: steps.unwrap_or_default(),
            log: task.map(|task| task.log.iter().map(line).collect()).unwrap_or_default(),
            archived: task.is_some_and(|task| task.archived),
            outputs: task.map(|task| task.outputs.clone()).unwrap_or_default(),
            started: row.started,
            stopped: row.stopped,
            updated: task.map(|task| task.updated),
            completed_webhooks: completed,
            updates_after_end: task.map_or(0, |task| task.updates_after_end),
        })
    }
}
