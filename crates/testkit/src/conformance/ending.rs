//! Questions about cancel and the sweeps (§6, §8).

use anyhow::ensure;
use connectrpc::ErrorCode;
use runner_proto::runner::v1::Result as TaskResult;

use super::bench::{End, Held, finished, running};
use super::{Bench, Of, Question};
use crate::gitea::{Action, Event, Status};

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Is a cancel a handshake for a runner that declared it?",
        rules: &["cancelling"],
        of: Of::Both,
        ask: |bench| Box::pin(cancel_at_once(bench)),
    },
    Question {
        name: "Does a cancel close the open steps?",
        rules: &["cancel_closes_steps"],
        of: Of::Both,
        ask: |bench| Box::pin(cancelled_steps(bench)),
    },
    Question {
        name: "Are step updates on a cancelled task stored?",
        rules: &["cancelled_freezes_steps"],
        of: Of::Both,
        ask: |bench| Box::pin(frozen_steps(bench)),
    },
    Question {
        name: "Is a silent task failed, with its steps closed and its log sealed?",
        rules: &["zombie_ends_silent", "zombie_archives_rows", "zombie_closes_steps"],
        of: Of::Hasty,
        ask: |bench| Box::pin(zombie(bench)),
    },
    Question {
        name: "Is the log of a silent task without a row left open?",
        rules: &["zombie_leaves_empty_log_open"],
        of: Of::Hasty,
        ask: |bench| Box::pin(zombie_without_rows(bench)),
    },
    Question {
        name: "Does an UpdateTask without a change keep a task alive?",
        rules: &["heartbeat_keeps_alive"],
        of: Of::Hasty,
        ask: |bench| Box::pin(heartbeats(bench)),
    },
    Question {
        name: "Do new log rows keep a task alive?",
        rules: &["rows_keep_alive"],
        of: Of::Hasty,
        ask: |bench| Box::pin(rows(bench)),
    },
    Question {
        name: "Do log calls without new rows keep a task alive?",
        rules: &["bare_log_keeps_nothing_alive"],
        of: Of::Hasty,
        ask: |bench| Box::pin(bare_logs(bench)),
    },
    Question {
        name: "Does the endless limit count the time before the first report?",
        rules: &["endless_counts_from_fetch"],
        of: Of::Hasty,
        ask: |bench| Box::pin(endless(bench)),
    },
    Question {
        name: "Is a job cancelled that nobody fetches?",
        rules: &["abandoned_is_cancelled"],
        of: Of::Hasty,
        ask: |bench| Box::pin(abandoned(bench)),
    },
    Question {
        name: "What does a report on a task say that a sweep has ended?",
        rules: &["zombie_ends_silent", "first_terminal_wins"],
        of: Of::Hasty,
        ask: |bench| Box::pin(report_after_sweep(bench)),
    },
    Question {
        name: "What does a cancel before the fetch leave?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(cancel_before_fetch(bench)),
    },
    Question {
        name: "Does a cancel win over a success that is reported later?",
        rules: &["cancel_wins", "cancelled_in_reply"],
        of: Of::Both,
        ask: |bench| Box::pin(success_after_cancel(bench)),
    },
    Question {
        name: "Does a cancel after the end change anything?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(cancel_after_end(bench)),
    },
];

async fn cancel_at_once(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.runner.declare(&[&bench.label], &["cancelling"]).await?;
    held.heartbeat().await?;
    bench.side.cancel(held.job).await?;
    let status = bench.look(&held).await?.status;
    ensure!(status == Status::Cancelled, "the job is {status:?}");
    Ok(())
}

async fn cancelled_steps(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Unspecified, vec![finished(0, 0, 1), running(1, 1, 1)]).await?;
    bench.side.cancel(held.job).await?;
    let statuses = bench.look(&held).await?.step_statuses();
    ensure!(statuses == [Status::Success, Status::Cancelled, Status::Cancelled], "the steps are {statuses:?}");
    Ok(())
}

async fn frozen_steps(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Unspecified, vec![running(0, 0, 1)]).await?;
    bench.side.cancel(held.job).await?;
    held.report(TaskResult::Success, vec![finished(0, 0, 7)]).await?;
    let step = bench.look(&held).await?.steps[0].clone();
    ensure!(step.status == Status::Cancelled && step.log_length == 1, "the step is {step:?}");
    Ok(())
}

async fn zombie(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["a"], End::More).await?;
    held.report(TaskResult::Unspecified, vec![finished(0, 0, 1), running(1, 1, 0)]).await?;
    bench.side.let_pass(bench.side.zombie_after()).await?;
    let seen = bench.look(&held).await?;
    ensure!(seen.status == Status::Failure, "the job is {:?}", seen.status);
    let statuses = seen.step_statuses();
    ensure!(statuses == [Status::Success, Status::Failure, Status::Failure], "the steps are {statuses:?}");
    let refused = held.runner.update_log(&held.log_request(1, &["late"], End::NoMore)).await;
    let code = refused.err().and_then(|error| error.code());
    ensure!(code == Some(ErrorCode::AlreadyExists), "a late row was answered {code:?}");
    Ok(())
}

async fn zombie_without_rows(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    bench.side.let_pass(bench.side.zombie_after()).await?;
    let ack = held.log(0, &["late"], End::NoMore).await?;
    ensure!(ack == 1, "{ack} rows are acknowledged");
    Ok(())
}

/// Lets the zombie limit pass in parts, each shorter than the limit, with a sign of life between.
async fn with_signs(bench: &Bench<'_>, held: &Held, sign: Sign) -> anyhow::Result<Status> {
    let part = bench.side.zombie_after() / 3;
    for number in 0..6 {
        bench.side.let_pass(part).await?;
        match sign {
            Sign::Heartbeat => held.heartbeat().await.map(drop)?,
            Sign::NewRow => held.log(number, &["row"], End::More).await.map(drop)?,
            Sign::OldRow => held.log(0, &["row"], End::More).await.map(drop).or_else(|error| sealed(&error))?,
        }
    }
    Ok(bench.look(held).await?.status)
}

/// A call on a log that a sweep has sealed is no sign of life either.
fn sealed(error: &anyhow::Error) -> anyhow::Result<()> {
    ensure!(error.to_string().contains("archived"), "{error}");
    Ok(())
}

#[derive(Clone, Copy)]
enum Sign {
    Heartbeat,
    NewRow,
    OldRow,
}

async fn heartbeats(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let status = with_signs(bench, &held, Sign::Heartbeat).await?;
    ensure!(status == Status::Running, "the job is {status:?}");
    Ok(())
}

async fn rows(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let status = with_signs(bench, &held, Sign::NewRow).await?;
    ensure!(status == Status::Running, "the job is {status:?}");
    Ok(())
}

async fn bare_logs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.log(0, &["row"], End::More).await?;
    let status = with_signs(bench, &held, Sign::OldRow).await?;
    ensure!(status == Status::Failure, "the job is {status:?}");
    Ok(())
}

async fn endless(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let part = bench.side.zombie_after() / 3;
    let mut passed = std::time::Duration::ZERO;
    while passed <= bench.side.endless_after() {
        bench.side.let_pass(part).await?;
        passed += part;
        // Rows are signs of life, but no report of the task's state.
        let index = i64::try_from(passed.as_nanos() / part.as_nanos())? - 1;
        if held.log(index, &["row"], End::More).await.is_err() {
            break;
        }
    }
    let status = bench.look(&held).await?.status;
    ensure!(status == Status::Failure, "after {passed:?} the job is {status:?}");
    Ok(())
}

async fn abandoned(bench: &Bench<'_>) -> anyhow::Result<()> {
    let job = bench.push_one(bench.job("j", 1)).await?;
    bench.side.let_pass(bench.side.abandoned_after()).await?;
    let status = bench.side.look(job).await?.status;
    ensure!(status == Status::Cancelled, "the job is {status:?}");
    Ok(())
}

async fn report_after_sweep(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    bench.side.let_pass(bench.side.zombie_after()).await?;
    let told = [held.heartbeat().await?, held.report(TaskResult::Success, vec![]).await?];
    ensure!(told == [TaskResult::Failure; 2], "the replies say {told:?}");
    Ok(())
}

async fn cancel_before_fetch(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let job = bench.push_one(bench.job("j", 1)).await?;
    bench.side.cancel(job).await?;
    ensure!(runner.take().await?.is_none(), "it was handed out");
    let seen = bench.side.look(job).await?;
    ensure!(seen.status == Status::Cancelled, "the job is {:?}", seen.status);
    let completed = seen.delivered(Event::WorkflowJob, Action::Completed);
    ensure!(completed == 1, "{completed} webhooks say that it is over");
    Ok(())
}

async fn success_after_cancel(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    bench.side.cancel(held.job).await?;
    let told = [held.heartbeat().await?, held.report(TaskResult::Success, vec![]).await?];
    ensure!(told == [TaskResult::Cancelled; 2], "the replies say {told:?}");
    let status = bench.look(&held).await?.status;
    ensure!(status == Status::Cancelled, "the job is {status:?}");
    Ok(())
}

async fn cancel_after_end(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Success, vec![]).await?;
    bench.side.cancel(held.job).await?;
    let seen = bench.look(&held).await?;
    let completed = seen.delivered(Event::WorkflowJob, Action::Completed);
    ensure!(seen.status == Status::Success && completed == 1, "{:?}, {completed} webhooks", seen.status);
    Ok(())
}
