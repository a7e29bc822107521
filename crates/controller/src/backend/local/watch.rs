//! Tells promptly that a supervisor has ended: one handle per process, no looking around.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

use super::process::Process;

/// The watches of one backend; dropping it ends them.
#[derive(Default)]
pub(super) struct Watch {
    changed: Arc<Notify>,
    followed: Mutex<HashMap<String, AbortHandle>>,
    buried: Mutex<JoinSet<()>>,
}

impl Watch {
    /// Ready after something changed; remembers one change for whoever asks late.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits for the end of a process that we started, or it stays a zombie; a task for each of them, as long as it lives.
    pub(super) fn bury(&self, mut child: Child) {
        let mut buried = self.buried.lock().unwrap_or_else(PoisonError::into_inner);
        while buried.try_join_next().is_some() {}
        buried.spawn(async move { drop(child.wait().await) });
    }

    /// Follows the supervisor of this executor, once.
    pub(super) fn follow(&self, name: &str, supervisor: &Process) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        followed.retain(|_, task| !task.is_finished());
        if followed.contains_key(name) {
            return;
        }
        let changed = Arc::clone(&self.changed);
        let Some(handle) = supervisor.open().and_then(readable) else {
            // It ended before it could be followed.
            changed.notify_one();
            return;
        };
        let task = tokio::spawn(async move {
            drop(handle.readable().await.map(|_| ()));
            changed.notify_one();
        });
        followed.insert(name.to_owned(), task.abort_handle());
    }
}

#[expect(
    deprecated,
    reason = "the successor is unsafe to call; what it guards against, a handle that is closed \
                              elsewhere, cannot happen to an OwnedFd"
)]
fn readable(handle: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE).ok()
}

impl Drop for Watch {
    fn drop(&mut self) {
        let followed = self.followed.get_mut().unwrap_or_else(PoisonError::into_inner);
        followed.values().for_each(AbortHandle::abort);
    }
}
