//! `cargo xtask fuzz`: libFuzzer against every target of `crates/fuzz`, for a while.
//!
//! What breaks a target goes into its corpus, so that `cargo xtask test` tries it from then on.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fuzz::{TARGETS, Target};
use serde::Serialize;
use tokio::process::Command;

use crate::child::{Finished, run, run_logged};
use crate::provision::{self, Part};
use crate::rows::{Tally, conclude, table};
use crate::say::{self, Step};

/// A build of a target with everything below it.
const BUILD: Duration = Duration::from_secs(30 * 60);

/// Fuzz the boundaries that bytes from outside cross. Needs a C++ compiler.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only this target; may be given more than once.
    #[arg(long, value_name = "TARGET")]
    only: Vec<String>,
    /// How long each target is fuzzed.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u32,
    /// The seed of the fuzzer's choices; another one each time unless given.
    #[arg(long)]
    seed: Option<u32>,
    /// Write a row per target into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What became of a target.
#[derive(Serialize)]
struct Row {
    target: &'static str,
    seconds: f64,
    executions: u64,
    /// The file with the input that broke it.
    broken_by: Option<PathBuf>,
}

/// The command.
pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let chosen = chosen(&arguments.only)?;
    let cache = provision::ensure(&[Part::CargoFuzz]).await?;
    let place = Place { root, program: Part::CargoFuzz.program(&cache) };
    let mut rows = Vec::new();
    for target in chosen {
        rows.push(place.fuzz(target, &arguments).await.with_context(|| format!("fuzz {}", target.name))?);
    }
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    say::result(&table(&["target", "seconds", "executions", "broken by"], &cells));
    let tally = rows.iter().map(|row| Tally::one(row.broken_by.is_none())).sum();
    conclude(&rows, tally, arguments.json.as_deref())
}

fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Target>> {
    let names = TARGETS.map(|target| target.name);
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        anyhow::bail!("there is no target {unknown:?}; there are {}", names.join(", "));
    }
    Ok(TARGETS.iter().filter(|target| only.is_empty() || only.iter().any(|name| name == target.name)).collect())
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let broken = self.broken_by.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        vec![self.target.to_owned(), format!("{:.0}", self.seconds), self.executions.to_string(), broken]
    }
}

struct Place<'a> {
    root: &'a Path,
    program: PathBuf,
}

impl Place<'_> {
    async fn fuzz(&self, target: &'static Target, arguments: &Arguments) -> anyhow::Result<Row> {
        let mut step = Step::begin(format!("fuzz {}", target.name));
        let work = self.root.join("target/fuzz").join(target.name);
        let (found, broken) = (work.join("corpus"), work.join("broken"));
        for folder in [&found, &broken] {
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            std::fs::write(found.join(format!("seed-{number}")), seed).context("write a seed")?;
        }
        run_logged(self.command("build", target), BUILD, &mut step, &work.join("build.log")).await?;
        let started = Instant::now();
        let mut command = self.command("run", target);
        command.arg(&found).arg(self.corpus(target)).arg("--");
        command.arg(format!("-max_total_time={}", arguments.seconds)).args(["-timeout=10", "-print_final_stats=1"]);
        command.arg(format!("-artifact_prefix={}/", broken.display()));
        command.args(arguments.seed.map(|seed| format!("-seed={seed}")));
        let limit = Duration::from_secs(u64::from(arguments.seconds)) + Duration::from_secs(300);
        let finished = run(command, limit, &mut step).await?;
        let broken_by = if finished.status.success() { None } else { Some(self.keep(target, &broken, &finished)?) };
        step.end(if broken_by.is_none() { "holds" } else { "BROKEN" });
        let seconds = started.elapsed().as_secs_f64();
        Ok(Row { target: target.name, seconds, executions: executions(&finished), broken_by })
    }

    /// The committed inputs of a target.
    fn corpus(&self, target: &Target) -> PathBuf {
        self.root.join("crates/fuzz/corpus").join(target.name)
    }

    /// Moves what broke the target into its corpus. Without such a file the fuzzer itself failed.
    fn keep(&self, target: &Target, broken: &Path, finished: &Finished) -> anyhow::Result<PathBuf> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(broken)?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        let tail = finished.tail(30);
        let file = files.pop().with_context(|| format!("the fuzzer failed without an input:\n{tail}"))?;
        let name = file.file_name().context("a file has a name")?;
        let kept = self.corpus(target).join(name);
        std::fs::copy(&file, &kept).with_context(|| format!("copy to {}", kept.display()))?;
        std::fs::remove_file(&file).with_context(|| format!("remove {}", file.display()))?;
        say::line(&tail);
        Ok(kept)
    }

    fn command(&self, verb: &str, target: &Target) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(verb).arg("--fuzz-dir").arg(self.root.join("crates/fuzz/libfuzzer"));
        // Our code has no `unsafe`, so no address sanitizer; coverage needs a switch that the stable compiler hides.
        command.args(["--sanitizer", "none", "--target-dir"]).arg(self.root.join("target/fuzz/build"));
        command.arg(target.name).env("RUSTC_BOOTSTRAP", "1").current_dir(self.root);
        command
    }
}

/// libFuzzer's own count.
fn executions(finished: &Finished) -> u64 {
    let stat = |line: &str| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok();
    finished.lines().find_map(stat).unwrap_or_default()
}
