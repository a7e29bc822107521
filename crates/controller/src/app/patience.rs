//! A start asks a queue again that does not answer: NATS may go away between our connection and the first question.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::queue::QueueError;

/// As long as a start tries to connect to NATS.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// The answer, or what stands in its way; what only is away is asked again for 30 s.
pub(super) async fn while_away<T, F>(ask: impl Fn() -> F) -> Result<T, QueueError>
where
    F: Future<Output = Result<T, QueueError>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(QueueError::Unavailable { cause }) if Instant::now() < end => {
                tracing::warn!(component = "queue", cause, "the queue does not answer yet; asked again");
                sleep(PAUSE).await;
            }
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn away() -> QueueError {
        QueueError::Unavailable { cause: "no connection".to_owned() }
    }

    /// NEW-47, F34: what is away at a start is waited for, for a while; what cannot be used is not.
    #[tokio::test(start_paused = true)]
    async fn what_is_away_is_asked_again() {
        let tries = Cell::new(0);
        let asked = while_away(async || {
            tries.set(tries.get() + 1);
            if tries.get() < 4 { Err(away()) } else { Ok(tries.get()) }
        });
        assert!(matches!(asked.await, Ok(4)));
        let (begun, never) = (Instant::now(), while_away(async || Err::<(), _>(away())));
        assert!(matches!(never.await, Err(QueueError::Unavailable { .. })));
        assert_eq!(begun.elapsed(), PATIENCE);
        let unusable = || QueueError::Unusable { cause: "a disk".to_owned(), remedy: "another".to_owned() };
        let (begun, refused) = (Instant::now(), while_away(async || Err::<(), _>(unusable())));
        assert!(matches!(refused.await, Err(QueueError::Unusable { .. })));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
