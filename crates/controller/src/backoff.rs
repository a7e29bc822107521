//! The chance that the pauses of this process are spread by.

use std::time::Duration;

use domain::backoff::Backoff;

/// A growing pause of this process.
#[must_use]
pub fn backoff(shortest: Duration, longest: Duration) -> Backoff {
    Backoff::new(shortest, longest, seed())
}

/// Without randomness every process pauses alike.
#[must_use]
pub fn seed() -> u64 {
    getrandom::u64().unwrap_or_default()
}
