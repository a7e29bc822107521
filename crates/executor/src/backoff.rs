//! The chance that the pauses of this executor are spread by: a thousand of them must not return at once.

use std::time::Duration;

use domain::backoff::Backoff;

/// A growing pause of this executor. Without randomness all executors pause alike.
pub(crate) fn backoff(shortest: Duration, longest: Duration) -> Backoff {
    Backoff::new(shortest, longest, getrandom::u64().unwrap_or_default())
}
