//! One stage of the checks: how it runs, and the row that comes out.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::process::Command;

use super::count;
use crate::child::run;
use crate::rows::Tally;
use crate::say::{self, Step};

/// A cold build of everything on a slow machine fits.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Of a long complaint these are repeated at the end.
const LAST_LINES: usize = 8;

/// What came out of a stage.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    stage: String,
    seconds: f64,
    #[serde(flatten)]
    pub(super) tally: Tally,
    /// What there is to complain of, in short: said once more at the very end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) complaints: Vec<String>,
    /// Why the machine cannot run it: neither passed nor failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
}

impl Row {
    /// The row of a stage that is one judgement; a failure is shown.
    pub(super) fn judged(stage: &str, seconds: f64, outcome: &Outcome) -> Self {
        let complaints = match outcome {
            Outcome::Passed => Vec::new(),
            Outcome::Failed(why) => {
                say::line(why);
                // The last lines: a compiler and a test say there what it came to.
                let lines: Vec<&str> = why.lines().collect();
                vec![lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")]
            }
        };
        Self::counted(stage, seconds, Tally::one(complaints.is_empty()), complaints)
    }

    /// The row of a stage that judged several things.
    pub(super) fn counted(stage: &str, seconds: f64, tally: Tally, complaints: Vec<String>) -> Self {
        Self { stage: stage.to_owned(), seconds, tally, complaints, absent: None }
    }

    /// The row of a stage that this machine cannot run.
    pub(super) fn absent(stage: &str, reason: &str) -> Self {
        let absent = Some(reason.to_owned());
        Self { stage: stage.to_owned(), seconds: 0.0, tally: Tally::default(), complaints: Vec::new(), absent }
    }

    /// What failed in it, for whoever sees the end of the output only.
    pub(super) fn complaint(&self) -> String {
        let complaints = if self.complaints.is_empty() { "see above".to_owned() } else { self.complaints.join("\n  ") };
        format!("{} FAILED:\n  {complaints}", self.stage)
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let numbers = [format!("{:.1}", self.seconds), self.tally.passed.to_string(), self.tally.failed.to_string()];
        let stage = if self.absent.is_some() { format!("{} (absent)", self.stage) } else { self.stage.clone() };
        std::iter::once(stage).chain(numbers).collect()
    }
}

/// How a judgement went.
pub(super) enum Outcome {
    Passed,
    /// With what a person must know.
    Failed(String),
}

/// Passes when there is nothing to complain about.
pub(super) fn none(complaints: &[String]) -> anyhow::Result<Outcome> {
    Ok(if complaints.is_empty() { Outcome::Passed } else { Outcome::Failed(complaints.join("\n")) })
}

/// A stage that we judge ourselves.
pub(super) fn inline(stage: &str, judge: impl FnOnce() -> anyhow::Result<Outcome>) -> Row {
    let started = Instant::now();
    let step = Step::begin(stage);
    let outcome = judge().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    step.end(if matches!(outcome, Outcome::Passed) { "ok" } else { "FAILED" });
    Row::judged(stage, started.elapsed().as_secs_f64(), &outcome)
}

/// A stage that a program judges by its exit code.
pub(super) async fn command(stage: &str, root: &Path, program: impl Into<OsString>, words: &[&str]) -> Row {
    let mut command = Command::new(program.into());
    // Documentation is read here, with its private items: links to them lead somewhere.
    let documentation = "-D warnings -A rustdoc::private-intra-doc-links";
    command.args(words).current_dir(root).env("RUSTDOCFLAGS", documentation);
    let mut step = Step::begin(stage);
    let outcome = match run(command, LIMIT, &mut step).await {
        Ok(finished) if finished.status.success() => Outcome::Passed,
        Ok(finished) => Outcome::Failed(finished.tail(200)),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    let seconds = step.end(if matches!(outcome, Outcome::Passed) { "ok" } else { "FAILED" });
    Row::judged(stage, seconds, &outcome)
}

/// `cargo test` of the whole workspace with some of its targets, so many tests at a time; every test counts.
pub(super) async fn cargo_test(stage: &str, root: &Path, targets: Vec<String>, threads: u32) -> Row {
    cargo_test_with(stage, root, targets, threads, &[]).await
}

/// As [`cargo_test`] with something more in the environment.
pub(super) async fn cargo_test_with(
    stage: &str,
    root: &Path,
    targets: Vec<String>,
    threads: u32,
    environment: &[(&str, &str)],
) -> Row {
    let mut command = Command::new(super::cargo());
    command.args(["test", "--workspace", "--no-fail-fast"]).args(targets).current_dir(root);
    command.envs(environment.iter().copied());
    command.env("RUST_TEST_THREADS", threads.to_string());
    let mut step = Step::begin(stage);
    let (tally, whole, complaints) = match run(command, LIMIT, &mut step).await {
        Ok(finished) => {
            let tally = count::tally(&finished.out(), finished.status.success());
            let whole =
                (tally.failed > 0).then(|| count::failures(finished.lines()).unwrap_or_else(|| finished.tail(400)));
            (tally, whole, count::panics(finished.lines()))
        }
        Err(error) => (Tally::one(false), None, vec![format!("{error:#}")]),
    };
    let seconds = step.end(if tally.failed == 0 { "ok" } else { "FAILED" });
    whole.iter().for_each(|text| say::line(text));
    Row::counted(stage, seconds, tally, complaints)
}
