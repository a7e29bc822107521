//! A stand-in for the official runner 1.0.8, for tests whose jobs last milliseconds.
//!
//! It speaks RunnerService as the official one does (contract §13): Declare once, FetchTask until there is a task, rows
//! before states, the last row with `no_more`, then the result. What differs: it reports every quarter of a second
//! instead of every 5 s, and the steps it runs are [words](script::Word) instead of shell. Everything it does is told
//! to the test's [desk](crate::world::Desk).
//!
//! A program starts itself again as the stand-in; see [`program`].

mod calls;
mod desk;
mod job;
mod places;
mod proxy;
mod reporter;
mod script;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use runner_proto::runner::v1::{
    LogRow, Result as TaskResult, StepState, Task, TaskState, UpdateLogRequest, UpdateTaskRequest,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use calls::Calls;
use desk::Desk;
pub(crate) use job::CUT_OFF;
use places::Places;
pub(crate) use reporter::name;

/// The address of the desk.
const DESK: &str = "GDR_DESK";
/// How many FetchTask calls it gives up too early.
const IMPATIENT: &str = "GDR_IMPATIENT";
/// Whether the runner of a first executor ends at once.
const DIES_FIRST: &str = "GDR_DIES_FIRST";
/// Whether it never asks for its task.
const IDLE: &str = "GDR_IDLE";
/// The configuration that the executor wrote.
const CONFIG: &str = "GDR_STAND_IN_CONFIG";

/// How often the official runner reports the state of a job (`runner.state_report_interval`).
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The version it has by itself.
pub const VERSION: &str = "1.0.8";

/// How a stand-in behaves beyond its job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Temper {
    /// As the official runner.
    #[default]
    Even,
    /// It gives up its first so many FetchTask calls before an answer can come.
    Impatient(u32),
    /// The one of an assignment's first executor ends before it asks for its task.
    DiesFirst,
    /// It declares itself and never asks for its task.
    Idle,
}

/// Writes a program to `path` that answers and behaves as the stand-in: a shell script that starts `binary` with
/// `arguments` that make it call [`run`] and nothing else. Asked for its version it says this one.
///
/// # Errors
/// The file cannot be written.
pub fn program(
    path: &Path,
    binary: &Path,
    arguments: &[&str],
    desk: &str,
    temper: Temper,
    version: &str,
) -> io::Result<()> {
    let temper = match temper {
        Temper::Even => String::new(),
        Temper::Impatient(times) => format!("{IMPATIENT}={times}"),
        Temper::DiesFirst => format!("{DIES_FIRST}=yes"),
        Temper::Idle => format!("{IDLE}=yes"),
    };
    let script = format!(
        "#!/bin/sh\n\
         if [ \"$1\" = --version ]; then echo 'gitea-runner version v{version}'; exit 0; fi\n\
         if [ \"$2\" = --help ]; then echo ' --once'; exit 0; fi\n\
         {DESK}={desk} {temper} {CONFIG}=\"$4\" exec '{}' {}\n",
        binary.display(),
        arguments.join(" ")
    );
    std::fs::write(path, script)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

/// The setting that lets isolated jobs see `binary`, the other half of [`program`]: they have a `/tmp`, a `/var/tmp` and a
/// home of their own, and a checkout may lie there.
#[must_use]
pub fn shown(binary: &Path) -> String {
    format!("LOCAL_SHARED={}", binary.display())
}

/// Is the runner until its end, and ends the process.
#[expect(clippy::disallowed_methods, reason = "the end of a runner, not of a test, is the end of this process")]
pub fn run() {
    let code = match life() {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("stand-in: {error:#}"));
            1
        }
    };
    std::process::exit(code);
}

fn life() -> anyhow::Result<i32> {
    let variable = |name| std::env::var(name).with_context(|| format!("{name} is not set"));
    let (desk, config) = (variable(DESK)?, PathBuf::from(variable(CONFIG)?));
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let desk = Desk::connect(&desk).await.context("the desk")?;
        let places = Places::read(&config)?;
        let first = config.components().any(|part| part.as_os_str().as_encoded_bytes().ends_with(b"-e1"));
        if first && std::env::var_os(DIES_FIRST).is_some() {
            return Ok(1);
        }
        serve(desk, places).await
    })
}

/// Takes its one task, says that its first step runs, and goes on saying so as often as the official runner does, until
/// the process is ended: a running job that costs nothing. `config` is the file that the executor wrote.
///
/// # Errors
/// The files cannot be read, or Declare or a report was refused.
pub async fn hold(config: &Path) -> anyhow::Result<()> {
    let (calls, report) = begin(config).await?;
    loop {
        calls.update_task(&report).await?;
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}

/// Takes its one task and ends it with success as fast as it can, in four reports of a row and a state each: a finished
/// job that costs little. `config` is the file that the executor wrote.
///
/// # Errors
/// The files cannot be read, or Declare or a report was refused.
pub async fn finish(config: &Path) -> anyhow::Result<()> {
    const REPORTS: i64 = 4;
    let (calls, mut report) = begin(config).await?;
    for number in 0..REPORTS {
        let last = number + 1 == REPORTS;
        let row = LogRow { time: Some(reporter::now()).into(), content: format!("row {number}"), ..Default::default() };
        let state = report.state.get_or_insert_default();
        let rows =
            UpdateLogRequest { task_id: state.id, index: number, rows: vec![row], no_more: last, ..Default::default() };
        if last {
            let success = TaskResult::Success;
            (state.result, state.stopped_at) = (success.into(), Some(reporter::now()).into());
            for step in &mut state.steps {
                (step.result, step.stopped_at) = (success.into(), Some(reporter::now()).into());
                step.log_length = REPORTS;
            }
        }
        calls.update_log(&rows).await?;
        calls.update_task(&report).await?;
    }
    Ok(())
}

/// Takes a task; what is returned with it says that its first step runs.
async fn begin(config: &Path) -> anyhow::Result<(Calls, UpdateTaskRequest)> {
    let places = Places::read(config)?;
    let calls = Calls::new(&places);
    calls.declare().await?;
    let task = poll(&calls, &places).await;
    let started = Some(reporter::now());
    let step = StepState { started_at: started.clone().into(), ..Default::default() };
    let state = TaskState { id: task.id, started_at: started.into(), steps: vec![step], ..Default::default() };
    Ok((calls, UpdateTaskRequest { state: state.into(), ..Default::default() }))
}

async fn serve(desk: Desk, places: Places) -> anyhow::Result<i32> {
    let mut signals = signal(SignalKind::terminate())?;
    let terminated = CancellationToken::new();
    let heard = terminated.clone();
    tokio::spawn(async move {
        signals.recv().await;
        heard.cancel();
    });
    let calls = Calls::new(&places);
    // Any error of Declare ends the official runner at once.
    calls.declare().await?;
    let idle = std::env::var_os(IDLE).is_some();
    let task = tokio::select! {
        task = poll(&calls, &places), if !idle => task,
        () = terminated.cancelled() => return Ok(0),
    };
    job::run(task, &calls, &desk, &places, terminated).await?;
    Ok(0)
}

/// Asks for ever, whatever the answer (1.0.8 never ends).
async fn poll(calls: &Calls, places: &Places) -> Task {
    let mut pause = places.fetch_interval;
    let impatient = std::env::var(IMPATIENT).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    for _ in 0..impatient {
        calls.give_up_fetching().await;
    }
    loop {
        if let Ok(Some(task)) = calls.fetch().await {
            return task;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(places.fetch_interval_max);
    }
}

/// For the executor's log.
#[expect(clippy::print_stderr, reason = "it is a program of its own")]
fn complain(text: &str) {
    eprintln!("{text}");
}
