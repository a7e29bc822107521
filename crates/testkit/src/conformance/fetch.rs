//! Questions about FetchTask, the tasks version, labels and Declare (§4, §5).

use anyhow::{Context as _, ensure};
use runner_proto::runner::v1::Task;

use super::bench::{context, version};
use super::{Bench, Of, Question, Service};
use crate::gitea::Scope;

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Does a fetch with the server's own version find a waiting job?",
        rules: &["version_gate"],
        of: Of::Both,
        ask: |bench| Box::pin(own_version(bench)),
    },
    Question {
        name: "Does a version above the server's open the gate?",
        rules: &["gate_is_inequality"],
        of: Of::Both,
        ask: |bench| Box::pin(later_version(bench)),
    },
    Question {
        name: "How far do two jobs of one run raise the version?",
        rules: &["run_bumps_once"],
        of: Of::Both,
        ask: |bench| Box::pin(one_bump(bench)),
    },
    Question {
        name: "Does a job's end raise the version while another waits?",
        rules: &["finish_bumps"],
        of: Of::Both,
        ask: |bench| Box::pin(no_bump_at_the_end(bench)),
    },
    Question {
        name: "Does cancelling a waiting job raise the version?",
        rules: &["cancel_bumps"],
        of: Of::Both,
        ask: |bench| Box::pin(no_bump_by_cancel(bench)),
    },
    Question {
        name: "Does disabling and enabling a runner raise the version?",
        rules: &["disabling_bumps"],
        of: Of::Both,
        ask: |bench| Box::pin(bumps_by_service(bench)),
    },
    Question {
        name: "Is a job given to a runner that declared only one of its labels?",
        rules: &["every_label_needed"],
        of: Of::Both,
        ask: |bench| Box::pin(every_label(bench)),
    },
    Question {
        name: "Is a job without runs-on given to a runner without labels?",
        rules: &["unlabelled_goes_anywhere"],
        of: Of::Both,
        ask: |bench| Box::pin(unlabelled(bench)),
    },
    Question {
        name: "Is the job that waits longest handed out first?",
        rules: &["oldest_first"],
        of: Of::Both,
        ask: |bench| Box::pin(oldest_first(bench)),
    },
    Question {
        name: "Is a task handed out a second time?",
        rules: &["claim_is_final"],
        of: Of::Both,
        ask: |bench| Box::pin(handed_out_once(bench)),
    },
    Question {
        name: "Is a disabled runner given a job?",
        rules: &["disabled_gets_nothing"],
        of: Of::Both,
        ask: |bench| Box::pin(disabled(bench)),
    },
    Question {
        name: "Does a runner of one repository see the jobs of another, and one of all repositories both?",
        rules: &["scope_limits_jobs"],
        of: Of::Both,
        ask: |bench| Box::pin(scopes(bench)),
    },
    Question {
        name: "Are labels compared letter by letter?",
        rules: &["labels_case_sensitive"],
        of: Of::Both,
        ask: |bench| Box::pin(case(bench)),
    },
    Question {
        name: "Does Declare narrow and widen the labels without raising the version?",
        rules: &["declare_replaces_labels"],
        of: Of::Both,
        ask: |bench| Box::pin(declares(bench)),
    },
    Question {
        name: "Does the reply carry the server's version, with and without a task?",
        rules: &["version_in_reply"],
        of: Of::Both,
        ask: |bench| Box::pin(version_told(bench)),
    },
    Question {
        name: "Does a runner without a label get a job with one?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(no_label(bench)),
    },
    Question {
        name: "Which scopes have their version raised by a run, and who is given its job?",
        rules: &["version_reaches_owner"],
        of: Of::Both,
        ask: |bench| Box::pin(owner_scope(bench)),
    },
    Question {
        name: "Is the run that waits longest handed out first?",
        rules: &["oldest_first"],
        of: Of::Both,
        ask: |bench| Box::pin(oldest_run_first(bench)),
    },
    Question {
        name: "How many tasks can one registration hold?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(many(bench)),
    },
];

async fn own_version(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    bench.side.push(vec![bench.job("a", 1), bench.job("b", 1)]).await?;
    let first = runner.fetch(0).await?;
    ensure!(first.task.is_set(), "version 0 gives the first job");
    let none = runner.fetch(first.tasks_version).await?;
    ensure!(none.task.is_unset(), "the second job was given out under the version that was known");
    ensure!(runner.take().await?.is_some(), "version 0 gives the second job");
    Ok(())
}

async fn later_version(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let version = version(&runner).await?;
    bench.side.push(vec![bench.job("a", 1)]).await?;
    ensure!(runner.fetch(version + 8).await?.task.is_set(), "a version from the future opens the gate");
    Ok(())
}

async fn one_bump(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    let before = version(&runner).await?;
    bench.side.push(vec![bench.job("a", 1), bench.job("b", 1)]).await?;
    let after = version(&runner).await?;
    ensure!(after == before + 1, "the version went from {before} to {after}");
    Ok(())
}

async fn no_bump_at_the_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    bench.side.push(vec![bench.job("waits", 1)]).await?;
    let watcher = bench.runner(&[]).await?;
    let before = version(&watcher).await?;
    held.report(runner_proto::runner::v1::Result::Success, vec![]).await?;
    let after = version(&watcher).await?;
    ensure!(after == before, "the version went from {before} to {after}");
    Ok(())
}

async fn no_bump_by_cancel(bench: &Bench<'_>) -> anyhow::Result<()> {
    let watcher = bench.runner(&[]).await?;
    let job = *bench.side.push(vec![bench.job("waits", 1)]).await?.first().context("one job")?;
    let before = version(&watcher).await?;
    bench.side.cancel(job).await?;
    let after = version(&watcher).await?;
    ensure!(after == before, "the version went from {before} to {after}");
    Ok(())
}

async fn bumps_by_service(bench: &Bench<'_>) -> anyhow::Result<()> {
    let (watcher, other) = (bench.runner(&[]).await?, bench.runner(&[]).await?);
    let uuid = &other.credentials().context("registered")?.uuid;
    let before = version(&watcher).await?;
    bench.side.set_service(uuid, Service::Off).await?;
    let off = version(&watcher).await?;
    bench.side.set_service(uuid, Service::On).await?;
    let on = version(&watcher).await?;
    ensure!(before < off && off < on, "the versions were {before}, {off}, {on}");
    Ok(())
}

async fn every_label(bench: &Bench<'_>) -> anyhow::Result<()> {
    let second = bench.second_label();
    let one = bench.runner(&[&bench.label]).await?;
    let both = bench.runner(&[&bench.label, &second]).await?;
    bench.side.push(vec![bench.job("a", 1).runs_on([&bench.label, &second])]).await?;
    ensure!(one.take().await?.is_none(), "one of two labels is not enough");
    ensure!(both.take().await?.is_some(), "both labels are enough");
    Ok(())
}

async fn unlabelled(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    bench.push_one(bench.job("bare", 1).runs_on([] as [&str; 0])).await?;
    ensure!(runner.take().await?.is_some(), "it goes to any runner");
    Ok(())
}

async fn oldest_first(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    bench.side.push(vec![bench.job("older", 1), bench.job("newer", 1)]).await?;
    let key = |task: Option<Task>| task.and_then(|task| context(&task, "job"));
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
    bench.side.push(vec![bench.job("a", 1)]).await?;
    let uuid = &runner.credentials().context("registered")?.uuid;
    bench.side.set_service(uuid, Service::Off).await?;
    ensure!(runner.take().await?.is_none(), "a disabled runner was given a job");
    bench.side.set_service(uuid, Service::On).await?;
    ensure!(runner.take().await?.is_some(), "an enabled runner is given it");
    Ok(())
}

async fn scopes(bench: &Bench<'_>) -> anyhow::Result<()> {
    let other = format!("{}-other", bench.repository);
    bench.side.create_repository(&other).await?;
    let own = bench.runner(&[&bench.label]).await?;
    let all = bench.runner_of(&Scope::Global, &[&bench.label]).await?;
    bench.push_one(bench.job("elsewhere", 1).repository(&other)).await?;
    ensure!(own.take().await?.is_none(), "the runner of one repository was given a job of another");
    let task = all.take().await?.context("the runner of all repositories is given it")?;
    ensure!(context(&task, "repository") == Some(other), "it is of {:?}", context(&task, "repository"));
    bench.push_one(bench.job("here", 1)).await?;
    ensure!(own.take().await?.is_some(), "the runner of one repository is given its own job");
    Ok(())
}

async fn case(bench: &Bench<'_>) -> anyhow::Result<()> {
    let shouting = bench.label.to_uppercase();
    let runner = bench.runner(&[&shouting]).await?;
    bench.push_one(bench.job("j", 1)).await?;
    ensure!(runner.take().await?.is_none(), "{shouting} was given a job for {}", bench.label);
    Ok(())
}

async fn declares(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    bench.push_one(bench.job("j", 1)).await?;
    runner.declare(&["other"], &[]).await?;
    let before = runner.fetch(0).await?;
    ensure!(before.task.is_unset(), "a label that was taken back still counts");
    runner.declare(&["other", &bench.label], &[]).await?;
    let same = runner.fetch(before.tasks_version).await?;
    ensure!(same.task.is_unset() && same.tasks_version == before.tasks_version, "Declare raised the version");
    ensure!(runner.take().await?.is_some(), "a label that was added counts");
    Ok(())
}

async fn version_told(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let none = runner.fetch(7).await?.tasks_version;
    bench.push_one(bench.job("j", 1)).await?;
    let one = runner.fetch(7).await?;
    ensure!(none == 1 && one.task.is_set() && one.tasks_version == 2, "{none}, then {}", one.tasks_version);
    Ok(())
}

async fn no_label(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    bench.push_one(bench.job("j", 1)).await?;
    ensure!(runner.take().await?.is_none(), "it was given one");
    Ok(())
}

async fn many(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let sizes = ["a", "b", "c", "d", "e", "f", "g", "h"];
    bench.push_one(bench.job("m", 1).matrix("n", sizes)).await?;
    for size in sizes {
        ensure!(runner.take().await?.is_some(), "no task at {size}");
    }
    ensure!(runner.take().await?.is_none(), "there is one more task");
    Ok(())
}

async fn owner_scope(bench: &Bench<'_>) -> anyhow::Result<()> {
    let owner = bench.label.clone();
    let (own, foreign) = (format!("{owner}/one"), format!("{owner}-b/two"));
    bench.side.create_repository(&own).await?;
    bench.side.create_repository(&foreign).await?;
    let runner = bench.runner_of(&Scope::Owner(owner), &[&bench.label]).await?;
    let before = version(&runner).await?;
    bench.push_one(bench.job("j", 1).repository(&foreign)).await?;
    let unmoved = version(&runner).await?;
    bench.push_one(bench.job("j", 1).repository(&own)).await?;
    let answer = runner.fetch(0).await?;
    let versions = [before, unmoved, answer.tasks_version];
    ensure!(versions == [1, 1, 2] && answer.task.is_set(), "the versions are {versions:?}");
    Ok(())
}

async fn oldest_run_first(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    bench.push_one(bench.job("older", 1)).await?;
    bench.push_one(bench.job("newer", 1)).await?;
    let first = runner.take().await?.context("the older job")?;
    ensure!(context(&first, "job").as_deref() == Some("older"), "first comes {:?}", context(&first, "job"));
    Ok(())
}
