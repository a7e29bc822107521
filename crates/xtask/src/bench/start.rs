//! From the start of the process to its first FetchTask, and what it takes when nothing happens.

use std::path::Path;
use std::time::Instant;

use testkit::gitea::Gitea;

use super::figure::{Figure, mib, millis};
use super::process::Memory;
use super::subject::{Runner, SOON, Subject};
use crate::samples::Samples;
use crate::say::Step;

pub(super) async fn measure(program: &Path) -> anyhow::Result<Vec<Figure>> {
    let gitea = Gitea::start().await;
    let place = tempfile::tempdir()?;
    let mut subject = Subject::prepare(program, &gitea, place.path(), 200, Runner::Hold)?;
    let mut step = Step::begin("start and idle");
    let mut starts = Vec::new();
    for round in 0..6 {
        step.tick(&format!("round {round}"));
        let started = Instant::now();
        subject.serve(&gitea).await?;
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
        Figure::new(
            "process start → first FetchTask, registered already (p50 of 5)",
            millis(starts.into_iter().collect::<Samples>().median()),
            "100 ms",
        ),
        Figure::new("idle memory: resident", mib(all), "15 MiB"),
        Figure::new("idle memory: of it private to the process", mib(own), ""),
    ])
}
