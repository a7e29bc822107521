//! The order of an end (NEW-16): no further fetch, the one in flight is awaited and what it brought is persisted; no
//! further launch, heartbeat, report and removal; running calls of executors are finished. Executors are left alone.
//! Every step has its own limit.

use std::time::Duration;

use domain::lifecycle::{Event, Phase};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::board::Board;

/// For the fetch in flight: Gitea's deadline and ours, and a publish.
const FETCH: Duration = Duration::from_secs(70);
/// For telling Gitea of tasks that the queue did not take.
const REPORTS: Duration = Duration::from_secs(15);
/// For calls that are being carried out.
const CALLS: Duration = Duration::from_secs(10);
/// For the rooms to end and connections to drain.
const ROOMS: Duration = Duration::from_secs(10);

/// What the rooms wait for.
#[derive(Default)]
pub(super) struct Shutdown {
    /// No further fetch.
    pub(super) fetch: CancellationToken,
    /// The fetch loop has ended.
    pub(super) fetched: CancellationToken,
    /// Everything else ends.
    pub(super) rooms: CancellationToken,
}

impl Shutdown {
    /// Ends everything in order; `ended` is ready when no room runs any more.
    pub(super) async fn drain(&self, board: &Board, calls: &TaskTracker, ended: impl Future<Output = ()>) {
        self.fetch.cancel();
        let _slow = tokio::time::timeout(FETCH, self.fetched.cancelled()).await;
        let _slow = tokio::time::timeout(REPORTS, told(board)).await;
        self.rooms.cancel();
        calls.close();
        let _slow = tokio::time::timeout(CALLS, calls.wait()).await;
        let _slow = tokio::time::timeout(ROOMS, ended).await;
    }
}

/// Ends what is nowhere durable, and is ready when Gitea heard of it.
async fn told(board: &Board) {
    let mut changes = board.changes();
    let fetched: Vec<_> = board.views().into_iter().filter(|view| *view.life.phase() == Phase::Fetched).collect();
    for view in &fetched {
        board.apply(view.id, Event::Stopping);
    }
    let open = || {
        fetched.iter().any(|view| board.view(view.id).is_some_and(|now| matches!(now.life.phase(), Phase::Ending(_))))
    };
    while open() {
        changes.next().await;
    }
}

/// SIGINT and SIGTERM mean the same.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
