//! Gitea's clock: starts at the real time, can run faster and can be moved forward.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// A clock that a test can speed up or move forward, never back.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Timestamp,
    since: Instant,
    rate: f64,
}

impl Clock {
    pub(crate) fn new(rate: f64) -> Self {
        Self { origin: Timestamp::now(), since: Instant::now(), rate }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.origin.saturating_add(signed(self.since.elapsed().mul_f64(self.rate))).unwrap_or(Timestamp::MAX)
    }

    /// Moves the clock forward by `by` at once.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.origin = self.origin.saturating_add(signed(by)).unwrap_or(Timestamp::MAX);
    }

    /// From now on one real second is `rate` seconds of Gitea.
    pub(crate) fn set_rate(&mut self, rate: f64) {
        self.origin = self.now();
        self.since = Instant::now();
        self.rate = rate;
    }

    /// How long `gitea` time takes in real time.
    pub(crate) fn real(&self, gitea: Duration) -> Duration {
        if self.rate > 0.0 { gitea.div_f64(self.rate) } else { Duration::MAX }
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// The time between two moments, zero if they are in the wrong order.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// As Gitea stores it: whole seconds.
pub(crate) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// The wire's time as ours; `None` beyond the years 1 to 9999.
pub(crate) fn from_wire(time: &buffa_types::google::protobuf::Timestamp) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok()
}
