//! Pauses between repetitions (requirements §1.4): they grow from the shortest to the longest and are spread by ±20 %, so
//! that those who failed together do not come again together (NEW-6, F12). Whoever makes one brings the chance, so that
//! this is as repeatable as every rule here.

use std::time::Duration;

/// A growing pause.
#[derive(Debug, Clone)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
    chance: u64,
}

impl Backoff {
    /// From `shortest`, doubled each time, to `longest`. Any `seed` is good, also the same one for all; only the spread
    /// depends on it.
    #[must_use]
    pub fn new(shortest: Duration, longest: Duration, seed: u64) -> Self {
        Self { shortest, longest, next: shortest, chance: seed.max(1) }
    }

    /// As it stands after so many pauses.
    #[must_use]
    pub fn after(mut self, pauses: u32) -> Self {
        self.next = self.shortest.saturating_mul(2_u32.saturating_pow(pauses)).min(self.longest);
        self
    }

    /// How long to wait now; the next pause is twice as long.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        // xorshift64: spread is all that is asked of it.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        pause.mul_f64(0.8 + 0.4 * (self.chance % 1000) as f64 / 1000.0)
    }

    /// The longest pause, now and from now on: trouble that does not pass quickly.
    pub fn longest_pause(&mut self) -> Duration {
        self.next = self.longest;
        self.pause()
    }

    /// It went well: the next pause is the shortest again.
    pub fn reset(&mut self) {
        self.next = self.shortest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(pause: Duration, seconds: u64) {
        let plain = Duration::from_secs(seconds);
        assert!((plain.mul_f64(0.8)..plain.mul_f64(1.2)).contains(&pause), "{pause:?} for {plain:?}");
    }

    /// §1.4, NEW-6, F12: doubling within its bounds, each ±20 % whatever the seed, and from the start again after a success.
    #[test]
    fn grows_within_bounds_and_is_spread() {
        for seed in [0, 1, 99, u64::MAX] {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5), seed);
            for seconds in [1, 2, 4, 5, 5] {
                near(backoff.pause(), seconds);
            }
            assert_ne!(backoff.pause(), backoff.pause(), "two in a herd");
            backoff.reset();
            near(backoff.pause(), 1);
            near(backoff.longest_pause(), 5);
            near(backoff.pause(), 5);
        }
        let backoff = |seed| Backoff::new(Duration::from_secs(2), Duration::from_secs(60), seed);
        for (pauses, seconds) in [(0, 2), (1, 4), (4, 32), (5, 60), (u32::MAX, 60)] {
            near(backoff(7).after(pauses).pause(), seconds);
        }
        assert_ne!(backoff(1).pause(), backoff(2).pause(), "two processes");
    }
}
