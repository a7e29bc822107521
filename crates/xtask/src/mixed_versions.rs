//! `cargo xtask mixed-versions`: an earlier version and this one take turns on the same state and the same queue, forward
//! and back, with work queued and running (NEW-149, T78). The World judges as ever: nothing lost, nothing run twice, every
//! log complete.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::FutureExt as _;
use serde::Serialize;
use testkit::backend::Backend;
use testkit::queue::Engine;
use testkit::world::{Plan, Programs, World, job};
use tokio::process::Command;

use crate::child::run;
use crate::rows::{Tally, conclude, table};
use crate::say::{self, Step};

/// Roll from an earlier version to this one and back, with work queued and running.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The earlier version: a commit.
    #[arg(long, default_value = "HEAD~1", value_name = "COMMIT")]
    base: String,
    /// Write a row per roll into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A cold build of the earlier version on a slow machine fits.
const BUILD: Duration = Duration::from_secs(40 * 60);

/// For the jobs of one roll.
const JOBS: Duration = Duration::from_secs(120);

/// How the next process comes into the place of the one before it.
#[derive(Debug, Clone, Copy)]
enum Roll {
    AfterItsEnd,
    AfterItsKill,
    /// The next one stands by while it works, as the replicas of a deployment do.
    Beside,
}

impl Roll {
    fn words(self) -> &'static str {
        match self {
            Self::AfterItsEnd => "ended in order",
            Self::AfterItsKill => "killed",
            Self::Beside => "the next one stands by",
        }
    }
}

#[derive(Serialize)]
struct Row {
    sides: String,
    rolls: String,
    seconds: f64,
    passed: bool,
    complaint: Option<String>,
}

pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (rows, tally) = roll(root, &arguments.base).await?;
    conclude(&rows, tally, arguments.json.as_deref())
}

/// For the check of a change: from the commit before it.
pub(crate) async fn with_the_last(root: &Path) -> anyhow::Result<(Tally, Vec<String>)> {
    let (rows, tally) = roll(root, "HEAD~1").await?;
    Ok((tally, rows.into_iter().filter_map(|row| row.complaint).collect()))
}

async fn roll(root: &Path, base: &str) -> anyhow::Result<(Vec<Row>, Tally)> {
    let this = crate::build::controller(root).await?;
    let folder = this.parent().and_then(Path::parent).context("the program lies in a target folder")?;
    let earlier = earlier(root, base, &folder.join("mixed-versions")).await?;
    let place = folder.join("mixed-versions").join("worlds");
    std::fs::create_dir_all(&place).with_context(|| format!("make {}", place.display()))?;
    let mut rows = Vec::new();
    let [embedded, jetstream] =
        [Engine::Embedded, Engine::JetStream].map(|engine| Plan { engine, ..Plan::capacity(2) });
    let pods = Plan { backend: Backend::Pod, ..jetstream.clone() };
    for (sides, plan, roll) in [
        ("embedded", embedded.clone(), Roll::AfterItsEnd),
        ("embedded", embedded, Roll::AfterItsKill),
        ("jetstream", jetstream.clone(), Roll::AfterItsEnd),
        ("jetstream", jetstream, Roll::AfterItsKill),
        ("jetstream, Pods", pods, Roll::Beside),
    ] {
        let programs = Programs { controller: earlier.clone(), stand_in: &["stand-in"], place: place.clone() };
        rows.push(Rolls { plan, roll, earlier: &earlier, this: &this }.judged(sides, programs).await);
    }
    let word = |row: &Row| if row.passed { "passed" } else { "FAILED" }.to_owned();
    let cells = |row: &Row| vec![row.sides.clone(), row.rolls.clone(), format!("{:.0}", row.seconds), word(row)];
    say::result(&table(&["sides", "rolls", "seconds", ""], &rows.iter().map(cells).collect::<Vec<_>>()));
    rows.iter().filter_map(|row| row.complaint.as_deref()).for_each(say::line);
    let tally = rows.iter().map(|row| Tally::one(row.passed)).sum();
    Ok((rows, tally))
}

/// The program of an earlier commit, built from its own sources in a folder of its own.
async fn earlier(root: &Path, base: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let sources = folder.join("sources");
    if sources.exists() {
        std::fs::remove_dir_all(&sources).with_context(|| format!("remove {}", sources.display()))?;
    }
    std::fs::create_dir_all(&sources).with_context(|| format!("make {}", sources.display()))?;
    let archive = folder.join("sources.tar");
    let mut step = Step::begin(format!("the program of {base}"));
    let mut git = Command::new("git");
    git.current_dir(root).args(["archive", "--output"]).arg(&archive).arg(base);
    let mut tar = Command::new("tar");
    // Of now: what was changed since the last build must not look older than it.
    tar.args(["--extract", "--touch", "--file"]).arg(&archive).arg("--directory").arg(&sources);
    let mut cargo = Command::new(crate::test::cargo());
    cargo.current_dir(&sources).env("CARGO_TARGET_DIR", folder.join("build"));
    cargo.args(["build", "--package", "controller", "--bin", "gitea-dynamic-runner"]);
    for command in [git, tar, cargo] {
        let done = run(command, BUILD, &mut step).await?;
        ensure!(done.status.success(), "the program of {base} cannot be built:\n{}", done.tail(30));
    }
    step.end("done");
    Ok(folder.join("build/debug/gitea-dynamic-runner"))
}

/// Versions that take turns.
struct Rolls<'a> {
    plan: Plan,
    roll: Roll,
    earlier: &'a Path,
    this: &'a Path,
}

impl Rolls<'_> {
    async fn judged(self, sides: &str, programs: Programs) -> Row {
        let rolls = format!("earlier → this → earlier → this, {}", self.roll.words());
        let step = Step::begin(format!("{sides}: {rolls}"));
        let started = Instant::now();
        let versions = [self.this, self.earlier, self.this].map(Path::to_owned);
        // A broken rule is a panic there.
        let outcome = AssertUnwindSafe(take_turns(self.plan, self.roll, programs, versions)).catch_unwind().await;
        step.end(if outcome.is_ok() { "passed" } else { "FAILED" });
        let text = |panic: Box<dyn Any + Send>| panic.downcast_ref::<String>().cloned().unwrap_or_default();
        let complaint = outcome.err().map(|panic| format!("{sides}, {rolls}: {}", text(panic)));
        let (seconds, passed) = (started.elapsed().as_secs_f64(), complaint.is_none());
        Row { sides: sides.to_owned(), rolls, seconds, passed, complaint }
    }
}

async fn take_turns(plan: Plan, roll: Roll, programs: Programs, versions: [PathBuf; 3]) {
    let backend = plan.backend.label();
    let mut world = World::start(&programs, plan.set("LOOK_AHEAD", "3")).await;
    for (round, next) in versions.into_iter().enumerate() {
        let gate = format!("round-{round}");
        let wait = format!("gate {gate}");
        let steps = ["say begins", wait.as_str(), "say goes on"];
        let jobs: Vec<_> =
            (0..5).map(|n| world.push_one(job(&format!("job{round}{n}"), &steps).runs_on([backend]))).collect();
        let begun = |world: &World| {
            let has_begun = |job| world.gitea.state(job).rows().contains(&"begins");
            let count = jobs.iter().filter(|job| has_begun(**job)).count();
            if count == 2 { Ok(()) } else { Err(format!("{count} run")) }
        };
        world.eventually("two jobs run", JOBS, begun).await;
        match roll {
            Roll::AfterItsEnd => {
                world.sigterm(JOBS).await;
                world.restart_as(&next);
            }
            Roll::AfterItsKill => {
                world.kill9();
                world.restart_as(&next);
            }
            Roll::Beside => world.roll_to(&next, JOBS).await,
        }
        world.desk.open_gate(&gate);
        world.all_succeed(&jobs, JOBS).await;
        world.nothing_left().await;
    }
    world.finish().await;
}
