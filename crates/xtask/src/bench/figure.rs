//! One row of the table, and what many samples come to.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A figure beside its goal. Where the official runner was measured in the same run, its figure and the ratio too.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) measure: String,
    pub(super) value: String,
    #[serde(default)]
    pub(super) runner: String,
    #[serde(default)]
    pub(super) ratio: String,
    pub(super) goal: String,
}

impl Figure {
    pub(super) const HEAD: [&str; 5] = ["measure", "value", "runner alone", "ratio", "goal"];

    pub(super) fn new(measure: impl Into<String>, value: String, goal: &str) -> Self {
        Self { measure: measure.into(), value, goal: goal.to_owned(), ..Self::default() }
    }

    /// Ours beside the official runner's; the goal is for the ratio.
    pub(super) fn against(measure: impl Into<String>, ours: Duration, runner: Duration, goal: &str) -> Self {
        let ratio = if runner.is_zero() { String::new() } else { format!("{:.2}×", ours.div_duration_f64(runner)) };
        Self { measure: measure.into(), value: millis(ours), runner: millis(runner), ratio, goal: goal.to_owned() }
    }

    pub(super) fn cells(&self) -> Vec<String> {
        [&self.measure, &self.value, &self.runner, &self.ratio, &self.goal].into_iter().cloned().collect()
    }
}

/// Three digits are all that a measurement is good for.
pub(super) fn millis(time: Duration) -> String {
    match time.as_micros() {
        0..1_000 => format!("{} µs", time.as_micros()),
        1_000..100_000 => format!("{:.1} ms", time.as_secs_f64() * 1000.0),
        100_000..10_000_000 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

pub(super) fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_three_digits() {
        let of = |micros| millis(Duration::from_micros(micros));
        assert_eq!(
            (of(7), of(1500), of(123_456), of(12_345_678)),
            ("7 µs".to_owned(), "1.5 ms".to_owned(), "123 ms".to_owned(), "12.3 s".to_owned())
        );
    }
}
