//! Waiting for a condition of a real far side, which sends no events: look again every 100 ms until a deadline.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Error;

const PAUSE: Duration = Duration::from_millis(100);

/// What one look showed.
#[derive(Debug)]
pub enum Seen<T> {
    /// The condition holds.
    Done(T),
    /// Not yet; the words stand in the error if it never does.
    NotYet(String),
}

/// Looks until the condition holds.
///
/// # Errors
/// The first error of a look that is not `NoAnswer` (a server that is being restarted gives none), or
/// [`Error::Deadline`] with what was last seen.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Seen<T>, Error>,
) -> Result<T, Error> {
    let end = Instant::now() + limit;
    loop {
        let last = match look().await {
            Ok(Seen::Done(value)) => return Ok(value),
            Ok(Seen::NotYet(last)) => last,
            Err(error @ Error::NoAnswer { .. }) => error.to_string(),
            Err(error) => return Err(error),
        };
        if Instant::now() >= end {
            return Err(Error::Deadline { what: what.to_owned(), limit, last });
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn waits_for_the_condition_and_names_the_last_look() {
        let mut looks = 0;
        let third = eventually("third look", Duration::from_secs(5), async || {
            looks += 1;
            Ok(if looks == 3 { Seen::Done(looks) } else { Seen::NotYet(format!("look {looks}")) })
        });
        assert_eq!(third.await.unwrap(), 3);

        let never = eventually("the moon", Duration::from_millis(200), async || {
            Ok::<Seen<()>, Error>(Seen::NotYet("clouds".to_owned()))
        });
        assert_eq!(never.await.unwrap_err().to_string(), "the moon: not within 0.2 s; last seen: clouds");
    }
}
