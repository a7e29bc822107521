//! Pauses between repetitions: doubling, bounded, with jitter so that a thousand executors do not return at once.

use std::time::Duration;

/// A growing pause.
pub(crate) struct Backoff {
    next: Duration,
    most: Duration,
}

impl Backoff {
    /// From `least` doubling to `most`.
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { next: least, most }
    }

    /// The next pause: ±20 %.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.most);
        // Without randomness the pause is the plain one.
        let spread = getrandom::u32().map_or(50, |random| random % 101);
        pause * (80 * 100 + spread * 40) / 10_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_within_bounds() {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(1));
        for plain in [200_u64, 400, 800, 1000, 1000] {
            let pause = backoff.pause().as_millis();
            let plain = u128::from(plain);
            assert!(pause >= plain * 8 / 10 && pause <= plain * 12 / 10, "{pause} for {plain}");
        }
    }
}
