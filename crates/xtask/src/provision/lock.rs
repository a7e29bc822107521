//! One provision at a time for one cache folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::{Instant, sleep};

use crate::say::Step;

/// Longer than the longest build on a slow machine.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Takes the lock, waiting for whoever holds it. The system frees it when we end, in whatever way.
pub(crate) async fn take(root: &Path) -> anyhow::Result<File> {
    let path = root.join(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("open {}", path.display()))?;
    let mut waiting: Option<Step> = None;
    let end = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => {
                if let Some(step) = waiting {
                    step.end("it is done");
                }
                return Ok(file);
            }
            Err(TryLockError::WouldBlock) if Instant::now() < end => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another provision has held {} for {} min", path.display(), PATIENCE.as_secs() / 60)
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
        waiting.get_or_insert_with(|| Step::begin("provision: wait for another provision")).tick("");
        sleep(Duration::from_millis(200)).await;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn the_second_waits_for_the_first() {
        let root = tempfile::tempdir().unwrap();
        let first = take(root.path()).await.unwrap();
        let mut second = std::pin::pin!(take(root.path()));
        let early = tokio::time::timeout(Duration::from_millis(300), &mut second).await;
        assert!(early.is_err(), "two at once");
        drop(first);
        tokio::time::timeout(Duration::from_secs(30), second).await.unwrap().unwrap();
    }
}
