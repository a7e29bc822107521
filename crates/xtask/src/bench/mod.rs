//! `cargo xtask bench`: the figures of one-host mode, measured from outside on the Gitea double. Nothing here is judged:
//! machines are shared, so a figure is printed beside its goal and beside what the machine was doing.

mod subject;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use testkit::gitea::{Gitea, JobId, JobSpec, Method, Status};
use tokio::process::Command;

use crate::child;
use crate::rows::table;
use crate::say::{self, Step};
use subject::{Memory, Subject};

const BUILD_LIMIT: Duration = Duration::from_secs(45 * 60);
const SOON: Duration = Duration::from_secs(30);
const LIVE_LIMIT: Duration = Duration::from_secs(300);

/// Print the figures of one-host mode beside their goals; judges nothing.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Tasks of which each step's time is taken, one after another.
    #[arg(long, default_value_t = 50)]
    tasks: usize,
    /// Further jobs that run when memory is read.
    #[arg(long, default_value_t = 200)]
    live: usize,
    /// Measure debug builds: to try the bench itself. The figures then say little.
    #[arg(long)]
    debug: bool,
    /// Write the rows into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Figure {
    measure: String,
    value: String,
    goal: String,
}

pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (large, least) = if arguments.debug { ("dev", "dev") } else { ("release", "small") };
    let program = build(root, large, "controller", "gitea-dynamic-runner").await?;
    let small = build(root, least, "executor", "gitea-task-executor").await?;
    let mut figures = vec![
        figure("size of gitea-dynamic-runner", size(&program)?, ""),
        figure("size of gitea-task-executor", size(&small)?, "8 MiB"),
    ];
    figures.extend(inside(root, large, "domain", "envelope").await?);
    figures.extend(inside(root, large, "forward", "allocations").await?);
    let gitea = Gitea::start().await;
    let place = tempfile::tempdir()?;
    let mut subject = Subject::prepare(&program, &gitea, place.path(), arguments.tasks + arguments.live)?;
    figures.extend(idle_and_start(&mut subject, &gitea).await?);
    figures.extend(way_of_a_task(&mut subject, &gitea, arguments.tasks).await?);
    figures.push(live(&mut subject, &gitea, arguments.tasks + arguments.live).await?);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    figures.push(figure("load of the machine at the end (1, 5, 15 min)", load.trim().to_owned(), ""));
    show(&figures, arguments.json.as_deref())
}

fn figure(measure: &str, value: String, goal: &str) -> Figure {
    Figure { measure: measure.to_owned(), value, goal: goal.to_owned() }
}

/// The figures that a crate measures of its own inside; it prints one per line.
async fn inside(root: &Path, profile: &str, package: &str, bench: &str) -> anyhow::Result<Vec<Figure>> {
    let mut command = Command::new(crate::test::cargo());
    command.args(["bench", "--quiet", "--profile", profile, "--package", package, "--bench", bench]).current_dir(root);
    let mut step = Step::begin(format!("{bench} of {package} ({profile})"));
    let finished = child::run(command, BUILD_LIMIT, &mut step).await?;
    anyhow::ensure!(finished.status.success(), "{bench} of {package} failed:\n{}", finished.tail(30));
    step.end("done");
    let out = finished.out();
    let rows = out.lines().filter(|line| line.starts_with('{'));
    rows.map(|line| serde_json::from_str(line).with_context(|| format!("read {line:?}"))).collect()
}

fn show(figures: &[Figure], json: Option<&Path>) -> anyhow::Result<ExitCode> {
    let rows: Vec<Vec<String>> =
        figures.iter().map(|f| vec![f.measure.clone(), f.value.clone(), f.goal.clone()]).collect();
    say::result(&table(&["measure", "value", "goal"], &rows));
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_string_pretty(figures)? + "\n")
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn build(root: &Path, profile: &str, package: &str, bin: &str) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(crate::test::cargo());
    command.args(["build", "--profile", profile, "--package", package, "--bin", bin, "--message-format", "json"]);
    command.current_dir(root);
    let mut step = Step::begin(format!("build {bin} ({profile})"));
    let finished = child::run(command, BUILD_LIMIT, &mut step).await?;
    anyhow::ensure!(finished.status.success(), "cargo build failed:\n{}", finished.tail(30));
    step.end("done");
    crate::demo::executable(&finished.out()).context("cargo named no program")
}

fn size(program: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::metadata(program).with_context(|| format!("read {}", program.display()))?.len();
    Ok(format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))
}

/// From the start of the process to its first FetchTask, and what it takes when nothing happens.
async fn idle_and_start(subject: &mut Subject, gitea: &Gitea) -> anyhow::Result<Vec<Figure>> {
    let mut step = Step::begin("start and idle");
    let mut starts = Vec::new();
    for round in 0..6 {
        step.tick(&format!("round {round}"));
        let fetches = gitea.counters().fetches;
        let started = Instant::now();
        subject.start()?;
        gitea.wait_for("a FetchTask came", |gitea| gitea.counters().fetches > fetches, SOON).await?;
        starts.push(started.elapsed());
        if round < 5 {
            subject.stop()?;
        }
    }
    // The first start registers.
    starts.remove(0);
    let fetches = gitea.counters().fetches;
    gitea.wait_for("four idle fetches", |gitea| gitea.counters().fetches >= fetches + 4, SOON).await?;
    let Memory { all, own } = subject.memory()?;
    step.end("done");
    Ok(vec![
        figure(
            "process start → first FetchTask, registered already (p50 of 5)",
            millis(percentile(&mut starts, 50)),
            "100 ms",
        ),
        figure("idle memory: resident", mib(all), "15 MiB"),
        figure("idle memory: of it private to the process", mib(own), ""),
    ])
}

/// Task available → handed out → durable → its runner spawned, one task after another. Until it is handed out a task
/// waits for the next question of an idle fetch loop (1 s, growing to 5 s; SCH-5), which is no work of ours.
async fn way_of_a_task(subject: &mut Subject, gitea: &Gitea, tasks: usize) -> anyhow::Result<Vec<Figure>> {
    let mut step = Step::begin(format!("{tasks} tasks one after another"));
    let (mut handed_out, mut durable, mut spawned) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..tasks {
        step.tick(&format!("task {number}"));
        let available = subject::now();
        let job = gitea.push_one(JobSpec::new("bench").runs_on(["local"]));
        let at = subject.runner_started(number, SOON).await?;
        let task = gitea.state(job).task.context("the task has no number")?;
        let fetched = fetched(gitea, task).context("no FetchTask was answered with the task")?;
        let persisted = subject.dispatched(task)?;
        handed_out.push(fetched.saturating_sub(available));
        durable.push(persisted.saturating_sub(fetched));
        spawned.push(at.saturating_sub(persisted));
    }
    step.end("done");
    Ok(vec![
        figure("task available → handed out (the idle poll), p50", millis(percentile(&mut handed_out, 50)), ""),
        figure("task handed out → durable, p50", millis(percentile(&mut durable, 50)), ""),
        figure("task handed out → durable, p99", millis(percentile(&mut durable, 99)), "50 ms"),
        figure("durable → runner spawned, p50", millis(percentile(&mut spawned, 50)), ""),
        figure("durable → runner spawned, p99", millis(percentile(&mut spawned, 99)), ""),
    ])
}

/// When Gitea had answered a FetchTask with this task, on the wall clock.
fn fetched(gitea: &Gitea, task: i64) -> Option<Duration> {
    let calls = gitea.calls_of(task);
    let fetch = calls.iter().find(|call| call.method == Method::FetchTask)?;
    Some((subject::now() + fetch.took?).saturating_sub(fetch.instant.elapsed()))
}

/// Memory while many jobs run: each executor has its task, and its runner reports every 5 s.
async fn live(subject: &mut Subject, gitea: &Gitea, count: usize) -> anyhow::Result<Figure> {
    let step = Step::begin(format!("{count} jobs at once"));
    let more = count.saturating_sub(gitea.held().len());
    gitea.push((0..more).map(|_| JobSpec::new("live").runs_on(["local"])).collect());
    gitea.wait_for("every task was handed out", |gitea| gitea.held().len() >= count, LIVE_LIMIT).await?;
    gitea.wait_for("the first step of every job runs", |gitea| running(gitea) >= count, LIVE_LIMIT).await?;
    let Memory { all, .. } = subject.memory()?;
    step.end("done");
    subject.kill_all();
    Ok(figure("memory while all jobs run (--tasks + --live): resident", mib(all), ""))
}

fn running(gitea: &Gitea) -> usize {
    let runs = |job: &JobId| gitea.state(*job).steps.first().is_some_and(|step| step.status == Status::Running);
    gitea.jobs().iter().filter(|job| runs(job)).count()
}

/// The time that so many percent do not exceed.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}
