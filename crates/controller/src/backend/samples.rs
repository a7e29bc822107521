//! What the tests of every backend make executors of, and how they look at them.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use domain::capability::{Capability, Key, KeyRing};
use domain::id::{AssignmentId, Backend as Kind, Epoch, PayloadDigest, TaskId};
use domain::metadata::ExecutorRecord;

use super::{Backend, ExecutorState, Launch};

/// Enough for a machine under load; nothing waits for so long when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The first executor of this task.
pub(crate) fn record(backend: Kind, n: i64) -> ExecutorRecord {
    ExecutorRecord {
        id: AssignmentId::of(TaskId::try_from(n).unwrap()),
        instance: "here".parse().unwrap(),
        backend,
        epoch: Epoch::FIRST,
        digest: PayloadDigest::of(format!("task {n}").as_bytes()),
        repository: "owner/name".parse().unwrap(),
        job_key: "build".parse().unwrap(),
        spiffe_id: "spiffe://example.org/ci/owner/name/build".parse().unwrap(),
        fetched_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        deadline: "2026-01-02T06:04:05Z".parse().unwrap(),
        claim: None,
        interrupted_at: None,
        steps: None,
        terminal: false,
    }
}

/// The name of [`record`].
pub(crate) fn name(n: i64) -> String {
    format!("gitea-task-{n}-here-e1")
}

pub(crate) fn launch_of(record: ExecutorRecord) -> Launch {
    let capability = capability(&record);
    Launch { labels: vec!["self-hosted".to_owned(), record.backend.to_string()], record, capability }
}

fn capability(record: &ExecutorRecord) -> Capability {
    let key = Key::new("k".repeat(32).as_bytes()).unwrap();
    KeyRing::new(key, None).issue(&record.instance, record.id, record.epoch, record.deadline)
}

pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn state(backend: &impl Backend, name: &str) -> Option<ExecutorState> {
    backend.list().await.unwrap().into_iter().find(|observed| observed.name == name).map(|observed| observed.state)
}

/// Lists at every nudge until the executor is in a state like that.
pub(crate) async fn state_after_nudge(
    backend: &impl Backend,
    name: &str,
    wanted: impl Fn(&ExecutorState) -> bool,
) -> ExecutorState {
    let nudged = async {
        loop {
            if let Some(state) = state(backend, name).await.filter(&wanted) {
                return state;
            }
            backend.changed().await;
        }
    };
    tokio::time::timeout(PATIENCE, nudged).await.unwrap()
}
