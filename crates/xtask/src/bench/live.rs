//! Memory while many jobs run: each executor has its task, and its runner reports every 5 s.

use std::path::Path;
use std::time::Duration;

use testkit::gitea::{Gitea, JobId, JobSpec, Status};

use super::figure::{Figure, mib};
use super::process::Memory;
use super::subject::{Runner, Subject};
use crate::say::Step;

const LIVE_LIMIT: Duration = Duration::from_secs(300);

pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<Vec<Figure>> {
    let gitea = Gitea::start().await;
    let place = tempfile::tempdir()?;
    let mut subject = Subject::prepare(program, &gitea, place.path(), count, Runner::Hold)?;
    subject.serve(&gitea).await?;
    let step = Step::begin(format!("{count} jobs at once"));
    gitea.push((0..count).map(|_| JobSpec::new("live").runs_on(["local"])).collect());
    gitea.wait_for("every task was handed out", |gitea| gitea.held().len() >= count, LIVE_LIMIT).await?;
    gitea.wait_for("the first step of every job runs", |gitea| running(gitea) >= count, LIVE_LIMIT).await?;
    let Memory { all, own } = subject.memory()?;
    step.end("done");
    Ok(vec![
        Figure::new(format!("memory while {count} jobs run: resident"), mib(all), ""),
        Figure::new(format!("memory while {count} jobs run: of it private"), mib(own), ""),
    ])
}

fn running(gitea: &Gitea) -> usize {
    let runs = |job: &JobId| gitea.state(*job).steps.first().is_some_and(|step| step.status == Status::Running);
    gitea.jobs().iter().filter(|job| runs(job)).count()
}
