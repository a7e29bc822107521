//! When something was said about a task, and when it should not have been: silence, calls after the end, calls that meet.

use std::time::{Duration, Instant};

use super::controllers::covered;
use super::ends::{closes_log, heard_end};
use super::{Controllers, Interval, Rule, TaskRecord, Violation, answered};
use crate::gitea::{Call, CallEnd, Method, Request};

/// The longest time without a sign of life (I7).
const LONGEST_GAP: Duration = Duration::from_secs(60);

/// From an answer with a result until the end is on the disk, on a busy machine.
const MARK: Duration = Duration::from_secs(2);

/// NEW-163: an answer that carried a result is the last: no update follows, and no question about the log, which is an
/// UpdateLog without rows. One that its controller did not live to note does not count; of a task that nobody began the note
/// is that its message is gone, which waits for a queue that is away.
pub(super) fn updates_after_end(
    task: &TaskRecord,
    controllers: &Controllers<'_>,
    queue_away: &[Interval],
) -> Option<Violation> {
    let mut heard: Option<&Call> = None;
    for call in task.calls.iter().filter(|call| call.method == Method::UpdateTask || asks(call)) {
        if let Some(end) = heard {
            let (one, other) = (controllers.number_of(end), controllers.number_of(call));
            let (noted, process) = (noted_from(task, end), controllers.get(one));
            let ended_before = noted.zip(process).is_some_and(|(at, process)| process.had_ended(at));
            let worked = noted.and_then(|at| process?.worked_until_killed(at));
            let waited = match task.starts() {
                0 => covered((end.instant, call.instant), queue_away.to_vec()),
                _ => Duration::ZERO,
            };
            let in_time = ended_before || worked.is_some_and(|worked| worked <= MARK + waited);
            if one == other || !in_time {
                let since = call.instant.saturating_duration_since(end.instant);
                let evidence = format!(
                    "{} was sent {since:?} after the answer {:?} to {}; by processes {one} and {other}, the first killed {worked:?} \
                     after the answer",
                    call.summary, end.result, end.summary
                );
                return Some(Violation::of(task, Rule::UpdateAfterEnd, evidence));
            }
        }
        if answered(call).is_some() && heard_end(call) {
            heard = Some(call);
        }
    }
    None
}

fn asks(call: &Call) -> bool {
    matches!(&call.request, Request::UpdateLog(request) if request.rows.is_empty())
}

/// From when an answered end could be noted. Of a task that nobody began only its message is kept: that does not tell its
/// end, and it has to stay until the log is closed (NEW-166).
fn noted_from(task: &TaskRecord, end: &Call) -> Option<Instant> {
    let answered = answered(end)?;
    if task.starts() > 0 {
        return Some(answered);
    }
    let taken = |call: &Call| match &call.end {
        CallEnd::Answered { status, message } => *status == 200 || message.contains("archived"),
        _ => false,
    };
    let closing = task.calls.iter().find(|call| call.instant > end.instant && closes_log(call) && taken(call));
    closing.map(|call| call.instant + call.took.unwrap_or_default()).max(Some(answered))
}

/// The longest time between two signs of life, without the time in which no controller worked or Gitea was away.
#[must_use]
pub(super) fn longest_gap(task: &TaskRecord, away: &[Interval], controllers: &Controllers<'_>) -> Option<Duration> {
    let signs = task.calls.iter().filter(|call| matches!(call.method, Method::FetchTask | Method::UpdateTask));
    let mut signs: Vec<Instant> = signs.filter(|call| sign(call)).map(|call| call.instant).collect();
    // A task that has not ended is waited for still.
    signs.extend((!task.status.is_end()).then(Instant::now));
    signs.windows(2).map(|pair| controllers.worked((pair[0], pair[1]), away)).max()
}

/// Gitea took it for a sign of life, whether the answer arrived or not.
fn sign(call: &Call) -> bool {
    call.method == Method::FetchTask || call.result.is_some()
}

pub(super) fn silence(task: &TaskRecord, away: &[Interval], controllers: &Controllers<'_>) -> Option<Violation> {
    let gap = longest_gap(task, away, controllers).filter(|gap| *gap > LONGEST_GAP)?;
    Some(Violation::of(task, Rule::Silence, format!("{gap:?} without an UpdateTask")))
}

/// NEW-32: a process makes one call about a task at a time.
pub(super) fn overlaps(task: &TaskRecord, controllers: &Controllers<'_>) -> Option<Violation> {
    let calls: Vec<&Call> = task.calls.iter().filter(|call| call.method != Method::FetchTask).collect();
    let (one, other) = meeting(&calls, controllers)?;
    let evidence = format!("{} {} met {} {}", one.method.name(), one.summary, other.method.name(), other.summary);
    Some(Violation::of(task, Rule::Overlap, evidence))
}

/// SCH-4.
pub(super) fn concurrent_fetches(fetches: &[Call], controllers: &Controllers<'_>) -> Option<Violation> {
    let fetches: Vec<&Call> = fetches.iter().collect();
    let (one, other) = meeting(&fetches, controllers)?;
    Some(Violation::general(Rule::TwoFetches, format!("calls {} and {} met", one.number, other.number)))
}

/// Two calls of one process, the second of which arrived before the first was over.
fn meeting<'a>(calls: &[&'a Call], controllers: &Controllers<'_>) -> Option<(&'a Call, &'a Call)> {
    let meet = |pair: &&[&'a Call]| {
        let (one, other) = (pair[0], pair[1]);
        let over = one.took.map(|took| one.instant + took);
        // Who hangs up may call again before the double has noticed.
        let under_way = one.end != CallEnd::Left && over.is_none_or(|over| over > other.instant);
        under_way && controllers.number_of(one) == controllers.number_of(other)
    };
    calls.windows(2).find(meet).map(|pair| (pair[0], pair[1]))
}
