//! Memory and CPU time after many finished jobs. Every job has a real executor behind walls; only its runner is a
//! stand-in that ends at once, so that what is left is the controller's own. Its descendants' time is told apart.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use testkit::gitea::{Gitea, JobSpec, Status};

use super::figure::{Figure, mib};
use super::process::Memory;
use super::subject::{Runner, Subject};
use crate::say::Step;

/// Slots: enough to keep every core busy.
const AT_ONCE: usize = 8;
/// Pushed at once: enough that nobody waits for the next push.
const PUSH: usize = 100;
const LOOK: Duration = Duration::from_millis(200);
/// Without a job that ended in this time, none will.
const STUCK: Duration = Duration::from_secs(60);

pub(super) async fn measure(program: &Path, counts: &[usize]) -> anyhow::Result<Vec<Figure>> {
    let gitea = Gitea::start().await;
    let place = tempfile::tempdir()?;
    let mut subject = Subject::prepare(program, &gitea, place.path(), AT_ONCE, Runner::Finish)?;
    subject.serve(&gitea).await?;
    let (mut figures, mut done) = (Vec::new(), 0);
    for &count in counts {
        let (began, before) = (Instant::now(), subject.cpu()?);
        finish(&subject, &gitea, count).await?;
        let (took, spent, memory) = (began.elapsed(), subject.cpu()? - before, subject.memory()?);
        let jobs = count.saturating_sub(done).max(1) as f64;
        let per_thousand = |time: Duration| format!("{:.1} s", time.as_secs_f64() * 1000.0 / jobs);
        let Memory { all, own } = memory;
        figures.extend([
            Figure::new(format!("memory after {count} finished jobs: resident"), mib(all), "as before"),
            Figure::new(format!("memory after {count} finished jobs: of it private"), mib(own), "as before"),
            Figure::new(format!("CPU per 1,000 jobs up to {count}: controller"), per_thousand(spent.own), ""),
            Figure::new(format!("CPU per 1,000 jobs up to {count}: executors"), per_thousand(spent.ended), ""),
            Figure::new(
                format!("finished jobs per second up to {count}, {AT_ONCE} at once"),
                format!("{:.1}", jobs / took.as_secs_f64()),
                "",
            ),
        ]);
        done = count;
    }
    Ok(figures)
}

/// Returns when so many jobs have ended, all with success, and nothing is left of them.
async fn finish(subject: &Subject, gitea: &Gitea, count: usize) -> anyhow::Result<()> {
    let mut step = Step::begin(format!("{count} finished jobs"));
    let (mut last, mut progress) = (0, Instant::now());
    loop {
        let (pushed, ended) = (gitea.jobs().len(), gitea.count(Status::Success));
        if ended == count && subject.executors() == 0 {
            break;
        }
        if pushed < count && gitea.count(Status::Waiting) < PUSH {
            let more = PUSH.min(count - pushed);
            gitea.push((0..more).map(|_| JobSpec::new("short").runs_on(["local"])).collect());
        }
        if ended > last {
            (last, progress) = (ended, Instant::now());
        }
        let failed = gitea.count(Status::Failure);
        ensure!(
            failed == 0 && progress.elapsed() < STUCK,
            "{ended} of {count} jobs ended, {failed} failed, the log:\n{}",
            subject.tail()
        );
        step.tick(&format!("{ended} of {count}"));
        tokio::time::sleep(LOOK).await;
    }
    step.end("done");
    Ok(())
}
