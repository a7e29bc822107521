//! Questions about Gitea's behaviour that any server can be asked: the double, a mutant of it, the real Gitea.
//!
//! What the traces do not show, the questions do. Each names the rules of [`super::Rules`] that it decides; a server
//! answers with `Ok` if it behaves as Gitea 1.26.0 does. A server is asked through [`Controls`].

mod ending;
mod fetch;
mod log;
mod update;

use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use runner_proto::runner::v1::{LogRow, Result as TaskResult, StepState, TaskState, UpdateLogRequest};
use uuid::Uuid;

use super::{Gitea, JobId, JobSpec, Status, StepSpec, StepView};
use crate::runner_client::RunnerClient;

/// What a server must offer beside its RunnerService so that it can be asked.
pub trait Controls: Send + Sync {
    /// The instance URL.
    fn url(&self) -> String;
    /// A valid global registration token.
    fn registration_token(&self) -> BoxFuture<'_, anyhow::Result<String>>;
    /// Starts a run per repository with these jobs; their ids in the same order.
    fn push(&self, jobs: Vec<JobSpec>) -> BoxFuture<'_, anyhow::Result<Vec<JobId>>>;
    /// A user cancels the job's run.
    fn cancel(&self, job: JobId) -> BoxFuture<'_, anyhow::Result<()>>;
    /// Takes a runner out of service or puts it back.
    fn set_service<'a>(&'a self, uuid: &'a str, service: Service) -> BoxFuture<'a, anyhow::Result<()>>;
    /// What the server has stored about a job.
    fn look(&self, job: JobId) -> BoxFuture<'_, anyhow::Result<Observed>>;
    /// Lets so much of the server's time pass, its sweeps included.
    fn let_pass(&self, time: Duration) -> BoxFuture<'_, anyhow::Result<()>>;
    /// `ZOMBIE_TASK_TIMEOUT` as set, plus the interval of its sweep.
    fn zombie_after(&self) -> Duration;
    /// `ENDLESS_TASK_TIMEOUT` as set, plus the interval of its sweep.
    fn endless_after(&self) -> Duration;
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
    /// Rows of its log as stored; 1.26 cannot show an empty one.
    pub rows: Vec<String>,
    /// When it ended, in whole seconds.
    pub stopped: Option<Timestamp>,
    /// `workflow_job` webhooks with `completed`; `None` if the server's webhooks are not received.
    pub completed_webhooks: Option<usize>,
}

/// One question.
pub struct Question {
    /// What is asked, in a few words.
    pub name: &'static str,
    /// The rules that the answer decides.
    pub rules: &'static [&'static str],
    /// Asks; an error is an answer that Gitea 1.26.0 does not give.
    pub ask: for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, anyhow::Result<()>>,
}

/// All questions.
pub fn questions() -> impl Iterator<Item = &'static Question> {
    [fetch::QUESTIONS, update::QUESTIONS, log::QUESTIONS, ending::QUESTIONS].into_iter().flatten()
}

/// Asks one question.
///
/// # Errors
///
/// If the answer is not Gitea's.
pub async fn ask(question: &Question, server: &dyn Controls) -> anyhow::Result<()> {
    let bench = Bench { server, label: format!("q-{}", Uuid::new_v4().simple()) };
    (question.ask)(&bench).await.with_context(|| question.name.to_owned())
}

/// A server with a label of its own for one question, so that questions do not disturb each other.
pub struct Bench<'a> {
    server: &'a dyn Controls,
    label: String,
}

/// A task that a question holds.
struct Held {
    runner: RunnerClient,
    job: JobId,
    task: i64,
}

impl Bench<'_> {
    fn second_label(&self) -> String {
        format!("{}-b", self.label)
    }

    /// A new registration.
    async fn runner(&self, labels: &[&str]) -> anyhow::Result<RunnerClient> {
        let token = self.server.registration_token().await?;
        Ok(RunnerClient::anonymous(&self.server.url()).register("question", &token, labels).await?)
    }

    /// A job with this many steps for the question's label.
    fn job(&self, key: &str, steps: usize) -> JobSpec {
        JobSpec::new(key).runs_on([&self.label]).steps((0..steps).map(|number| StepSpec::run(format!("echo {number}"))))
    }

    /// A task with three steps in the hands of a new runner.
    async fn held(&self) -> anyhow::Result<Held> {
        let runner = self.runner(&[&self.label]).await?;
        let job = *self.server.push(vec![self.job("j", 3)]).await?.first().context("one job was pushed")?;
        let task = runner.take().await?.context("the pushed job is handed out")?.id;
        Ok(Held { runner, job, task })
    }

    async fn look(&self, held: &Held) -> anyhow::Result<Observed> {
        self.server.look(held.job).await
    }
}

impl Held {
    /// The task's state with this result and these steps, and an end if there is a result.
    fn state(&self, result: TaskResult, steps: Vec<StepState>) -> TaskState {
        let stopped_at = (result != TaskResult::Unspecified).then(|| at(9)).into();
        TaskState { id: self.task, result: result.into(), stopped_at, steps, ..Default::default() }
    }

    async fn heartbeat(&self) -> anyhow::Result<TaskResult> {
        self.report(TaskResult::Unspecified, vec![]).await
    }

    async fn report(&self, result: TaskResult, steps: Vec<StepState>) -> anyhow::Result<TaskResult> {
        Ok(self.runner.update(self.state(result, steps)).await?)
    }

    /// Sends rows; the number stored.
    async fn log(&self, index: i64, rows: &[&str], end: End) -> anyhow::Result<i64> {
        Ok(self.runner.update_log(&self.log_request(index, rows, end)).await?)
    }

    fn log_request(&self, index: i64, rows: &[&str], end: End) -> UpdateLogRequest {
        let row = |text: &&str| LogRow { time: Some(at(5)).into(), content: (*text).into(), ..Default::default() };
        let (rows, no_more) = (rows.iter().map(row).collect(), end == End::NoMore);
        UpdateLogRequest { task_id: self.task, index, rows, no_more, ..Default::default() }
    }
}

/// Whether a log call is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    More,
    NoMore,
}

/// A moment in 2026.
fn at(second: i64) -> buffa_types::google::protobuf::Timestamp {
    buffa_types::google::protobuf::Timestamp::from_unix_secs(1_780_000_000 + second)
}

/// A step that runs.
fn running(id: i64, log_index: i64, log_length: i64) -> StepState {
    StepState { id, started_at: Some(at(1)).into(), log_index, log_length, ..Default::default() }
}

/// A step that succeeded.
fn finished(id: i64, log_index: i64, log_length: i64) -> StepState {
    let result = TaskResult::Success.into();
    StepState { result, stopped_at: Some(at(2)).into(), ..running(id, log_index, log_length) }
}

impl Controls for Gitea {
    fn url(&self) -> String {
        self.url()
    }

    fn registration_token(&self) -> BoxFuture<'_, anyhow::Result<String>> {
        Box::pin(async { Ok(self.registration_token()) })
    }

    fn push(&self, jobs: Vec<JobSpec>) -> BoxFuture<'_, anyhow::Result<Vec<JobId>>> {
        Box::pin(async { Ok(self.push(jobs)) })
    }

    fn cancel(&self, job: JobId) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            self.cancel(job);
            Ok(())
        })
    }

    fn set_service<'a>(&'a self, uuid: &'a str, service: Service) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            match service {
                Service::On => self.enable_runner(uuid),
                Service::Off => self.disable_runner(uuid),
            }
            Ok(())
        })
    }

    fn look(&self, job: JobId) -> BoxFuture<'_, anyhow::Result<Observed>> {
        Box::pin(async move {
            let state = self.find(job).context("the job is there")?;
            let rows = state.rows().into_iter().map(str::to_owned).collect();
            let completed_webhooks = Some(state.completed_webhooks);
            Ok(Observed { status: state.status, steps: state.steps, rows, stopped: state.stopped, completed_webhooks })
        })
    }

    fn let_pass(&self, time: Duration) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            self.advance(time);
            Ok(())
        })
    }

    fn zombie_after(&self) -> Duration {
        self.shared.look(|world| world.server.settings.zombie_timeout + world.server.settings.zombie_sweep)
    }

    fn endless_after(&self) -> Duration {
        self.shared.look(|world| world.server.settings.endless_timeout + world.server.settings.endless_sweep)
    }
}
