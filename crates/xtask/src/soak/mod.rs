//! `cargo xtask soak`: random kills under load. The real program and its executors work between the double of Gitea and
//! the stand-in for the official runner; controller, executors and runners are killed, ended and stopped, connections cut
//! and delayed, jobs cancelled, Pods deleted, all by lot (fault test T5, step 2). In the end every task is held to the rules of
//! [`testkit::outcome`].

mod chance;
mod course;
mod figures;
mod gaps;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use testkit::outcome::{Judgement, Record, Rule, TaskRecord, Violation, judge};
use testkit::world::{Programs, World};

use crate::backend_kind::BackendKind;
use crate::queue_kind::QueueKind;
use crate::rows::{Tally, conclude, table};
use crate::say;
use crate::sides::Sides;
use course::{Course, Wanted};
use figures::Figure;

/// The hidden task that is the stand-in runner.
const STAND_IN: &[&str] = &["stand-in"];

/// Kill controller, executors and runners at random under load, and judge what became of every task.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// SIGKILL and SIGTERM in all.
    #[arg(long, default_value_t = 300)]
    kills: usize,
    /// Repeats the choices of an earlier run; drawn if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Jobs that wait or run at a time.
    #[arg(long, default_value_t = 20)]
    jobs: usize,
    /// Where tasks wait; a NATS server is killed and frozen with the others.
    #[arg(long, value_enum, default_value_t)]
    queue: QueueKind,
    /// Where executors are made; of Pods, some are deleted by others, and the API of the cluster has its troubles.
    #[arg(long, value_enum, default_value_t)]
    backend: BackendKind,
    /// Stop killing after so many minutes, whatever was reached.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Write the figures and violations into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The command.
pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    let wanted = Wanted {
        kills: arguments.kills,
        seed,
        jobs: arguments.jobs,
        sides: Sides { queue: arguments.queue, backend: arguments.backend },
        limit: Duration::from_secs(60 * arguments.minutes),
    };
    let (rows, tally, _told) = soak(root, wanted).await?;
    conclude(&rows, tally, arguments.json.as_deref())
}

/// A short soak whose choices are always the same, for the check of a change.
pub(crate) async fn short(root: &Path, sides: Sides) -> anyhow::Result<(Tally, Vec<String>)> {
    let wanted = Wanted { kills: 15, seed: 1, jobs: 8, sides, limit: Duration::from_secs(60) };
    soak(root, wanted).await.map(|(_, tally, violations)| (tally, violations))
}

async fn soak(root: &Path, wanted: Wanted) -> anyhow::Result<(Vec<Figure>, Tally, Vec<String>)> {
    let controller = crate::build::controller(root).await?;
    let place = controller.parent().context("the program lies in a folder")?.join("soak");
    say::line(&format!("seed {}", wanted.seed));
    let programs = Programs { controller, stand_in: STAND_IN, place: place.clone() };
    let (record, account, world) = Course::begin(&programs, wanted).await.run().await;
    let mut judgement = judge(&record);
    let excuse = |violation: &Violation| match wanted.sides.backend {
        BackendKind::Local => None,
        BackendKind::Pod => gaps::known(violation, &account, &record),
    };
    let (excused, broken) = judgement.violations.into_iter().partition(|violation| excuse(violation).is_some());
    judgement.violations = broken;
    let excused: Vec<Violation> = excused;
    let mut rows = figures::figures(&record, &account, &judgement);
    let cells: Vec<Vec<String>> = rows.iter().map(|f| vec![f.measure.clone(), f.value.clone()]).collect();
    say::result(&table(&["measure", "value"], &cells));
    for violation in &judgement.violations {
        say::result(&violation.to_string());
        rows.push(Figure { measure: format!("violation of {:?}", violation.rule), value: violation.to_string() });
    }
    judgement.lost.iter().for_each(|loss| say::result(&loss.to_string()));
    for violation in &excused {
        say::result(&format!("a known gap ({}): {violation}", excuse(violation).unwrap_or_default()));
    }
    let file = place.join(format!("{}-seed-{}.txt", wanted.sides.name(), wanted.seed));
    let slowest = figures::killed_to_failure(&record, &account).into_iter().max();
    std::fs::write(&file, evidence(&record, &judgement, slowest, &world))
        .with_context(|| format!("write {}", file.display()))?;
    say::result(&format!("all that is known of these tasks: {}", file.display()));
    say::result(&format!(
        "seed {}: cargo xtask soak --seed {0} --kills {} --jobs {} {}",
        wanted.seed,
        wanted.kills,
        wanted.jobs,
        wanted.sides.words()
    ));
    let violations = judgement.violations.iter().map(ToString::to_string).collect();
    Ok((rows, tally(&record, &judgement), violations))
}

/// One for every task, and one for every rule that is about no single task.
fn tally(record: &Record, judgement: &Judgement) -> Tally {
    let broken = |task: &TaskRecord| judgement.violations.iter().any(|violation| violation.task == Some(task.task));
    let tasks = record.tasks.iter().map(|task| Tally::one(!broken(task)));
    let found_in_all = |rule: Rule| judgement.violations.iter().any(|found| found.task.is_none() && found.rule == rule);
    let in_all = Rule::ALL.into_iter().filter(|rule| !rule.is_of_a_task()).map(|rule| Tally::one(!found_in_all(rule)));
    tasks.chain(in_all).sum()
}

/// All that is known of the tasks that broke a rule or were lost, and of the one whose killed executor was reported last.
fn evidence(record: &Record, judgement: &Judgement, slowest: Option<(Duration, i64)>, world: &World) -> String {
    let mut text = String::new();
    let mut tasks: BTreeSet<i64> = judgement.violations.iter().filter_map(|violation| violation.task).collect();
    tasks.extend(judgement.lost.iter().map(|loss| loss.task));
    tasks.extend(slowest.map(|(_, task)| task));
    let log = world.log();
    for violation in &judgement.violations {
        let _infallible = writeln!(text, "{violation}");
    }
    for line in log.lines().filter(|line| line.contains("\"runner stopped\"")) {
        let _infallible = writeln!(text, "{line}");
    }
    let start = record.controllers.first().map(|first| first.started);
    for (number, process) in record.controllers.iter().enumerate() {
        let since = |at: std::time::Instant| start.map(|start| at.saturating_duration_since(start));
        let ended = process.ended.map(|(at, death)| (since(at), death));
        let _infallible = writeln!(text, "controller {number}: {:?} to {ended:?}", since(process.started));
    }
    for task in record.tasks.iter().filter(|task| tasks.contains(&task.task)) {
        let _infallible = writeln!(text, "\n== task {}: {:?}, closed: {}", task.task, task.status, task.archived);
        for call in &task.calls {
            let at = start.map(|start| call.instant.saturating_duration_since(start));
            let _infallible = writeln!(
                text,
                "{at:?} {} {} => {:?} {:?} took {:?}",
                call.method.name(),
                call.summary,
                call.result,
                call.end,
                call.took
            );
        }
        let _infallible = writeln!(text, "told: {:#?}\nlog: {:#?}", task.told, task.log);
        let about = [format!("gitea-task-{}\"", task.task), format!("gitea-task-{}-", task.task)];
        for line in log.lines().filter(|line| about.iter().any(|name| line.contains(name))) {
            let _infallible = writeln!(text, "{line}");
        }
    }
    // What is about no single task may come from any of them.
    if judgement.violations.iter().any(|violation| violation.task.is_none()) {
        let _infallible = writeln!(text, "\n== the controllers' log\n{log}");
    }
    text
}
