//! How often a task was begun, how it ended, and who says why.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::reason::Reason;
use runner_proto::runner::v1::Result as TaskResult;

use super::controllers::covered;
use super::{Controllers, Interval, Loss, Rule, TaskRecord, Violation};
use crate::gitea::{Call, CallEnd, Method, Request, Status};
use crate::stand_in::{CUT_OFF, name};

/// From the answer to FetchTask until the task is on the disk: what a busy machine needs for it. A task that is missing
/// although its controller worked for longer was not lost in that moment.
const WRITE: Duration = Duration::from_secs(1);

/// A task that was handed out and that nobody kept: whether it was lost in the moment in which it may be. None of a task
/// that somebody kept. While the queue takes nothing the moment lasts, and the task has signs of life.
pub(super) fn unkept(
    task: &TaskRecord,
    controllers: &Controllers<'_>,
    queue_away: &[Interval],
) -> Option<Result<Loss, Violation>> {
    let fetch = task.fetch()?;
    let fetched_by = controllers.number_of(fetch);
    let answered = fetch.instant + fetch.took.unwrap_or_default();
    let killed = controllers.get(fetched_by).and_then(|process| process.ended);
    let write = WRITE + killed.map_or(Duration::ZERO, |(at, _)| covered((answered, at), queue_away.to_vec()));
    let by_a_keeper = |call: &&Call| {
        let later = call.instant > answered + write || controllers.number_of(call) > fetched_by;
        later || heard_end(call) || call.told().is_some() || closes_log(call)
    };
    let mut others = task.calls.iter().filter(|call| call.method != Method::FetchTask);
    if task.starts() > 0 || others.any(|call| by_a_keeper(&call)) {
        return None;
    }
    // A cut connection takes an answer away as well, but nobody was killed then.
    let worked = controllers.get(fetched_by).and_then(|process| process.worked_until_killed(answered));
    let in_the_moment = fetch.end != CallEnd::Cut && worked.is_some_and(|worked| worked <= write);
    let evidence = format!("its FetchTask ended as {:?}; its controller was killed {worked:?} later", fetch.end);
    Some(match in_the_moment {
        true => Ok(Loss { task: task.task, evidence }),
        false => Err(Violation::of(task, Rule::LostWithoutKill, evidence)),
    })
}

/// The rules about starts and ends.
pub(super) fn broken(task: &TaskRecord) -> Vec<Violation> {
    let mut broken = Vec::new();
    let mut complain = |rule, evidence: String| broken.push(Violation::of(task, rule, evidence));
    if task.starts() > 1 {
        complain(Rule::RunTwice, format!("begun by {:?}", task.told("task").collect::<Vec<_>>()));
    }
    if !task.status.is_end() {
        complain(Rule::NoEnd, format!("{:?}; the last calls: {}", task.status, last_calls(task)));
        return broken;
    }
    let results: BTreeSet<&str> = task.updates().filter_map(Call::told).map(name).collect();
    if results.is_empty() && task.status != Status::Cancelled {
        complain(Rule::NoEnd, format!("{:?} by Gitea itself; the last calls: {}", task.status, last_calls(task)));
        return broken;
    }
    let reasons = reasons(&task.log);
    let stands = name(task.status.result());
    if results.iter().any(|told| *told != stands) && task.status != Status::Cancelled {
        complain(Rule::TwoOutcomes, format!("{results:?} were told, {stands} stands"));
    }
    if reasons.len() > 1 || (task.status == Status::Success && !reasons.is_empty()) {
        complain(Rule::TwoOutcomes, format!("{stands} with the reasons {reasons:?}"));
    }
    if let Some(evidence) = unexplained(task, &reasons) {
        complain(Rule::NoReason, evidence);
    }
    let true_ends: Vec<&str> = task.told("ended").collect();
    if task.status == Status::Success && true_ends != [stands] {
        complain(Rule::FalseSuccess, format!("the job ended as {true_ends:?}"));
    }
    // An interruption that was announced forbids SUCCESS, however the job ended (NEW-158).
    let interrupted = reasons.iter().any(|reason| reason.contains(Reason::Interrupted.as_str()));
    let taken = task.told("final").next().filter(|_| !true_ends.contains(&CUT_OFF));
    if let Some(taken) = taken.filter(|taken| *taken != stands && !interrupted && task.status != Status::Cancelled) {
        complain(Rule::ResultLost, format!("{taken} was taken from the runner, {stands} stands: {reasons:?}"));
    }
    broken
}

/// Why an end that the job did not bring about itself needs a reason and has none.
fn unexplained(task: &TaskRecord, reasons: &[&str]) -> Option<String> {
    let by_itself = |result: &str| {
        let sly = task.told("tried").filter_map(|tried| tried.split_once(' ')).map(|(_, answer)| answer);
        task.told("ended").chain(sly).any(|ended| ended == result)
    };
    let explained = match task.status {
        // A user's cancel needs no words; one that Gitea never spoke of is an end of ours.
        Status::Cancelled => {
            let mut updates = task.updates();
            !updates.any(|call| call.told() == Some(TaskResult::Cancelled))
                || task.updates().any(|call| heard_end(call) && call.told() != Some(TaskResult::Cancelled))
        }
        Status::Success => true,
        status => by_itself(name(status.result())),
    };
    let why = || format!("{:?}, the job ended as {:?}", task.status, task.told("ended").collect::<Vec<_>>());
    (!explained && reasons.is_empty()).then(why)
}

/// The rows that a failure certificate begins with.
pub(super) fn reasons(log: &[String]) -> Vec<&str> {
    let gives = |row: &&str| {
        let text = row.strip_prefix("##[error]");
        text.is_some_and(|text| Reason::ALL.iter().any(|reason| text.starts_with(&format!("{reason}:"))))
    };
    log.iter().map(String::as_str).filter(gives).collect()
}

/// The reply carried a result.
pub(super) fn heard_end(call: &Call) -> bool {
    call.result.is_some_and(|result| result != TaskResult::Unspecified)
}

pub(super) fn closes_log(call: &Call) -> bool {
    matches!(&call.request, Request::UpdateLog(request) if request.no_more)
}

fn last_calls(task: &TaskRecord) -> String {
    let calls = task.calls.iter().rev().take(4).rev();
    calls
        .map(|call| format!("{} {} => {:?}", call.method.name(), call.summary, call.end))
        .collect::<Vec<_>>()
        .join("; ")
}
