//! What is measured is built first, and two crates measure some of their own inside.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::process::Command;

use super::figure::{Figure, millis};
use crate::child;
use crate::samples::Samples;
use crate::say::Step;

pub(super) fn size(program: &Path, goal: &str) -> anyhow::Result<Figure> {
    let bytes = std::fs::metadata(program).with_context(|| format!("read {}", program.display()))?.len();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Ok(Figure::new(format!("size of {name}"), format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)), goal))
}

/// What a crate's own bench prints, one row per line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    Counted(Figure),
    Timed { measure: String, nanos: Vec<u64> },
}

/// The figures that a crate measures of its own inside.
pub(super) async fn inside(root: &Path, profile: &str, package: &str, bench: &str) -> anyhow::Result<Vec<Figure>> {
    let mut command = Command::new(crate::test::cargo());
    command.args(["bench", "--quiet", "--profile", profile, "--package", package, "--bench", bench]).current_dir(root);
    let mut step = Step::begin(format!("{bench} of {package} ({profile})"));
    let finished = child::run(command, crate::build::LIMIT, &mut step).await?;
    anyhow::ensure!(finished.status.success(), "{bench} of {package} failed:\n{}", finished.tail(30));
    step.end("done");
    let mut figures = Vec::new();
    for line in finished.out().lines().filter(|line| line.starts_with('{')) {
        match serde_json::from_str(line).with_context(|| format!("read {line:.200}"))? {
            Row::Counted(figure) => figures.push(figure),
            Row::Timed { measure, nanos } => {
                let samples: Samples = nanos.into_iter().map(Duration::from_nanos).collect();
                for percent in [50, 99] {
                    let value = millis(samples.percentile(percent));
                    figures.push(Figure::new(format!("{measure}, p{percent}"), value, ""));
                }
            }
        }
    }
    Ok(figures)
}
