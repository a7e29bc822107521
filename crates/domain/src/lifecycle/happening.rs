//! What a step of a life means to whoever watches: the source of every event and metric about it, so that no room has
//! to remember to tell (requirements §3, NEW-130).

use jiff::{SignedDuration, Timestamp};

use super::{Ending, Event, Executor, Life, Outcome, Phase};
use crate::reason::Reason;

/// Something worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// The queue holds it, so long after the fetch.
    Persisted(SignedDuration),
    /// All slots are taken.
    WaitsForSlot,
    /// It has a slot, after so long in the queue.
    LaunchBegun(SignedDuration),
    /// An executor before this one failed, with this reason where this process saw it.
    Relaunched(Option<Reason>),
    /// The backend failed; another try comes after this pause.
    LaunchFailed(SignedDuration, String),
    /// The executor's object exists; it does not run yet.
    Pending,
    /// The executor's object exists and does not come to run, or gets no identity: why.
    HeldUp(String),
    /// The executor runs and the task lies ready for it.
    Offered {
        /// Since the launch was begun.
        took: SignedDuration,
        /// Since the fetch.
        waited: SignedDuration,
    },
    /// It has its identity, so long after it ran.
    Identified(SignedDuration),
    /// It was answered with the task, so long after it had its identity.
    Claimed(SignedDuration),
    /// Its runner sent a first update, so long after the claim.
    Confirmed(SignedDuration),
    /// We end the task.
    GaveUp(Ending),
    /// Gitea took no end of ours within its own longest run; it is left to its sweep.
    Unreported(Ending),
    /// Gitea has a result.
    Ended(Outcome, Whose),
    /// The executor failed.
    ExecutorLost(Reason, String),
    /// The runner is done, or the executor's process has ended.
    ExecutorFinished(Phase),
    /// A list shows an executor of which nothing was known.
    ExecutorFound,
    /// The executor is gone: the word for why, and how long after a cancel.
    ExecutorGone(&'static str, Option<SignedDuration>),
    /// The terminal mark holds.
    Marked,
    /// The message left the queue.
    Acknowledged,
}

/// Whose word an end was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// The runner's own report.
    Runner,
    /// Ours.
    Ours(Ending),
    /// Gitea had ended it: cancelled, or judged by a time-out.
    Gitea,
}

/// What `event` brought about, in the order in which it is told.
#[must_use]
pub fn happenings(before: &Life, event: &Event, after: &Life, now: Timestamp) -> Vec<Happening> {
    let mut told = Vec::new();
    told.extend(before_the_claim(before, event, after, now));
    told.extend(lost(before, after));
    told.extend(ends(before, after));
    told.extend(after_the_end(before, event, after, now));
    told
}

fn before_the_claim(before: &Life, event: &Event, after: &Life, now: Timestamp) -> Vec<Happening> {
    let here = now.duration_since(before.since);
    let whole = now.duration_since(before.fetched_at);
    let unclaimed = matches!(before.phase, Phase::Creating | Phase::Bound | Phase::Offered);
    let identified = !before.said_hello && after.said_hello && unclaimed;
    let mut told = Vec::new();
    match (&before.phase, &after.phase) {
        (Phase::Fetched, Phase::Waiting) => told.push(Happening::Persisted(whole)),
        (Phase::Waiting, Phase::Waiting) if matches!(event, Event::InLine { .. }) && before.news != after.news => {
            told.push(Happening::WaitsForSlot);
        }
        (Phase::Creating | Phase::Bound | Phase::Offered, Phase::Creating | Phase::Bound | Phase::Offered)
            if matches!(event, Event::WaitsFor { .. }) && before.waiting_for != after.waiting_for =>
        {
            told.push(Happening::HeldUp(after.waiting_for.clone()));
        }
        (Phase::Waiting, Phase::Creating) => {
            told.push(Happening::LaunchBegun(here));
            told.extend((after.attempts > 1).then_some(Happening::Relaunched(before.last_failure)));
        }
        (Phase::Creating | Phase::Bound, Phase::Waiting) => {
            if let Event::LaunchFailed { cause, .. } | Event::QuotaUsedUp { cause, .. } = event {
                told.push(Happening::LaunchFailed(after.not_before.duration_since(now), cause.clone()));
            }
        }
        (Phase::Creating, Phase::Bound) => told.push(Happening::Pending),
        (Phase::Creating | Phase::Bound, Phase::Offered) => {
            told.push(Happening::Offered { took: here, waited: whole });
            told.extend(identified.then_some(Happening::Identified(SignedDuration::ZERO)));
        }
        (Phase::Offered, Phase::Offered) if identified => told.push(Happening::Identified(here)),
        (_, Phase::Claimed) if unclaimed => told.push(Happening::Claimed(here)),
        (Phase::Claimed, Phase::Running) => told.push(Happening::Confirmed(here)),
        _ => {}
    }
    told
}

fn lost(before: &Life, after: &Life) -> Option<Happening> {
    if after.deaths > before.deaths {
        let how = after.last_error.clone().unwrap_or_default();
        return after.last_failure.map(|reason| Happening::ExecutorLost(reason, how));
    }
    match (&before.phase, &after.phase) {
        (Phase::Claimed | Phase::Running, Phase::Ending(ending))
            if !matches!(ending.reason, Reason::Deadline | Reason::Interrupted) =>
        {
            Some(Happening::ExecutorLost(ending.reason, ending.cause.clone()))
        }
        _ => None,
    }
}

fn ends(before: &Life, after: &Life) -> Option<Happening> {
    match &after.phase {
        Phase::Ending(ending) if !before.is_over() => Some(Happening::GaveUp(ending.clone())),
        Phase::Final(_) | Phase::Draining(_) | Phase::Gone
            if !matches!(before.phase, Phase::Final(_) | Phase::Draining(_) | Phase::Gone) =>
        {
            let Some(outcome) = after.accepted else {
                let Phase::Ending(ending) = &before.phase else { return None };
                return Some(Happening::Unreported(ending.clone()));
            };
            let whose = match &before.phase {
                Phase::Ending(ending) if ending.outcome == outcome => Whose::Ours(ending.clone()),
                _ if before.said == Some(outcome) => Whose::Runner,
                _ => Whose::Gitea,
            };
            Some(Happening::Ended(outcome, whose))
        }
        _ => None,
    }
}

fn after_the_end(before: &Life, event: &Event, after: &Life, now: Timestamp) -> Vec<Happening> {
    let done = |life: &Life| life.said_goodbye || life.executor == Executor::Ended;
    let finished = before.epoch == after.epoch && !done(before) && done(after);
    let gone = before.executor != Executor::Absent && after.executor == Executor::Absent;
    let why = if before.discard {
        before.last_failure.map_or("launch_failed", Reason::as_str)
    } else if done(before) {
        "ended"
    } else if before.is_over() {
        "terminal_grace"
    } else {
        "disappeared"
    };
    let found = matches!(event, Event::ExecutorSeen { .. }) && after.executor == Executor::Present;
    [
        finished.then(|| Happening::ExecutorFinished(after.phase.clone())),
        (before.executor == Executor::Absent && found).then_some(Happening::ExecutorFound),
        (!before.settled && after.settled && matches!(event, Event::Settled { .. })).then_some(Happening::Acknowledged),
        (!before.marked && after.marked).then_some(Happening::Marked),
        gone.then(|| Happening::ExecutorGone(why, before.cancelled.map(|at| now.duration_since(at)))),
    ]
    .into_iter()
    .flatten()
    .collect()
}
