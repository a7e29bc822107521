//! Questions about UpdateTask: steps, outputs, the end (§6, §7).

use std::collections::HashMap;

use anyhow::{Context as _, ensure};
use runner_proto::runner::v1::{Result as TaskResult, StepState, UpdateTaskRequest};

use super::bench::{Held, at, finished, running, take_released};
use super::{Bench, Of, Question};
use crate::gitea::{Action, Event, Status};

pub(super) const QUESTIONS: &[Question] = &[
    Question {
        name: "Are the steps stored as they are reported?",
        rules: &["steps_stored"],
        of: Of::Both,
        ask: |bench| Box::pin(reported_steps(bench)),
    },
    Question {
        name: "What becomes of a finished step that a heartbeat leaves out?",
        rules: &["absent_steps_reset"],
        of: Of::Both,
        ask: |bench| Box::pin(absent_steps(bench)),
    },
    Question {
        name: "Can times and log ranges of a step be set back to zero?",
        rules: &["zeroes_not_written"],
        of: Of::Both,
        ask: |bench| Box::pin(zeroes(bench)),
    },
    Question {
        name: "What becomes of a step that the job does not have?",
        rules: &["unknown_steps_ignored"],
        of: Of::Both,
        ask: |bench| Box::pin(unknown_step(bench)),
    },
    Question {
        name: "When does a job end whose terminal update names a time, and one whose does not?",
        rules: &["stopped_at_kept"],
        of: Of::Both,
        ask: |bench| Box::pin(end_time(bench)),
    },
    Question {
        name: "Does a second value replace a stored output?",
        rules: &["outputs_insert_if_absent"],
        of: Of::Both,
        ask: |bench| Box::pin(output_twice(bench)),
    },
    Question {
        name: "Are outputs stored whose key or value is too large?",
        rules: &["large_outputs_skipped"],
        of: Of::Both,
        ask: |bench| Box::pin(large_outputs(bench)),
    },
    Question {
        name: "Does a terminal update close the steps it leaves out?",
        rules: &["terminal_leaves_steps_open"],
        of: Of::Both,
        ask: |bench| Box::pin(open_steps(bench)),
    },
    Question {
        name: "Does an update of an ended task send the webhook again?",
        rules: &["ended_sends_webhooks_again"],
        of: Of::Both,
        ask: |bench| Box::pin(webhooks_again(bench)),
    },
    Question {
        name: "What does a reply say while the task runs, at its end, and to another end?",
        rules: &["running_has_no_result", "first_terminal_wins"],
        of: Of::Both,
        ask: |bench| Box::pin(replies(bench)),
    },
    Question {
        name: "Which outputs does a reply list?",
        rules: &["sent_outputs_lists_all"],
        of: Of::Both,
        ask: |bench| Box::pin(listed_outputs(bench)),
    },
    Question {
        name: "Are steps stored that come after the end?",
        rules: &["first_terminal_wins"],
        of: Of::Both,
        ask: |bench| Box::pin(late_steps(bench)),
    },
    Question {
        name: "Are outputs stored that come after the end?",
        rules: &[],
        of: Of::Both,
        ask: |bench| Box::pin(late_outputs(bench)),
    },
    Question { name: "Can a task end as skipped?", rules: &[], of: Of::Both, ask: |bench| Box::pin(skipped(bench)) },
    Question {
        name: "What becomes of a step that is reported failed, skipped or cancelled while the task runs?",
        rules: &["steps_stored"],
        of: Of::Both,
        ask: |bench| Box::pin(ends_of_steps(bench)),
    },
];

async fn reported_steps(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Unspecified, vec![finished(0, 1, 2), running(1, 3, 4)]).await?;
    let steps = bench.look(&held).await?.steps;
    let stored: Vec<_> = steps.iter().map(|step| (step.status, step.log_index, step.log_length)).collect();
    let expected = [(Status::Success, 1, 2), (Status::Running, 3, 4), (Status::Waiting, 0, 0)];
    ensure!(stored == expected, "the steps are {stored:?}");
    Ok(())
}

async fn absent_steps(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Unspecified, vec![finished(0, 1, 2), running(1, 3, 1)]).await?;
    held.heartbeat().await?;
    let seen = bench.look(&held).await?;
    ensure!(seen.steps[0].status == Status::Running, "the finished step is {:?}", seen.steps[0].status);
    ensure!(seen.steps[2].status == Status::Waiting, "the unstarted step is {:?}", seen.steps[2].status);
    held.report(TaskResult::Unspecified, vec![finished(0, 1, 2), running(1, 3, 1)]).await?;
    let seen = bench.look(&held).await?;
    ensure!(seen.steps[0].status == Status::Success, "complete steps repair it");
    Ok(())
}

async fn zeroes(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Unspecified, vec![finished(0, 4, 2)]).await?;
    let result = TaskResult::Success.into();
    held.report(TaskResult::Unspecified, vec![StepState { result, ..Default::default() }]).await?;
    let seen = bench.look(&held).await?;
    let step = &seen.steps[0];
    ensure!(step.started.is_some() && step.stopped.is_some(), "its times are gone: {step:?}");
    ensure!((step.log_index, step.log_length) == (4, 2), "its rows are {step:?}");
    Ok(())
}

async fn unknown_step(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Unspecified, vec![running(7, 0, 1)]).await?;
    let seen = bench.look(&held).await?;
    ensure!(seen.steps.len() == 3, "there are {} steps", seen.steps.len());
    ensure!(seen.steps.iter().all(|step| step.status == Status::Waiting), "{:?}", seen.steps);
    Ok(())
}

async fn end_time(bench: &Bench<'_>) -> anyhow::Result<()> {
    let named = bench.held().await?;
    named.report(TaskResult::Success, vec![]).await?;
    let stopped = bench.look(&named).await?.stopped.context("it has ended")?;
    ensure!(stopped.as_second() == at(9).seconds, "it ended at {stopped}");
    let unnamed = bench.held().await?;
    let mut state = unnamed.state(TaskResult::Success, vec![]);
    state.stopped_at = None.into();
    unnamed.runner.update(state).await?;
    let stopped = bench.look(&unnamed).await?.stopped.map_or(0, jiff::Timestamp::as_second);
    ensure!(stopped == 0, "without a time it ended at {stopped}");
    Ok(())
}

/// Sends outputs; the keys that the server lists.
pub(super) async fn outputs(held: &Held, outputs: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let outputs: HashMap<_, _> = outputs.iter().map(own).collect();
    let state = Some(held.state(TaskResult::Unspecified, vec![])).into();
    let request = UpdateTaskRequest { state, outputs: outputs.into_iter().collect(), ..Default::default() };
    let mut listed = held.runner.update_task(&request).await?.sent_outputs;
    listed.sort();
    Ok(listed)
}

async fn output_twice(bench: &Bench<'_>) -> anyhow::Result<()> {
    let runner = bench.runner(&[&bench.label]).await?;
    let jobs = vec![bench.job("first", 1), bench.job("second", 1).needs(["first"])];
    let first = *bench.side.push(jobs).await?.first().context("two jobs")?;
    let task = runner.take().await?.context("the first job")?;
    let held = Held { runner, job: first, task };
    outputs(&held, &[("v", "one")]).await?;
    outputs(&held, &[("v", "two")]).await?;
    held.report(TaskResult::Success, vec![]).await?;
    let second = take_released(bench, &held.runner).await?;
    let value = second.needs.get("first").and_then(|need| need.outputs.get("v").cloned());
    ensure!(value.as_deref() == Some("one"), "the output is {value:?}");
    Ok(())
}

async fn large_outputs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let (longest, longer) = ("k".repeat(255), "k".repeat(256));
    let large = "v".repeat(1024 * 1024 + 1);
    let listed = outputs(&held, &[(&longest, "v"), (&longer, "v"), ("large", &large)]).await?;
    ensure!(listed == [longest], "{} outputs are listed", listed.len());
    Ok(())
}

async fn open_steps(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Unspecified, vec![running(0, 0, 1)]).await?;
    held.report(TaskResult::Failure, vec![]).await?;
    let seen = bench.look(&held).await?;
    let statuses = seen.step_statuses();
    ensure!(seen.status == Status::Failure, "the job is {:?}", seen.status);
    ensure!(statuses == [Status::Running, Status::Waiting, Status::Waiting], "the steps are {statuses:?}");
    Ok(())
}

async fn webhooks_again(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Success, vec![]).await?;
    let count = async || {
        let seen = bench.look(&held).await?;
        let completed = |event| seen.delivered(event, Action::Completed);
        anyhow::Ok((completed(Event::WorkflowJob), completed(Event::WorkflowRun)))
    };
    let at_the_end = count().await?;
    held.heartbeat().await?;
    let after_heartbeat = count().await?;
    held.report(TaskResult::Success, vec![]).await?;
    let after_repeat = count().await?;
    let counts = [at_the_end, after_heartbeat, after_repeat];
    ensure!(counts == [(1, 1), (2, 1), (3, 2)], "(job, run) webhooks: {counts:?}");
    Ok(())
}

async fn replies(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let told = [
        held.heartbeat().await?,
        held.report(TaskResult::Failure, vec![]).await?,
        held.report(TaskResult::Success, vec![]).await?,
        held.heartbeat().await?,
    ];
    let failure = TaskResult::Failure;
    ensure!(told == [TaskResult::Unspecified, failure, failure, failure], "the replies say {told:?}");
    Ok(())
}

async fn listed_outputs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let first = outputs(&held, &[("a", "1"), ("b", "2")]).await?;
    let second = outputs(&held, &[("c", "")]).await?;
    ensure!(first == ["a", "b"] && second == ["a", "b", "c"], "{first:?}, then {second:?}");
    Ok(())
}

async fn late_steps(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Failure, vec![finished(0, 0, 1)]).await?;
    held.report(TaskResult::Success, vec![finished(0, 0, 9), finished(1, 0, 1)]).await?;
    let steps = bench.look(&held).await?.steps;
    let stored: Vec<_> = steps.iter().map(|step| (step.status, step.log_length)).collect();
    ensure!(stored == [(Status::Success, 1), (Status::Waiting, 0), (Status::Waiting, 0)], "{stored:?}");
    Ok(())
}

async fn late_outputs(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    held.report(TaskResult::Success, vec![]).await?;
    let listed = outputs(&held, &[("late", "1")]).await?;
    ensure!(listed == ["late"], "{listed:?} are listed");
    Ok(())
}

async fn skipped(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let told = held.report(TaskResult::Skipped, vec![]).await?;
    let status = bench.look(&held).await?.status;
    ensure!((told, status) == (TaskResult::Skipped, Status::Skipped), "the reply says {told:?}, the job is {status:?}");
    Ok(())
}

async fn ends_of_steps(bench: &Bench<'_>) -> anyhow::Result<()> {
    let held = bench.held().await?;
    let ends = [TaskResult::Failure, TaskResult::Skipped, TaskResult::Cancelled];
    let steps = (0..).zip(ends).map(|(id, end)| StepState { result: end.into(), ..finished(id, 0, 1) }).collect();
    held.report(TaskResult::Unspecified, steps).await?;
    let seen = bench.look(&held).await?;
    ensure!(seen.step_statuses() == [Status::Failure, Status::Skipped, Status::Cancelled], "{:?}", seen.steps);
    ensure!(seen.status == Status::Running, "the job is {:?}", seen.status);
    Ok(())
}
