//! Time for deadlines: the wall clock as it stood at the start, moved on by the monotonic one, so that a clock that is set
//! while we run changes no verdict (NEW-151).

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// A difference to another host's clock that is worth a warning: what deadlines bear without any change of a verdict
/// (NEW-151). An HTTP `Date` is exact to a second.
pub const TOLERATED_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// How far the clock that wrote this `Date` header is ahead of `now`; negative when it is behind. The answer may have
/// been on its way since `asked`: a time between the two is no difference at all. None when it is no date.
#[must_use]
pub fn skew(date: &str, asked: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    // Cut to whole seconds, so it may be as much as one second older than it says.
    let (earliest, latest) = (theirs, theirs.saturating_add(SignedDuration::from_secs(1)).unwrap_or(theirs));
    Some(if latest < asked {
        latest.duration_since(asked)
    } else if earliest > now {
        earliest.duration_since(now)
    } else {
        SignedDuration::ZERO
    })
}

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

    /// A clock that says `wall` now, for tests of what must not look at the wall clock again.
    #[cfg(test)]
    pub(crate) fn saying(wall: Timestamp) -> Self {
        Self { wall, ..Self::start() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.monotonic.elapsed()).unwrap_or(SignedDuration::MAX);
        self.wall.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// NEW-151, F17: what a `Date` header says of the other clock; the way of the answer is no difference.
    #[test]
    fn skew_of_a_date_header() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (asked, now) = (at("2026-11-29T12:00:00.5Z"), at("2026-11-29T12:00:20Z"));
        for (date, seconds) in [
            ("Sun, 29 Nov 2026 12:00:00 GMT", 0),
            ("Sun, 29 Nov 2026 12:00:10 GMT", 0),
            ("Sun, 29 Nov 2026 12:00:20 GMT", 0),
            ("Sun, 29 Nov 2026 13:00:20 GMT", 3600),
            ("Sun, 29 Nov 2026 10:59:59 GMT", -3600),
        ] {
            assert_eq!(skew(date, asked, now).map(|skew| skew.as_secs()), Some(seconds), "{date}");
        }
        assert_eq!(skew("yesterday", asked, now), None);
    }
}
