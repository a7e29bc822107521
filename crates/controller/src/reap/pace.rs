//! The pace of a room that looks at everything.

use std::time::Duration;

use tokio::time::Instant;

/// Whoever waits for the room waits for this at most.
const LONGEST: Duration = Duration::from_millis(250);
/// It rests so many times as long as it worked: a tenth of a core is the most that it takes.
const TIMES: u32 = 9;
/// What took less costs nothing worth a rest.
const SHORT: Duration = Duration::from_micros(100);

/// One look at everything. It costs as much as there are lives, and a busy controller changes more often than it could
/// look: after each the room rests the longer the longer it took, and sees in one what changed meanwhile.
pub(super) struct Pass(Instant);

impl Pass {
    /// It begins now.
    pub(super) fn begin() -> Self {
        Self(Instant::now())
    }

    /// It has ended: waits until the next may begin.
    pub(super) async fn rest(self) {
        let rest = rest_after(self.0.elapsed());
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
    }
}

fn rest_after(took: Duration) -> Duration {
    if took < SHORT { Duration::ZERO } else { (took * TIMES).min(LONGEST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-142, NEW-152: with few executors every change is looked at at once; with thousands a room leaves most of the
    /// time to others, and nobody waits long for it.
    #[test]
    fn the_longer_it_took_the_longer_it_rests() {
        let after = |micros| rest_after(Duration::from_micros(micros));
        assert_eq!(after(60), Duration::ZERO);
        assert_eq!(after(2_000), Duration::from_millis(18));
        assert_eq!(after(10_000_000), LONGEST);
    }
}
