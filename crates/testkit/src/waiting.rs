//! How tests wait for a double: they look again after every change.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// A condition did not come true in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("after {deadline:?} it is still not so that {what}")]
pub struct NotInTime {
    what: String,
    deadline: Duration,
}

/// Waits until a condition holds; `what` completes "it is not so that …".
///
/// # Errors
/// `deadline` passes first.
pub(crate) async fn until(
    mut changes: watch::Receiver<u64>,
    what: &str,
    condition: impl Fn() -> bool,
    deadline: Duration,
) -> Result<(), NotInTime> {
    let end = Instant::now() + deadline;
    loop {
        changes.borrow_and_update();
        if condition() {
            return Ok(());
        }
        if timeout_at(end, changes.changed()).await.is_err() {
            return Err(NotInTime { what: what.to_owned(), deadline });
        }
    }
}
