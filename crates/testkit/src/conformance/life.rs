//! Questions about what users and administrators do while tasks are held: rerun, delete, rename, disable, concurrency,
//! needs, matrix (§3.2, §4, §15).

use anyhow::{Context as _, ensure};
use runner_proto::runner::v1::Result as TaskResult;

use super::bench::{End, Held, context, finished, payload, settles, take_released, version};
use super::wire::refused_as;
use super::{Bench, Observed, Of, Question, Service};
use crate::gitea::{Action, Event, JobId, Others, Scope, Status};
use crate::runner_client::RunnerClient;

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Which webhooks go out when a job is pushed and fetched?",
        rules: &["start_is_announced"],
        of: Of::Both,
        ask: |bench| Box::pin(announced(bench)),
    },
    Question {
        name: "Is a rerun a new task, of the second attempt, with an empty log?",
        rules: &["rerun_bumps"],
        of: Of::Both,
        ask: |bench| Box::pin(rerun(bench)),
    },
    Question {
        name: "How far does a rerun of two jobs raise the version?",
        rules: &["rerun_bumps"],
        of: Of::Both,
        ask: |bench| Box::pin(rerun_of_two(bench)),
    },
    Question {
        name: "Does a rerun block the jobs that need others?",
        rules: &["rerun_blocks_dependents"],
        of: Of::Both,
        ask: |bench| Box::pin(rerun_with_needs(bench)),
    },
    Question {
        name: "What does an update of the first attempt do once the second runs?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(update_of_old_attempt(bench)),
    },
    Question {
        name: "How is a report on a task of a deleted run refused?",
        rules: &["deletion_forgets_tasks"],
        of: Of::Both,
        ask: |bench| Box::pin(deleted_run(bench)),
    },
    Question {
        name: "How is a report on a task of a deleted repository refused?",
        rules: &["deletion_forgets_tasks"],
        of: Of::Both,
        ask: |bench| Box::pin(deleted_repository(bench)),
    },
    Question {
        name: "Is the runner of a deleted repository still registered?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(runner_of_deleted_repository(bench)),
    },
    Question {
        name: "What becomes of the tasks of a deleted runner?",
        rules: &["deleted_runner_leaves_tasks"],
        of: Of::Both,
        ask: |bench| Box::pin(deleted_runner(bench)),
    },
    Question {
        name: "Does a renamed repository change anything for a held task, and for the next?",
        rules: &["renamed_at_fetch"],
        of: Of::Both,
        ask: |bench| Box::pin(renamed(bench)),
    },
    Question {
        name: "Can a disabled runner report what it holds?",
        rules: &["disabled_reports_on"],
        of: Of::Both,
        ask: |bench| Box::pin(disabled_reports(bench)),
    },
    Question {
        name: "Is a job run after all its needs, with their outputs and results?",
        rules: &["needs_release", "outputs_reach_dependents"],
        of: Of::Both,
        ask: |bench| Box::pin(needs(bench)),
    },
    Question {
        name: "What becomes of a job whose need failed?",
        rules: &["failed_need_skips", "needs_release"],
        of: Of::Both,
        ask: |bench| Box::pin(failed_need(bench)),
    },
    Question {
        name: "Is each combination of a matrix a task of its own?",
        rules: &["matrix_is_split"],
        of: Of::Both,
        ask: |bench| Box::pin(matrix(bench)),
    },
    Question {
        name: "Does a run wait for another of its concurrency group?",
        rules: &["concurrency_waits"],
        of: Of::Both,
        ask: |bench| Box::pin(group_waits(bench)),
    },
    Question {
        name: "Does cancel-in-progress cancel a running job of the group?",
        rules: &["concurrency_cancels"],
        of: Of::Both,
        ask: |bench| Box::pin(group_cancels(bench)),
    },
    Question {
        name: "What becomes of a run that waits for its group when a third is pushed?",
        rules: &["concurrency_waits"],
        of: Of::Both,
        ask: |bench| Box::pin(group_of_three(bench)),
    },
    Question {
        name: "What becomes of a run that nobody fetched when another of its group is pushed?",
        rules: &["concurrency_spares_running_only"],
        of: Of::Both,
        ask: |bench| Box::pin(group_unfetched(bench)),
    },
    Question {
        name: "What becomes of a job whose need ended as cancelled?",
        rules: &["failed_need_skips"],
        of: Of::Both,
        ask: |bench| Box::pin(cancelled_need(bench)),
    },
    Question {
        name: "Does a cancel end the jobs that wait for others as well?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(cancel_of_all(bench)),
    },
];

async fn announced(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let job = bench.push_one(bench.job("j", 1)).await?;
    let count =
        |seen: &Observed| [Action::Queued, Action::InProgress].map(|action| seen.delivered(Event::WorkflowJob, action));
    let pushed = count(&settles(bench, job, |seen| count(seen) == [1, 0]).await?);
    runner.take().await?.context("a task")?;
    let fetched = count(&settles(bench, job, |seen| count(seen) == [1, 1]).await?);
    ensure!((pushed, fetched) == ([1, 0], [1, 1]), "(queued, in progress): {pushed:?}, then {fetched:?}");
    Ok(())
}

async fn ended(bench: &Bench<'_>) -> anyhow::Result<Held> {
    let held = bench.held().await?;
    held.log(0, &["first attempt"], End::NoMore).await?;
    held.report(TaskResult::Failure, vec![finished(0, 0, 1), finished(1, 0, 0), finished(2, 0, 0)]).await?;
    Ok(held)
}

async fn rerun(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = ended(bench).await?;
    let before = version(&held.runner).await?;
    bench.side.rerun(held.job).await?;
    let task = take_released(bench, &held.runner).await?;
    ensure!(task.id != held.task.id, "the same task came again");
    let attempts = (context(&held.task, "run_attempt"), context(&task, "run_attempt"));
    ensure!(attempts == (Some("1".into()), Some("2".into())), "the attempts are {attempts:?}");
    let seen = bench.look(&held).await?;
    ensure!(seen.status == Status::Running, "the job is {:?}", seen.status);
    ensure!(seen.rows.is_empty(), "the log has {:?}", seen.rows);
    ensure!(seen.step_statuses() == [Status::Waiting; 3], "the steps are {:?}", seen.step_statuses());
    let after = version(&held.runner).await?;
    ensure!(after == before + 1, "the version went from {before} to {after}");
    Ok(())
}

/// Two jobs of one run that have both ended.
async fn two_ended(bench: &Bench<'_>, runner: &RunnerClient, needs: &[&str]) -> anyhow::Result<Vec<JobId>> {
    let jobs = vec![bench.job("a", 1), bench.job("b", 1).needs(needs.iter().copied())];
    let jobs = bench.side.push(jobs).await?;
    for job in &jobs {
        let held = Held { runner: runner.clone(), job: *job, task: take_released(bench, runner).await? };
        held.report(TaskResult::Success, vec![]).await?;
    }
    Ok(jobs)
}

async fn rerun_of_two(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = two_ended(bench, &runner, &[]).await?;
    let watcher = bench.runner(&[]).await?;
    let before = version(&watcher).await?;
    bench.side.rerun(jobs[0]).await?;
    let after = version(&watcher).await?;
    ensure!(after == before + 2, "the version went from {before} to {after}");
    Ok(())
}

async fn rerun_with_needs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = two_ended(bench, &runner, &["a"]).await?;
    bench.side.rerun(jobs[0]).await?;
    let second = bench.side.look(jobs[1]).await?.status;
    ensure!(second == Status::Blocked, "the job that needs the other is {second:?}");
    let held = Held { runner: runner.clone(), job: jobs[0], task: take_released(bench, &runner).await? };
    ensure!(context(&held.task, "job").as_deref() == Some("a"), "the first job goes first");
    held.report(TaskResult::Success, vec![]).await?;
    ensure!(context(&take_released(bench, &runner).await?, "job").as_deref() == Some("b"), "the second follows");
    Ok(())
}

async fn update_of_old_attempt(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = ended(bench).await?;
    bench.side.rerun(held.job).await?;
    take_released(bench, &held.runner).await?;
    let result = held.report(TaskResult::Success, vec![]).await?;
    ensure!(result == TaskResult::Failure, "the old attempt is {result:?}");
    let status = bench.look(&held).await?.status;
    ensure!(status == Status::Running, "the job is {status:?}");
    Ok(())
}

/// Both reports on a task that is gone.
async fn gone(held: &Held) -> anyhow::Result<()> {
    let update = held.runner.update(held.state(TaskResult::Unspecified, vec![])).await;
    refused_as(update, "rpc error: code = Internal desc = update task: resource does not exist")?;
    let log = held.runner.update_log(&held.log_request(0, &["late"], End::More)).await;
    let task = held.task.id;
    refused_as(
        log,
        &format!("rpc error: code = Internal desc = get task: task with id {task}: resource does not exist"),
    )
}

async fn deleted_run(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    bench.side.cancel(held.job).await?;
    bench.side.delete_run(held.job).await?;
    gone(&held).await
}

async fn deleted_repository(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner_of(&Scope::Global, &[&bench.label]).await?;
    let job = bench.push_one(bench.job("j", 1)).await?;
    let held = Held { task: runner.take().await?.context("a task")?, runner, job };
    bench.side.delete_repository(&bench.repository).await?;
    gone(&held).await
}

async fn runner_of_deleted_repository(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[]).await?;
    bench.side.delete_repository(&bench.repository).await?;
    refused_as(runner.take().await, "rpc error: code = Unauthenticated desc = unregistered runner")
}

async fn deleted_runner(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let uuid = &held.runner.credentials().context("registered")?.uuid;
    bench.side.delete_runner(uuid).await?;
    let unregistered = "rpc error: code = Unauthenticated desc = unregistered runner";
    refused_as(held.runner.update(held.state(TaskResult::Unspecified, vec![])).await, unregistered)?;
    refused_as(held.runner.take().await, unregistered)?;
    let status = bench.look(&held).await?.status;
    ensure!(status == Status::Running, "the job is {status:?}");
    Ok(())
}

async fn renamed(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = bench.side.push(vec![bench.job("a", 1), bench.job("b", 1)]).await?;
    let held = Held { task: runner.take().await?.context("the first task")?, runner, job: jobs[0] };
    ensure!(context(&held.task, "repository").as_ref() == Some(&bench.repository), "the first task has the old name");
    let name = format!("{}-renamed", bench.repository.rsplit('/').next().unwrap_or_default());
    bench.side.rename_repository(&bench.repository, &name).await?;
    held.log(0, &["row"], End::NoMore).await?;
    held.report(TaskResult::Success, vec![]).await?;
    let status = bench.look(&held).await?.status;
    ensure!(status == Status::Success, "the held task ended as {status:?}");
    let next = context(&held.runner.take().await?.context("the second task")?, "repository").unwrap_or_default();
    ensure!(next.ends_with(&format!("/{name}")), "the second task names {next}");
    Ok(())
}

async fn disabled_reports(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let uuid = &held.runner.credentials().context("registered")?.uuid;
    bench.side.set_service(uuid, Service::Off).await?;
    ensure!(held.heartbeat().await? == TaskResult::Unspecified, "the heartbeat is answered with a result");
    ensure!(held.log(0, &["row"], End::NoMore).await? == 1, "the row is stored");
    ensure!(held.report(TaskResult::Success, vec![]).await? == TaskResult::Success, "the end is stored");
    Ok(())
}

async fn needs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = vec![bench.job("a", 1), bench.job("b", 1), bench.job("c", 1).needs(["a", "b"])];
    let jobs = bench.side.push(jobs).await?;
    let waiting = |seen: &Observed| seen.delivered(Event::WorkflowJob, Action::Waiting);
    let blocked = settles(bench, jobs[2], |seen| waiting(seen) == 1).await?;
    ensure!(blocked.status == Status::Blocked, "the dependent is {:?}", blocked.status);
    ensure!(waiting(&blocked) == 1, "{:?}", blocked.deliveries);
    for (job, value) in jobs.iter().zip(["one", "two"]) {
        let held = Held { task: runner.take().await?.context("a need")?, runner: runner.clone(), job: *job };
        ensure!(held.task.needs.is_empty(), "a job without needs was told some");
        super::update::outputs(&held, &[("v", value)]).await?;
        held.report(TaskResult::Success, vec![]).await?;
    }
    let task = take_released(bench, &runner).await?;
    let mut told: Vec<_> = task
        .needs
        .iter()
        .map(|(key, need)| (key.as_str(), need.outputs.get("v").cloned().unwrap_or_default(), need.result.as_known()))
        .collect();
    told.sort_by_key(|(key, ..)| *key);
    let success = Some(TaskResult::Success);
    ensure!(told == [("a", "one".to_owned(), success), ("b", "two".to_owned(), success)], "{told:?}");
    ensure!(!payload(&task).contains("needs"), "the payload tells needs: {}", payload(&task));
    Ok(())
}

async fn failed_need(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = bench.side.push(vec![bench.job("a", 1), bench.job("b", 1).needs(["a"])]).await?;
    let held = Held { task: runner.take().await?.context("the need")?, runner, job: jobs[0] };
    held.report(TaskResult::Failure, vec![]).await?;
    let completed = |seen: &Observed| seen.delivered(Event::WorkflowJob, Action::Completed);
    let seen = settles(bench, jobs[1], |seen| seen.status.is_end() && completed(seen) == 1).await?;
    ensure!(seen.status == Status::Skipped, "the dependent is {:?}", seen.status);
    ensure!(completed(&seen) == 1, "{:?}", seen.deliveries);
    Ok(())
}

async fn matrix(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = bench.side.push(vec![bench.job("m", 1).matrix("size", ["small", "large"])]).await?;
    ensure!(jobs.len() == 2, "there are {} jobs", jobs.len());
    let mut seen = Vec::new();
    for _ in jobs {
        let task = runner.take().await?.context("a task of the matrix")?;
        ensure!(context(&task, "job").as_deref() == Some("m"), "the key is {:?}", context(&task, "job"));
        let text = payload(&task);
        seen.push(
            ["small", "large"]
                .map(|size| (text.contains(&format!("name: m ({size})\n")), text.contains(&format!("- {size}\n")))),
        );
    }
    seen.sort();
    let (yes, no) = ((true, true), (false, false));
    ensure!(seen == [[no, yes], [yes, no]], "(name, value) of each size: {seen:?}");
    Ok(())
}

async fn group_waits(bench: &Bench<'_>) -> anyhow::Result<()> {
    let job = || bench.job("j", 1).concurrency("deploy", Others::GoOn);
    let held = bench.hold(job()).await?;
    let second = bench.push_one(job()).await?;
    let seen = bench.side.look(second).await?;
    ensure!(seen.status == Status::Blocked, "the second is {:?}", seen.status);
    ensure!(held.runner.take().await?.is_none(), "the second was handed out");
    ensure!(held.heartbeat().await? == TaskResult::Unspecified, "the first goes on");
    held.report(TaskResult::Success, vec![]).await?;
    take_released(bench, &held.runner).await?;
    Ok(())
}

async fn group_cancels(bench: &Bench<'_>) -> anyhow::Result<()> {
    let job = || bench.job("j", 1).concurrency("deploy", Others::AreCancelled);
    let held = bench.hold(job()).await?;
    let second = bench.push_one(job()).await?;
    ensure!(held.heartbeat().await? == TaskResult::Cancelled, "the first is told to stop");
    let seen = bench.side.look(second).await?;
    ensure!(seen.status == Status::Waiting, "the second is {:?}", seen.status);
    take_released(bench, &held.runner).await?;
    Ok(())
}

async fn group_of_three(bench: &Bench<'_>) -> anyhow::Result<()> {
    let job = || bench.job("j", 1).concurrency("deploy", Others::GoOn);
    let held = bench.hold(job()).await?;
    let second = bench.push_one(job()).await?;
    let third = bench.push_one(job()).await?;
    let statuses = (bench.look(&held).await?.status, bench.side.look(second).await?.status);
    ensure!(statuses == (Status::Running, Status::Cancelled), "first and second are {statuses:?}");
    let status = bench.side.look(third).await?.status;
    ensure!(status == Status::Blocked, "the third is {status:?}");
    Ok(())
}

async fn group_unfetched(bench: &Bench<'_>) -> anyhow::Result<()> {
    let job = || bench.job("j", 1).concurrency("deploy", Others::GoOn);
    let first = bench.push_one(job()).await?;
    let second = bench.push_one(job()).await?;
    let statuses = (bench.side.look(first).await?.status, bench.side.look(second).await?.status);
    ensure!(statuses == (Status::Cancelled, Status::Waiting), "first and second are {statuses:?}");
    Ok(())
}

async fn cancelled_need(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = bench.side.push(vec![bench.job("a", 1), bench.job("b", 1).needs(["a"])]).await?;
    let held = Held { task: runner.take().await?.context("the need")?, runner, job: jobs[0] };
    held.report(TaskResult::Cancelled, vec![]).await?;
    let seen = settles(bench, jobs[1], |seen| seen.status.is_end()).await?;
    ensure!(seen.status == Status::Skipped, "the dependent is {:?}", seen.status);
    Ok(())
}

async fn cancel_of_all(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = vec![bench.job("a", 1), bench.job("b", 1), bench.job("c", 1).needs(["a"])];
    let jobs = bench.side.push(jobs).await?;
    runner.take().await?.context("the first job")?;
    bench.side.cancel(jobs[0]).await?;
    for job in jobs {
        let seen = bench.side.look(job).await?;
        let completed = seen.delivered(Event::WorkflowJob, Action::Completed);
        ensure!(seen.status == Status::Cancelled && completed == 1, "{:?}, {completed} webhooks", seen.status);
    }
    Ok(())
}
