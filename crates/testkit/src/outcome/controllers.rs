//! The processes of the controller: which of them made a call, and when none worked.

use std::time::{Duration, Instant};

use crate::gitea::Call;

/// A new process makes no call before this: what arrives earlier was still on its way when the old one died.
const FIRST_CALL: Duration = Duration::from_millis(25);

/// From one moment to another.
pub type Interval = (Instant, Instant);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// SIGKILL.
    Killed,
    /// By itself, in order.
    InOrder,
}

/// One process of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// When it was started.
    pub started: Instant,
    /// When it ended, and how; none while it runs.
    pub ended: Option<(Instant, Death)>,
    /// When it was stopped by SIGSTOP and went on.
    pub paused: Vec<Interval>,
}

impl Controller {
    /// One that was started now.
    #[must_use]
    pub fn started() -> Self {
        Self { started: Instant::now(), ended: None, paused: Vec::new() }
    }

    /// Whether it had ended by `moment`, in whatever way.
    pub(super) fn had_ended(&self, moment: Instant) -> bool {
        self.ended.is_some_and(|(end, _)| end <= moment)
    }

    /// How long it had worked since `moment` when it was killed; none if it was not killed.
    pub(super) fn worked_until_killed(&self, moment: Instant) -> Option<Duration> {
        let (end, death) = self.ended?;
        if death != Death::Killed {
            return None;
        }
        let paused: Duration = self.paused.iter().map(|pause| overlap((moment, end), *pause)).sum();
        Some(end.saturating_duration_since(moment).saturating_sub(paused))
    }
}

/// All of them, in order.
pub(super) struct Controllers<'a>(&'a [Controller]);

impl<'a> Controllers<'a> {
    pub(super) fn new(controllers: &'a [Controller]) -> Self {
        Self(controllers)
    }

    /// The number of the process that made a call.
    pub(super) fn number_of(&self, call: &Call) -> usize {
        let before = self.0.iter().take_while(|process| process.started + FIRST_CALL <= call.instant).count();
        before.saturating_sub(1)
    }

    pub(super) fn get(&self, number: usize) -> Option<&'a Controller> {
        self.0.get(number)
    }

    /// How much of an interval a controller worked and Gitea was there.
    pub(super) fn worked(&self, interval: Interval, away: &[Interval]) -> Duration {
        let mut idle: Vec<Interval> = away.to_vec();
        let mut dead_since = None;
        for process in self.0 {
            if let Some(since) = dead_since {
                idle.push((since, process.started));
            }
            idle.extend(&process.paused);
            dead_since = process.ended.map(|(at, _)| at);
        }
        idle.extend(dead_since.map(|since| (since, interval.1.max(since))));
        interval.1.saturating_duration_since(interval.0).saturating_sub(covered(interval, idle))
    }
}

/// How much of `interval` the others cover together.
pub(super) fn covered(interval: Interval, mut others: Vec<Interval>) -> Duration {
    others.sort_unstable();
    let (mut sum, mut from) = (Duration::ZERO, interval.0);
    for other in others {
        sum += overlap((from, interval.1), other);
        from = from.max(other.1);
    }
    sum
}

fn overlap(one: Interval, other: Interval) -> Duration {
    one.1.min(other.1).saturating_duration_since(one.0.max(other.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_intervals_cover_is_counted_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let others = vec![(at(5), at(8)), (at(2), at(6)), (at(20), at(30))];
        assert_eq!(covered((at(0), at(10)), others.clone()), Duration::from_secs(6));
        assert_eq!(covered((at(7), at(25)), others), Duration::from_secs(6));
    }
}
