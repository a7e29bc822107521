//! Times of a thing that was done many times, and what stands for all of them.

use std::time::Duration;

/// Times of a thing that was done many times. What stands for all of them is decided here and nowhere else.
pub(crate) struct Samples(Vec<Duration>);

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        let mut times: Vec<Duration> = times.into_iter().collect();
        times.sort_unstable();
        Self(times)
    }
}

impl Samples {
    /// The smallest one that so many percent do not exceed (nearest rank); zero when there is none.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(rank).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.percentile(50)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_sample_that_was_seen() {
        let samples = |count: u64| (1..=count).rev().map(Duration::from_millis).collect::<Samples>();
        let of = |count, percent| samples(count).percentile(percent).as_millis();
        assert_eq!((of(5, 50), of(4, 50), of(1, 99), of(0, 50)), (3, 2, 1, 0));
        assert_eq!((of(200, 99), of(201, 99), of(100, 100)), (198, 199, 100));
    }
}
