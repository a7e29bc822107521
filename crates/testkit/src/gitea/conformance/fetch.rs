//! Questions about FetchTask, the tasks version, labels and Declare (§4, §5).

use anyhow::{Context as _, ensure};
use runner_proto::runner::v1::Task;

use super::{Bench, JobSpec, Question, Service, StepSpec};

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Does a fetch with the server's own version find a waiting job?",
        rules: &["version_gate"],
        ask: |bench| Box::pin(own_version(bench)),
    },
    Question {
        name: "Does a version above the server's open the gate?",
        rules: &["gate_is_inequality"],
        ask: |bench| Box::pin(later_version(bench)),
    },
    Question {
        name: "How far do two jobs of one run raise the version?",
        rules: &["run_bumps_once"],
        ask: |bench| Box::pin(one_bump(bench)),
    },
    Question {
        name: "Does a job's end raise the version while another waits?",
        rules: &["finish_bumps"],
        ask: |bench| Box::pin(no_bump_at_the_end(bench)),
    },
    Question {
        name: "Does cancelling a waiting job raise the version?",
        rules: &["cancel_bumps"],
        ask: |bench| Box::pin(no_bump_by_cancel(bench)),
    },
    Question {
        name: "Does disabling and enabling a runner raise the version?",
        rules: &["disabling_bumps"],
        ask: |bench| Box::pin(bumps_by_service(bench)),
    },
    Question {
        name: "Is a job given to a runner that declared only one of its labels?",
        rules: &["every_label_needed"],
        ask: |bench| Box::pin(every_label(bench)),
    },
    Question {
        name: "Is a job without runs-on given to a runner without labels?",
        rules: &["unlabelled_goes_anywhere"],
        ask: |bench| Box::pin(unlabelled(bench)),
    },
    Question {
        name: "Is the job that waits longest handed out first?",
        rules: &["oldest_first"],
        ask: |bench| Box::pin(oldest_first(bench)),
    },
    Question {
        name: "Is a task handed out a second time?",
        rules: &["claim_is_final"],
        ask: |bench| Box::pin(handed_out_once(bench)),
    },
    Question {
        name: "Is a disabled runner given a job?",
        rules: &["disabled_gets_nothing"],
        ask: |bench| Box::pin(disabled(bench)),
    },
];

async fn own_version(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    bench.server.push(vec![bench.job("a", 1), bench.job("b", 1)]).await?;
    let first = runner.fetch(0).await?;
    ensure!(first.task.is_set(), "version 0 gives the first job");
    let none = runner.fetch(first.tasks_version).await?;
    ensure!(none.task.is_unset(), "the second job was given out under the version that was known");
    ensure!(runner.take().await?.is_some(), "version 0 gives the second job");
    Ok(())
}

async fn later_version(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let version = runner.fetch(0).await?.tasks_version;
    bench.server.push(vec![bench.job("a", 1)]).await?;
    ensure!(runner.fetch(version + 8).await?.task.is_set(), "a version from the future opens the gate");
    Ok(())
}

async fn one_bump(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let before = runner.fetch(0).await?.tasks_version;
    bench.server.push(vec![bench.job("a", 1), bench.job("b", 1)]).await?;
    let after = runner.fetch(0).await?.tasks_version;
    ensure!(after == before + 1, "the version went from {before} to {after}");
    Ok(())
}

async fn no_bump_at_the_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    bench.server.push(vec![bench.job("waits", 1)]).await?;
    let watcher = bench.runner(&[]).await?;
    let before = watcher.fetch(0).await?.tasks_version;
    held.report(runner_proto::runner::v1::Result::Success, vec![]).await?;
    let after = watcher.fetch(0).await?.tasks_version;
    ensure!(after == before, "the version went from {before} to {after}");
    Ok(())
}

async fn no_bump_by_cancel(bench: &Bench<'_>) -> anyhow::Result<()> {
    let watcher = bench.runner(&[]).await?;
    let job = *bench.server.push(vec![bench.job("waits", 1)]).await?.first().context("one job")?;
    let before = watcher.fetch(0).await?.tasks_version;
    bench.server.cancel(job).await?;
    let after = watcher.fetch(0).await?.tasks_version;
    ensure!(after == before, "the version went from {before} to {after}");
    Ok(())
}

async fn bumps_by_service(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (watcher, other) = (bench.runner(&[]).await?, bench.runner(&[]).await?);
    let uuid = &other.credentials().context("registered")?.uuid;
    let before = watcher.fetch(0).await?.tasks_version;
    bench.server.set_service(uuid, Service::Off).await?;
    let off = watcher.fetch(0).await?.tasks_version;
    bench.server.set_service(uuid, Service::On).await?;
    let on = watcher.fetch(0).await?.tasks_version;
    ensure!(before < off && off < on, "the versions were {before}, {off}, {on}");
    Ok(())
}

async fn every_label(bench: &Bench<'_>) -> anyhow::Result<()> {
    let second = bench.second_label();
    let one = bench.runner(&[&bench.label]).await?;
    let both = bench.runner(&[&bench.label, &second]).await?;
    bench.server.push(vec![bench.job("a", 1).runs_on([&bench.label, &second])]).await?;
    ensure!(one.take().await?.is_none(), "one of two labels is not enough");
    ensure!(both.take().await?.is_some(), "both labels are enough");
    Ok(())
}

async fn unlabelled(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let job = JobSpec::new("bare").runs_on([] as [&str; 0]).steps([StepSpec::run("echo")]);
    bench.server.push(vec![job]).await?;
    ensure!(runner.take().await?.is_some(), "it goes to any runner");
    Ok(())
}

async fn oldest_first(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    bench.server.push(vec![bench.job("older", 1), bench.job("newer", 1)]).await?;
    let key = |task: Option<Task>| {
        task.and_then(|task| task.context.as_option()?.fields.get("job")?.as_str().map(str::to_owned))
    };
    let (first, second) = (key(runner.take().await?), key(runner.take().await?));
    ensure!(first.as_deref() == Some("older") && second.as_deref() == Some("newer"), "{first:?}, then {second:?}");
    Ok(())
}

async fn handed_out_once(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    ensure!(held.runner.take().await?.is_none(), "a held task was handed out again");
    Ok(())
}

async fn disabled(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    bench.server.push(vec![bench.job("a", 1)]).await?;
    let uuid = &runner.credentials().context("registered")?.uuid;
    bench.server.set_service(uuid, Service::Off).await?;
    ensure!(runner.take().await?.is_none(), "a disabled runner was given a job");
    bench.server.set_service(uuid, Service::On).await?;
    ensure!(runner.take().await?.is_some(), "an enabled runner is given it");
    Ok(())
}
