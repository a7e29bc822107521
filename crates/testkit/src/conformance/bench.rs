//! The place where one question is asked: a repository and a label of its own, and the words most questions use.

use std::time::Duration;

use anyhow::{Context as _, bail};
use runner_proto::runner::v1::{
    FetchTaskResponse, LogRow, Result as TaskResult, StepState, Task, TaskState, UpdateLogRequest,
};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Observed, Question, Side};
use crate::gitea::{JobId, JobSpec, Scope, StepSpec};
use crate::runner_client::{CallError, RunnerClient};

/// The owner of nearly all repositories.
pub(super) const OWNER: &str = "questions";
/// Between two looks at what a server does in the background.
const PAUSE: Duration = Duration::from_millis(100);

/// Asks one question.
///
/// # Errors
///
/// If the answer is not the contract's, or the question cannot be asked.
pub async fn ask(question: &Question, side: &dyn Side) -> anyhow::Result<()> {
    let unique = Uuid::new_v4().simple().to_string();
    let bench = Bench { side, repository: format!("{OWNER}/q{unique}"), label: format!("q-{unique}") };
    side.create_repository(&bench.repository).await?;
    (question.ask)(&bench).await
}

/// A server with a repository and a label of its own for one question: its runners belong to the repository, so that
/// neither jobs nor tasks versions of other questions are seen.
pub struct Bench<'a> {
    pub(super) side: &'a dyn Side,
    pub(super) repository: String,
    pub(super) label: String,
}

/// A task that a question holds.
pub(super) struct Held {
    pub(super) runner: RunnerClient,
    pub(super) job: JobId,
    pub(super) task: Task,
}

impl Bench<'_> {
    pub(super) fn second_label(&self) -> String {
        format!("{}-b", self.label)
    }

    /// A new registration for this question's repository.
    pub(super) async fn runner(&self, labels: &[&str]) -> anyhow::Result<RunnerClient> {
        self.runner_of(&Scope::Repository(self.repository.clone()), labels).await
    }

    pub(super) async fn runner_of(&self, scope: &Scope, labels: &[&str]) -> anyhow::Result<RunnerClient> {
        let token = self.side.registration_token(scope).await?;
        Ok(RunnerClient::anonymous(&self.side.url()).register("question", &token, labels).await?)
    }

    /// A job with this many steps for the question's label.
    pub(super) fn job(&self, key: &str, steps: usize) -> JobSpec {
        let steps = (0..steps).map(|number| StepSpec::run(format!("echo {number}")));
        JobSpec::new(key).repository(&self.repository).runs_on([&self.label]).steps(steps)
    }

    /// Starts a run with one job.
    pub(super) async fn push_one(&self, job: JobSpec) -> anyhow::Result<JobId> {
        self.side.push(vec![job]).await?.first().copied().context("one job was pushed")
    }

    /// A task with three steps in the hands of a new runner.
    pub(super) async fn held(&self) -> anyhow::Result<Held> {
        self.hold(self.job("j", 3)).await
    }

    /// This job in the hands of a new runner.
    pub(super) async fn hold(&self, job: JobSpec) -> anyhow::Result<Held> {
        let runner = self.runner(&[&self.label]).await?;
        let job = self.push_one(job).await?;
        let task = runner.take().await?.context("the pushed job is handed out")?;
        Ok(Held { runner, job, task })
    }

    pub(super) async fn look(&self, held: &Held) -> anyhow::Result<Observed> {
        self.side.look(held.job).await
    }
}

impl Held {
    /// The task's state with this result and these steps, and an end if there is a result.
    pub(super) fn state(&self, result: TaskResult, steps: Vec<StepState>) -> TaskState {
        let stopped_at = (result != TaskResult::Unspecified).then(|| at(9)).into();
        TaskState { id: self.task.id, result: result.into(), stopped_at, steps, ..Default::default() }
    }

    pub(super) async fn heartbeat(&self) -> anyhow::Result<TaskResult> {
        self.report(TaskResult::Unspecified, vec![]).await
    }

    pub(super) async fn report(&self, result: TaskResult, steps: Vec<StepState>) -> anyhow::Result<TaskResult> {
        Ok(self.runner.update(self.state(result, steps)).await?)
    }

    /// Sends rows; the number stored.
    pub(super) async fn log(&self, index: i64, rows: &[&str], end: End) -> anyhow::Result<i64> {
        Ok(self.runner.update_log(&self.log_request(index, rows, end)).await?)
    }

    pub(super) fn log_request(&self, index: i64, rows: &[&str], end: End) -> UpdateLogRequest {
        let row = |text: &&str| LogRow { time: Some(at(5)).into(), content: (*text).into(), ..Default::default() };
        let (rows, no_more) = (rows.iter().map(row).collect(), end == End::NoMore);
        UpdateLogRequest { task_id: self.task.id, index, rows, no_more, ..Default::default() }
    }
}

/// Whether a log call is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    More,
    NoMore,
}

/// Fetches until a task comes that the server releases in the background.
pub(super) async fn take_released(bench: &Bench<'_>, runner: &RunnerClient) -> anyhow::Result<Task> {
    let end = Instant::now() + bench.side.background();
    loop {
        match runner.take().await? {
            Some(task) => return Ok(task),
            None if Instant::now() >= end => bail!("no job was released"),
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Looks until something holds that the server does in the background, or should have done.
pub(super) async fn settles(
    bench: &Bench<'_>,
    job: JobId,
    holds: impl Fn(&Observed) -> bool,
) -> anyhow::Result<Observed> {
    let end = Instant::now() + bench.side.background();
    loop {
        let seen = bench.side.look(job).await?;
        if holds(&seen) || Instant::now() >= end {
            return Ok(seen);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A key of a task's context that is a text.
pub(super) fn context(task: &Task, key: &str) -> Option<String> {
    task.context.as_option()?.fields.get(key)?.as_str().map(str::to_owned)
}

/// The text of the workflow in a task.
pub(super) fn payload(task: &Task) -> String {
    String::from_utf8_lossy(task.workflow_payload.as_deref().unwrap_or_default()).into_owned()
}

/// The tasks version that a runner sees.
pub(super) async fn version(runner: &RunnerClient) -> Result<i64, CallError> {
    let answer: FetchTaskResponse = runner.fetch(0).await?;
    Ok(answer.tasks_version)
}

/// A moment in 2026.
pub(super) fn at(second: i64) -> buffa_types::google::protobuf::Timestamp {
    buffa_types::google::protobuf::Timestamp::from_unix_secs(1_780_000_000 + second)
}

/// A step that runs.
pub(super) fn running(id: i64, log_index: i64, log_length: i64) -> StepState {
    StepState { id, started_at: Some(at(1)).into(), log_index, log_length, ..Default::default() }
}

/// A step that succeeded.
pub(super) fn finished(id: i64, log_index: i64, log_length: i64) -> StepState {
    let result = TaskResult::Success.into();
    StepState { result, stopped_at: Some(at(2)).into(), ..running(id, log_index, log_length) }
}
