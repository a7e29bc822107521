//! `cargo xtask bench`: the figures of one-host mode and of Pods, measured from outside. Nothing here is judged: machines
//! are shared, so a figure is printed beside its goal and beside what the machine was doing.

mod build;
mod figure;
mod finished;
mod live;
mod pods;
mod process;
mod start;
mod subject;
mod task;
mod versus;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;

use crate::rows::table;
use crate::say;
use figure::Figure;
pub(crate) use subject::StandIn;

/// Print the figures of one-host mode and of Pods beside their goals; judges nothing.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure only these.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// `task`: tasks of which each step's time is taken, one after another.
    #[arg(long, default_value_t = 50)]
    tasks: usize,
    /// `live`: jobs that run at once when memory is read.
    #[arg(long, default_value_t = 200)]
    live: usize,
    /// `finished`: memory and CPU time are read after so many finished jobs.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    finished: Vec<usize>,
    /// `pods`: tasks that come ten a second.
    #[arg(long, default_value_t = 300)]
    paced: usize,
    /// `pods`: tasks that come at once.
    #[arg(long, default_value_t = 200)]
    burst: usize,
    /// `pods`: executors that exist at a start.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000])]
    adopted: Vec<usize>,
    /// `pods`: tasks that wait for a slot.
    #[arg(long, default_value_t = 1_000)]
    waiting: usize,
    /// `versus-runner`: rounds, of which the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// `versus-runner`: jobs of the one push.
    #[arg(long, default_value_t = 40)]
    jobs: usize,
    /// Measure debug builds: to try the bench itself. The figures then say little.
    #[arg(long)]
    debug: bool,
    /// Measure this program instead of building one.
    #[arg(long, value_name = "PROGRAM")]
    binary: Option<PathBuf>,
    /// Write the rows into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Both programs' sizes on disk.
    Size,
    /// An envelope sealed and opened; what the forwarder allocates.
    Inside,
    /// From start to first fetch, and memory when idle; on the double of Gitea.
    Start,
    /// A task from Gitea to its runner, step by step; on the double.
    Task,
    /// Memory while many jobs run; on the double.
    Live,
    /// Memory and CPU time after many jobs; on the double, each job in an executor with a stand-in for the runner.
    Finished,
    /// Executors as Pods: paced and in a burst, found at a start, and calls when idle; on the doubles of Gitea and of
    /// Kubernetes, with real NATS and SPIRE.
    Pods,
    /// Ours against the official runner alone, on a real Gitea: many jobs of one push, and one job.
    VersusRunner,
}

pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let parts = if arguments.only.is_empty() { Part::value_variants() } else { &arguments.only };
    let (large, least) = if arguments.debug { ("dev", "dev") } else { ("release", "small") };
    let program = match &arguments.binary {
        Some(program) => program.canonicalize().with_context(|| format!("find {}", program.display()))?,
        None => crate::build::program(root, large, "controller", "gitea-dynamic-runner").await?,
    };
    let mut figures = Vec::new();
    for part in parts {
        figures.extend(match part {
            Part::Size => {
                let small = crate::build::program(root, least, "executor", "gitea-task-executor").await?;
                vec![build::size(&program, "")?, build::size(&small, "8 MiB")?]
            }
            Part::Inside => {
                let mut inside = build::inside(root, large, "domain", "envelope").await?;
                inside.extend(build::inside(root, large, "forward", "allocations").await?);
                inside
            }
            Part::Start => start::measure(&program).await?,
            Part::Task => task::measure(&program, arguments.tasks).await?,
            Part::Live => live::measure(&program, arguments.live).await?,
            Part::Finished => finished::measure(&program, &arguments.finished).await?,
            Part::Pods => {
                let Arguments { paced, burst, adopted, waiting, .. } = &arguments;
                let sizes = pods::Sizes { paced: *paced, burst: *burst, adopted, waiting: *waiting };
                pods::measure(&program, &sizes).await?
            }
            Part::VersusRunner => versus::measure(&program, arguments.rounds, arguments.jobs).await?,
        });
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    figures.push(Figure::new("load of the machine at the end (1, 5, 15 min)", load.trim().to_owned(), ""));
    show(&figures, arguments.json.as_deref())
}

fn show(figures: &[Figure], json: Option<&Path>) -> anyhow::Result<ExitCode> {
    let rows: Vec<Vec<String>> = figures.iter().map(Figure::cells).collect();
    say::result(&table(&Figure::HEAD, &rows));
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_string_pretty(figures)? + "\n")
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
