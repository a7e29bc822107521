//! Task available → handed out → durable → its runner spawned, one task after another. Until it is handed out a task
//! waits for the next question of an idle fetch loop (1 s, growing to 5 s; SCH-5), which is no work of ours.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use testkit::gitea::{Gitea, JobSpec, Method};

use super::figure::{Figure, millis};
use super::subject::{Runner, SOON, Subject, now};
use crate::samples::Samples;
use crate::say::Step;

pub(super) async fn measure(program: &Path, tasks: usize) -> anyhow::Result<Vec<Figure>> {
    let gitea = Gitea::start().await;
    let place = tempfile::tempdir()?;
    let mut subject = Subject::prepare(program, &gitea, place.path(), tasks, Runner::Hold)?;
    subject.serve(&gitea).await?;
    let mut step = Step::begin(format!("{tasks} tasks one after another"));
    let (mut handed_out, mut durable, mut spawned) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..tasks {
        step.tick(&format!("task {number}"));
        let available = now();
        let job = gitea.push_one(JobSpec::new("bench").runs_on(["local"]));
        let at = subject.runner_started(number, SOON).await?;
        let task = gitea.state(job).task.context("the task has no number")?;
        let fetched = fetched(&gitea, task).context("no FetchTask was answered with the task")?;
        let persisted = subject.dispatched(task)?;
        handed_out.push(fetched.saturating_sub(available));
        durable.push(persisted.saturating_sub(fetched));
        spawned.push(at.saturating_sub(persisted));
    }
    step.end("done");
    let row = |measure: &str, times: &Samples, percent, goal| {
        Figure::new(format!("{measure}, p{percent}"), millis(times.percentile(percent)), goal)
    };
    let [handed_out, durable, spawned] =
        [handed_out, durable, spawned].map(|times| times.into_iter().collect::<Samples>());
    Ok(vec![
        row("task available → handed out (the idle poll)", &handed_out, 50, ""),
        row("task handed out → durable", &durable, 50, ""),
        row("task handed out → durable", &durable, 99, "50 ms"),
        row("durable → runner spawned", &spawned, 50, ""),
        row("durable → runner spawned", &spawned, 99, ""),
    ])
}

/// When Gitea had answered a FetchTask with this task, on the wall clock.
pub(super) fn fetched(gitea: &Gitea, task: i64) -> Option<Duration> {
    let calls = gitea.calls_of(task);
    let fetch = calls.iter().find(|call| call.method == Method::FetchTask)?;
    Some((now() + fetch.took?).saturating_sub(fetch.instant.elapsed()))
}
