//! The figures of a soak, read off its record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use runner_proto::runner::v1::Result as TaskResult;
use serde::Serialize;
use testkit::gitea::{Call, Method, Request};
use testkit::outcome::{Death, Judgement, Record, Rule, longest_gap};
use testkit::real::Signal;

use super::course::Account;
use crate::samples::Samples;

/// One row of the table.
#[derive(Serialize)]
pub(super) struct Figure {
    pub(super) measure: String,
    pub(super) value: String,
}

/// All of them.
pub(super) fn figures(record: &Record, account: &Account, judgement: &Judgement) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |measure: String, value: String| figures.push(Figure { measure, value });
    for ((target, signal), count) in &account.blows {
        add(format!("{signal} to {}", format!("{target:?}").to_lowercase()), count.to_string());
    }
    add("jobs pushed".to_owned(), account.pushed.to_string());
    add("of them cancelled by a user".to_owned(), account.cancelled.to_string());
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for task in record.tasks.iter().filter(|task| !judgement.lost.iter().any(|loss| loss.task == task.task)) {
        *outcomes.entry(format!("tasks that ended as {:?}", task.status)).or_default() += 1;
    }
    outcomes.into_iter().for_each(|(outcome, count)| add(outcome, count.to_string()));
    add("lost between Gitea's commit and the disk (SCH-15)".to_owned(), judgement.lost.len().to_string());
    let doubled = judgement.violations.iter().filter(|violation| violation.rule == Rule::RunTwice).count();
    add("run twice".to_owned(), doubled.to_string());
    add("longest time between two signs of life".to_owned(), seconds(longest_gap(record)));
    let failures = killed_to_failure(record, account).into_iter().map(|(time, _)| time).collect();
    add("SIGKILL to executor or runner → FAILURE, p50 / p99".to_owned(), spread(failures));
    add("SIGKILL to controller → next UpdateTask, p50 / p99".to_owned(), spread(killed_to_heartbeat(record)));
    add("cancel → executor gone, p50 / p99".to_owned(), spread(account.cancel_to_gone.clone()));
    figures
}

/// With the task. An executor that was killed before its job had begun is replaced: it has no part in this.
pub(super) fn killed_to_failure(record: &Record, account: &Account) -> Vec<(Duration, i64)> {
    let killed = account.struck.iter().filter(|struck| struck.signal == Signal::Kill);
    let failure = |call: &&Call| call.told() == Some(TaskResult::Failure);
    let times = killed.filter_map(|struck| {
        let task = record.tasks.iter().find(|task| task.task == struck.task)?;
        task.calls.iter().find(|call| call.instant < struck.at && begun(call))?;
        let told = task.calls.iter().filter(|call| call.instant >= struck.at).find(failure)?;
        Some((told.instant - struck.at, task.task))
    });
    times.collect()
}

/// The runner said that a step runs.
fn begun(call: &Call) -> bool {
    let Request::UpdateTask(request) = &call.request else { return false };
    request.state.as_option().is_some_and(|state| state.steps.iter().any(|step| step.started_at.is_set()))
}

fn killed_to_heartbeat(record: &Record) -> Vec<Duration> {
    let updates = record.tasks.iter().flat_map(|task| &task.calls).filter(|call| call.method == Method::UpdateTask);
    let mut updates: Vec<Instant> = updates.map(|call| call.instant).collect();
    updates.sort_unstable();
    let pairs = record.controllers.windows(2).filter_map(|pair| {
        let (end, death) = pair[0].ended?;
        (death == Death::Killed).then_some((end, pair[1].started))
    });
    pairs
        .filter_map(|(killed, started)| {
            let next = updates.partition_point(|at| *at < started);
            updates.get(next).map(|at| *at - killed)
        })
        .collect()
}

fn spread(times: Vec<Duration>) -> String {
    let count = times.len();
    if count == 0 {
        return "none".to_owned();
    }
    let times: Samples = times.into_iter().collect();
    let [half, most] = [50, 99].map(|percent| seconds(times.percentile(percent)));
    format!("{half} / {most} ({count})")
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
