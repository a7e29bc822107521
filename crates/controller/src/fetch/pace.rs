//! When to ask, and with which `tasks_version` (SCH-4, SCH-5, NEW-6, NEW-7; Gitea contract §4.2).
//!
//! Gitea looks for work only when the version sent differs from its own, and does not raise it when a runner gets room.
//! So the version of an *empty* answer is sent only while nothing changed on our side, and 0 after everything else.

use std::time::Duration;

use domain::backoff::Backoff;
use jiff::{SignedDuration, Timestamp};

use crate::gitea::Trouble;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(30);
/// At least this often Gitea is asked with version 0.
const FULL_LOOK: SignedDuration = SignedDuration::from_secs(30);

pub(super) struct Pace {
    /// Version of the last empty answer, while nothing changed since.
    known: Option<i64>,
    looked: Option<Timestamp>,
    idle: Backoff,
    errors: Backoff,
}

impl Pace {
    /// Only the spread of the pauses depends on `seed`.
    pub(super) fn new(seed: u64) -> Self {
        let idle = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed);
        let errors = Backoff::new(FIRST_PAUSE, LONGEST_BACK_OFF, seed.rotate_left(32));
        Self { known: None, looked: None, idle, errors }
    }

    /// The version to send now.
    pub(super) fn version(&mut self, now: Timestamp) -> i64 {
        let due = self.looked.is_none_or(|at| now.duration_since(at) >= FULL_LOOK);
        match self.known {
            Some(version) if !due => version,
            _ => {
                self.looked = Some(now);
                0
            }
        }
    }

    pub(super) fn task_came(&mut self) {
        self.known = None;
        self.idle.reset();
        self.errors.reset();
    }

    /// Returns how long to wait.
    pub(super) fn nothing_came(&mut self, version: i64) -> Duration {
        self.known = Some(version);
        self.errors.reset();
        self.idle.pause()
    }

    /// Returns how long to wait; an unknown registration is asked about slowly.
    pub(super) fn failed(&mut self, trouble: Trouble) -> Duration {
        self.known = None;
        match trouble {
            Trouble::Unregistered => self.errors.longest_pause(),
            Trouble::TaskUnknown | Trouble::LogArchived | Trouble::Away => self.errors.pause(),
        }
    }

    pub(super) fn room_may_grow(&mut self) {
        self.known = None;
        self.idle.reset();
    }

    pub(super) fn declared(&mut self) {
        self.known = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// NEW-7, F01: 0 at start, after a task, after growing room, after Declare, after an error and every 30 s; the
    /// server's version only after an empty answer, whether it is higher or lower than before.
    #[test]
    fn the_version_rule() {
        let mut pace = Pace::new(1);
        assert_eq!(pace.version(at(0)), 0);
        pace.nothing_came(7);
        assert_eq!(pace.version(at(1)), 7);
        pace.nothing_came(3);
        assert_eq!(pace.version(at(2)), 3, "never a maximum");
        for change in [Pace::task_came, Pace::room_may_grow, Pace::declared, |pace: &mut Pace| {
            pace.failed(Trouble::Away);
        }] {
            pace.nothing_came(3);
            change(&mut pace);
            assert_eq!(pace.version(at(3)), 0);
        }
        pace.nothing_came(3);
        assert_eq!(pace.version(at(32)), 3);
        assert_eq!(pace.version(at(33)), 0, "30 s after the last full look");
    }

    /// SCH-5, NEW-6, F12: 1 s growing to 5 s when idle, 1 s doubling to 30 s after errors, ±20 %.
    #[test]
    fn pauses_grow_and_jitter() {
        let mut pace = Pace::new(99);
        let near = |pause: Duration, seconds: f64| (0.8 * seconds..=1.2 * seconds).contains(&pause.as_secs_f64());
        let idle: Vec<Duration> = (0..5).map(|_| pace.nothing_came(1)).collect();
        for (pause, seconds) in idle.iter().zip([1.0, 2.0, 4.0, 5.0, 5.0]) {
            assert!(near(*pause, seconds), "{pause:?} {seconds}");
        }
        assert!(idle[3] != idle[4], "jitter");
        for seconds in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            assert!(near(pace.failed(Trouble::Away), seconds), "{seconds}");
        }
        pace.task_came();
        assert!(near(pace.failed(Trouble::Away), 1.0));
        assert!(near(pace.failed(Trouble::Unregistered), 30.0));
    }
}
