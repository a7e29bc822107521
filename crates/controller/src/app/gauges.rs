//! Keeps the numbers an operator watches true: what is held, how full we are, how long our own identity lasts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::id::Backend;
use domain::lifecycle::Phase;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::parts::Identity;
use super::snapshot::{executor_word, state};
use crate::board::{Board, View};
use crate::ops::Ops;
use crate::ops::metrics::Direction;
use crate::ops::readiness::Svid;

const TICK: Duration = Duration::from_secs(2);

/// The words of [`state`].
const STATES: [&str; 11] =
    ["fetched", "waiting", "creating", "bound", "offered", "claimed", "running", "ending", "final", "draining", "gone"];

/// The words of [`executor_word`].
const EXECUTORS: [&str; 3] = ["pending", "running", "ended"];

/// What the numbers are read from.
pub(super) struct Gauges {
    pub(super) board: Arc<Board>,
    /// Our own identity lives as long as this room does.
    pub(super) identity: Identity,
    pub(super) ops: Ops,
    pub(super) kind: Backend,
    pub(super) capacity: u32,
    /// Bytes through the way to the repository, up and down.
    pub(super) traffic: [Arc<AtomicU64>; 2],
}

/// A certificate ends by the wall clock, which its issuer and both ends of a connection go by; readiness goes by ours.
fn by_our_clock(end: Timestamp, now: Timestamp) -> Timestamp {
    now.saturating_add(end.duration_since(Timestamp::now())).unwrap_or(end)
}

/// Runs until `stop`, or until nobody renews our own identity any more.
pub(super) async fn run(gauges: Gauges, stop: CancellationToken) {
    let Gauges { board, identity, ops, kind, capacity, traffic } = gauges;
    let mut counted = [0; 2];
    loop {
        if identity.has_ended() {
            tracing::error!(
                component = "scheduler",
                "the socket that renews the facade's own identity ended by itself"
            );
            return;
        }
        for (way, direction) in [Direction::Up, Direction::Down].into_iter().enumerate() {
            let passed = traffic[way].load(Ordering::Relaxed);
            ops.metrics.proxied(direction, passed.saturating_sub(counted[way]));
            counted[way] = passed;
        }
        let views = board.views();
        let held = count(&STATES, &views, |view| Some(state(view.life.phase())));
        let oldest = views.iter().filter(|view| view.life.is_held()).map(|view| view.life.fetched_at()).min();
        let age = oldest.and_then(|at| board.now().duration_since(at).try_into().ok()).unwrap_or_default();
        ops.metrics.held(held.into_iter().map(|(state, n)| (kind, state, n)), age);
        let executors = count(&EXECUTORS, &views, |view| executor_word(&view.life));
        ops.metrics.executors(executors.into_iter().map(|(phase, n)| (kind, phase, n)));
        let used = u32::try_from(board.occupancy().executors).unwrap_or(u32::MAX);
        ops.metrics.slots([(kind, capacity, used)]);
        ops.metrics.heartbeat_lag(lag(&views, board.now()));
        let (expires_at, lifetime) = (identity.expires_at(), identity.lifetime);
        let present = |at| Svid::Present { expires_at: by_our_clock(at, board.now()), lifetime };
        ops.readiness.set(|now| {
            now.svid = expires_at.map_or(Svid::Missing, present);
            now.in_doubt = !board.may_decide();
        });
        if let Some(at) = expires_at {
            ops.metrics.svid_expires(at);
        }
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// The longest that Gitea has not heard of a task it thinks running.
fn lag(views: &[View], now: Timestamp) -> Duration {
    let open = |view: &&View| !matches!(view.life.phase(), Phase::Final(_) | Phase::Draining(_) | Phase::Gone);
    let heard = views.iter().filter(open).map(|view| view.life.last_sign().max(view.life.fetched_at())).min();
    heard.and_then(|at| now.duration_since(at).try_into().ok()).unwrap_or_default()
}

/// Of each word, and of those that nothing has, 0: a series that is not there looks like a program that does not run.
fn count(
    words: &[&'static str],
    views: &[View],
    word: impl Fn(&View) -> Option<&'static str>,
) -> BTreeMap<&'static str, i64> {
    let mut counts: BTreeMap<_, _> = words.iter().map(|word| (*word, 0)).collect();
    for word in views.iter().filter_map(word) {
        *counts.entry(word).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-130: a process that holds nothing says so.
    #[test]
    fn nothing_is_counted_too() {
        assert_eq!(count(&EXECUTORS, &[], |_| None), BTreeMap::from([("ended", 0), ("pending", 0), ("running", 0)]));
        let states = count(&STATES, &[], |_| None);
        let phases = [Phase::Fetched, Phase::Waiting, Phase::Creating, Phase::Bound, Phase::Offered, Phase::Gone];
        assert!(phases.iter().all(|phase| states[state(phase)] == 0));
        assert_eq!(states.len(), 11);
    }
}
