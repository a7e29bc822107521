//! Time for deadlines: the wall clock as it stood at the start, moved on by the monotonic one, so that a clock that is set
//! while we run changes no verdict (NEW-151).

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// The process's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Timestamp,
    monotonic: Instant,
}

impl Clock {
    /// A clock that agrees with the wall clock now.
    #[must_use]
    pub fn start() -> Self {
        Self { wall: Timestamp::now(), monotonic: Instant::now() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.monotonic.elapsed()).unwrap_or(SignedDuration::MAX);
        self.wall.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}
