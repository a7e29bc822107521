//! One job: its steps in order, what ends it early, and the final report.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runner_proto::runner::v1::{Result as TaskResult, Task, TaskState, UpdateLogRequest, UpdateTaskRequest};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, in_words};
use super::desk::Desk;
use super::places::Places;
use super::reporter::{Reporter, name};
use super::script::{Manners, Word, of_payload};
use super::{VERSION, proxy};

/// The true end of a job that somebody ended; otherwise it is the [`name`] of its result.
pub(crate) const CUT_OFF: &str = "CUT_OFF";

/// How one step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepEnd {
    Done(TaskResult),
    /// Somebody ended the job.
    CutOff,
}

struct Job<'a> {
    task: &'a Task,
    desk: &'a Desk,
    calls: &'a Calls,
    places: &'a Places,
    reporter: &'a Reporter<'a>,
    terminated: CancellationToken,
    on_cancel: Manners,
    on_sigterm: Manners,
}

/// Runs a task to its final report.
pub(super) async fn run(
    task: Task,
    calls: &Calls,
    desk: &Desk,
    places: &Places,
    terminated: CancellationToken,
) -> anyhow::Result<()> {
    desk.say(task.id, "task", &places.name).await;
    let payload = task.workflow_payload.clone().unwrap_or_default();
    let steps = of_payload(&payload)?;
    let reporter = Reporter::new(calls, desk, task.id, steps.len());
    reporter.row(format!("{}(version:{VERSION}) received task {} of job", places.name, task.id));
    reporter.row("workflow prepared");
    let job = Job {
        task: &task,
        desk,
        calls,
        places,
        reporter: &reporter,
        terminated,
        on_cancel: Manners::Obey,
        on_sigterm: Manners::Obey,
    };
    let done = CancellationToken::new();
    let steps = async {
        let (result, end) = job.steps(&steps).await;
        desk.say(task.id, "ended", end).await;
        done.cancel();
        result
    };
    // The official runner too waits for its loop before it reports the end.
    let ((), result) = tokio::join!(reporter.keep_reporting(&done), steps);
    reporter.close(result, places.close_timeout * 3).await;
    Ok(())
}

impl Job<'_> {
    /// The job's result as it is reported, and its true end in a word. A job that was cut off is reported as SUCCESS, as
    /// the official runner does.
    async fn steps(mut self, steps: &[Vec<Word>]) -> (TaskResult, &'static str) {
        let mut result = TaskResult::Success;
        for (at, words) in steps.iter().enumerate() {
            self.desk.say(self.task.id, "step", &at.to_string()).await;
            self.reporter.step_starts(at);
            match self.step(words).await {
                StepEnd::Done(TaskResult::Success) => self.reporter.step_ends(at, TaskResult::Success),
                StepEnd::Done(failure) => {
                    self.reporter.step_ends(at, failure);
                    self.reporter.not_run(TaskResult::Skipped);
                    result = failure;
                    break;
                }
                StepEnd::CutOff => {
                    self.reporter.row("##[error]this step has been cancelled: Process completed with exit code -1.");
                    self.reporter.step_ends(at, TaskResult::Failure);
                    self.reporter.not_run(TaskResult::Cancelled);
                    self.reporter.row("Job succeeded");
                    self.reporter.row("context canceled");
                    return (TaskResult::Success, CUT_OFF);
                }
            }
        }
        self.reporter.row(if result == TaskResult::Success { "Job succeeded" } else { "Job failed" });
        (result, name(result))
    }

    async fn step(&mut self, words: &[Word]) -> StepEnd {
        for word in words {
            let (cancelled, terminated) = (self.reporter.cancelled.clone(), self.terminated.clone());
            let (on_cancel, on_sigterm) = (self.on_cancel, self.on_sigterm);
            let manners = tokio::select! {
                passed = self.word(word) => if passed { continue } else { return StepEnd::Done(TaskResult::Failure) },
                () = cancelled.cancelled() => on_cancel,
                () = terminated.cancelled(), if on_sigterm != Manners::Ignore => on_sigterm,
            };
            match manners {
                Manners::Leave => vanish(),
                Manners::Mute => {
                    // Nothing is reported after this, whatever comes.
                    self.reporter.cancelled.cancel();
                    std::future::pending::<()>().await;
                }
                Manners::Obey | Manners::Ignore => return StepEnd::CutOff,
            }
        }
        StepEnd::Done(TaskResult::Success)
    }

    /// False: the step is a failure.
    async fn word(&mut self, word: &Word) -> bool {
        match word {
            Word::Say(text) => self.reporter.row(text),
            Word::Sleep(pause) => tokio::time::sleep(*pause).await,
            Word::Burst { rows, bytes } => self.burst(*rows, *bytes),
            Word::Gate(gate) => return self.desk.pass(self.task.id, gate).await,
            Word::Hang => std::future::pending().await,
            Word::Fail => return false,
            Word::Output(key, value) => self.reporter.output(key, value),
            Word::Need { job, key, value } => {
                return self.task.needs.get(job).and_then(|need| need.outputs.get(key)) == Some(value);
            }
            Word::OnCancel(manners) => {
                self.on_cancel = *manners;
                self.reporter.ignores.store(*manners == Manners::Ignore, Ordering::Relaxed);
            }
            Word::OnSigterm(manners) => self.on_sigterm = *manners,
            Word::Vanish => vanish(),
            // An isolated one does not die of it.
            Word::KillExecutor => drop(tokio::time::timeout(DYING, send(getppid(), Signal::KILL)).await),
            Word::TerminateSelf => send(Some(getpid()), Signal::TERM).await,
            Word::LeaveBehind => return leave_behind(),
            Word::Try(what) => self.attempt(what).await,
            Word::Proxy { method, target, headers } => {
                let status = proxy::ask(&self.places.address, method, target, headers).await;
                self.desk.say(self.task.id, "proxy", &format!("{method} {target} {status}")).await;
            }
        }
        true
    }

    fn burst(&self, rows: usize, bytes: usize) {
        for row in 1..=rows {
            let text = format!("row {row}");
            let filling = ".".repeat(bytes.saturating_sub(text.len()));
            self.reporter.row(text + &filling);
        }
    }

    /// A call that the official runner would not make.
    async fn attempt(&self, what: &str) {
        let of_task = |id, result: TaskResult, steps| {
            let state = TaskState { id, result: result.into(), steps, ..Default::default() };
            UpdateTaskRequest { state: Some(state).into(), ..Default::default() }
        };
        let with_steps = |result, steps| of_task(self.task.id, result, steps);
        let state = |result| with_steps(result, vec![]);
        let answer = match what {
            "declare" => self.calls.try_declare().await,
            "fetch" => self.calls.try_fetch().await,
            "success" => self.answer_to(&with_steps(TaskResult::Success, self.reporter.all_succeeded())).await,
            "bare-success" => self.answer_to(&state(TaskResult::Success)).await,
            "failure" => self.answer_to(&state(TaskResult::Failure)).await,
            "state" => self.answer_to(&state(TaskResult::Unspecified)).await,
            "another-task" => self.answer_to(&of_task(self.task.id + 1, TaskResult::Success, vec![])).await,
            _ => {
                let request = UpdateLogRequest { task_id: self.task.id, index: 5000, ..Default::default() };
                in_words(&self.calls.update_log(&request).await)
            }
        };
        self.desk.say(self.task.id, "tried", &format!("{what} {answer}")).await;
    }

    async fn answer_to(&self, request: &UpdateTaskRequest) -> String {
        match self.calls.update_task(request).await {
            Ok(response) => name(response.state.result.as_known().unwrap_or_default()).to_owned(),
            refused => in_words(&refused),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it plays a runner that ends without a word")]
fn vanish() -> ! {
    std::process::exit(0)
}

/// Sends a signal; what follows from it comes before the next word.
/// From the death of an executor to that of its runner, and more.
const DYING: Duration = Duration::from_secs(1);

async fn send(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
    std::future::pending::<()>().await;
}

fn leave_behind() -> bool {
    let mut sleeper = std::process::Command::new("sleep");
    sleeper.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    sleeper.spawn().is_ok()
}
