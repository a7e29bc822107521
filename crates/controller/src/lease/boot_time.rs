//! The clock that leases are judged by.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time of this host since it was started, sleep included (`CLOCK_BOOTTIME`), which nobody sets. `std`'s clock stands
/// still while a host sleeps, and a lease does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BootTime(Duration);

impl BootTime {
    /// The time.
    pub(super) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        // Neither part is ever negative: the clock begins at 0.
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Self(Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default()))
    }

    /// How long after `earlier` this is; zero when it is not.
    pub(super) fn after(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// A time that tests count from.
    #[cfg(test)]
    pub(super) fn at(since_start: Duration) -> Self {
        Self(since_start)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// `/proc/uptime` counts sleep as well, in hundredths of a second.
    #[test]
    fn it_is_the_time_since_the_host_was_started() {
        let before = BootTime::now();
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = text.split(' ').next().unwrap().parse().unwrap();
        let after = BootTime::now();
        let hundredth = Duration::from_millis(10);
        assert!(before.0.saturating_sub(hundredth).as_secs_f64() <= uptime && uptime <= after.0.as_secs_f64());
        assert_eq!((before + hundredth).after(before), hundredth);
        assert_eq!(before.after(before + hundredth), Duration::ZERO);
    }
}
