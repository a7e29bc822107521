//! Normal waiting is told once and then at most every five minutes (NEW-142).

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The pause between two lines about the same wait.
pub const PAUSE: Duration = Duration::from_secs(5 * 60);

/// Which waits were told about, and when. Pure: the caller brings the time.
#[derive(Debug)]
pub struct Repeats<K> {
    told: HashMap<K, Told>,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    at: Instant,
    swallowed: u32,
}

/// What to do with one occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Write a line; so many occurrences before it were not written.
    Tell {
        /// Occurrences since the last line.
        swallowed: u32,
    },
    /// Write nothing.
    Quiet,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self { told: HashMap::new() }
    }
}

impl<K: Eq + Hash> Repeats<K> {
    /// Judges one occurrence of the wait `key` (an assignment and what it waits for).
    pub fn admit(&mut self, key: K, now: Instant) -> Admission {
        match self.told.get_mut(&key) {
            Some(told) if now.saturating_duration_since(told.at) < PAUSE => {
                told.swallowed = told.swallowed.saturating_add(1);
                Admission::Quiet
            }
            Some(told) => {
                Admission::Tell { swallowed: std::mem::replace(told, Told { at: now, swallowed: 0 }).swallowed }
            }
            None => {
                self.told.insert(key, Told { at: now, swallowed: 0 });
                Admission::Tell { swallowed: 0 }
            }
        }
    }

    /// The wait is over; the next one is told about at once.
    pub fn over(&mut self, key: &K) {
        self.told.remove(key);
    }

    /// Keeps the waits that still go on; the rest is over.
    pub fn retain(&mut self, goes_on: impl Fn(&K) -> bool) {
        self.told.retain(|key, _| goes_on(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-142: an hour of a full pool, asked every second, is 12 lines.
    #[test]
    fn an_hour_of_waiting() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let admissions = (0..3600).map(|s| repeats.admit("task 1", start + Duration::from_secs(s)));
        let told: Vec<_> = admissions.filter(|a| *a != Admission::Quiet).collect();
        assert_eq!(told.len(), 12);
        assert_eq!(told[1], Admission::Tell { swallowed: 299 });
    }

    #[test]
    fn waits_are_told_apart_and_end() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        assert_eq!(repeats.admit(1, now), Admission::Tell { swallowed: 0 });
        assert_eq!(repeats.admit(2, now), Admission::Tell { swallowed: 0 });
        assert_eq!(repeats.admit(1, now), Admission::Quiet);
        repeats.over(&1);
        assert_eq!(repeats.admit(1, now), Admission::Tell { swallowed: 0 });
        repeats.retain(|key| *key == 1);
        assert_eq!(repeats.admit(2, now), Admission::Tell { swallowed: 0 });
    }
}
