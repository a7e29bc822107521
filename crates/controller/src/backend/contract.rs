//! What every [`Backend`] must do, wherever its executors are.
//!
//! A stage makes one place for executors; `controller` is a controller that starts there, after the one before it has
//! gone. Each backend has one test that calls [`all`] with a stage whose executors run until `end` is called for them.

#![expect(clippy::unwrap_used, reason = "tests")]

use domain::id::{Backend as Kind, PayloadDigest, executor_name};
use domain::metadata::{Claim, ExecutorRecord, Mark};

use super::samples::{self, launch_of, until};
use super::{Backend, BackendError, Ensured, ExecutorState, Exit, Marked};

/// A place for executors.
pub(crate) struct Stage<C, E> {
    /// Which backend.
    pub(crate) kind: Kind,
    /// A controller that starts now.
    pub(crate) controller: C,
    /// Lets the executor of this name end with exit code 0.
    pub(crate) end: E,
}

pub(crate) async fn all<B: Backend, C: Fn() -> B, E: AsyncFn(&str)>(stage: Stage<C, E>) {
    made_once_and_listed_as_made(&stage).await;
    marks_add_and_last(&stage).await;
    another_life_is_a_conflict(&stage).await;
    what_is_for_others_is_refused(&stage).await;
    ended_is_not_made_again(&stage).await;
    deleting_leaves_nothing(&stage).await;
    many_at_once(&stage).await;
}

impl<C, E> Stage<C, E> {
    fn record(&self, n: i64) -> ExecutorRecord {
        ExecutorRecord {
            deadline: "2100-01-02T06:04:05Z".parse().unwrap(),
            steps: Some(r#"{"c":"n","s":[]}"#.to_owned()),
            ..samples::record(self.kind, n)
        }
    }
}

fn name(record: &ExecutorRecord) -> String {
    executor_name(record.id, &record.instance, record.epoch)
}

async fn made(backend: &impl Backend, record: &ExecutorRecord) {
    until("ready", async || backend.ensure(launch_of(record.clone())).await.unwrap() == Ensured::Ready).await;
}

async fn removed(backend: &impl Backend, record: &ExecutorRecord) {
    until("deleted", async || backend.delete(&name(record)).await.is_ok()).await;
}

async fn state(backend: &impl Backend, record: &ExecutorRecord) -> Option<ExecutorState> {
    samples::state(backend, &name(record)).await
}

/// WRK-1, WRK-2, WRK-5, WRK-9: asked for once or often, there is one, and it says what it was made of.
async fn made_once_and_listed_as_made<B: Backend, C: Fn() -> B, E>(stage: &Stage<C, E>) {
    let (backend, record) = ((stage.controller)(), stage.record(1));
    made(&backend, &record).await;
    made(&backend, &record).await;
    let listed = backend.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].name, listed[0].record.as_deref()), (&name(&record), Ok(&record)));
    until("running", async || state(&backend, &record).await == Some(ExecutorState::Running)).await;
    removed(&backend, &record).await;
}

/// NEW-53, NEW-54, POD-8: marks add to each other, hold over a restart, and one for nobody is no error.
async fn marks_add_and_last<B: Backend, C: Fn() -> B, E>(stage: &Stage<C, E>) {
    let mut record = stage.record(2);
    let backend = (stage.controller)();
    made(&backend, &record).await;
    let claim = Claim { at: "2026-01-02T03:05:00Z".parse().unwrap(), log_shift: 3 };
    let marks = [
        Mark::Claimed(claim),
        Mark::Steps(r#"{"c":"y","s":[]}"#.to_owned()),
        Mark::Interrupted("2026-01-02T03:06:00Z".parse().unwrap()),
        Mark::Terminal,
    ];
    for mark in marks {
        for _ in 0..2 {
            assert_eq!(backend.mark(&name(&record), mark.clone()).await, Ok(Marked::Written));
        }
        record.apply(&mark);
    }
    drop(backend);
    let backend = (stage.controller)();
    assert_eq!(backend.list().await.unwrap()[0].record.as_deref(), Ok(&record));
    removed(&backend, &record).await;
    assert_eq!(backend.mark(&name(&record), Mark::Terminal).await, Ok(Marked::Gone));
}

/// NEW-3, WRK-2: another life of the same number is neither adopted nor harmed.
async fn another_life_is_a_conflict<B: Backend, C: Fn() -> B, E>(stage: &Stage<C, E>) {
    let (backend, record) = ((stage.controller)(), stage.record(3));
    made(&backend, &record).await;
    let other = ExecutorRecord { digest: PayloadDigest::of(b"another"), ..record.clone() };
    assert!(matches!(backend.ensure(launch_of(other)).await, Err(BackendError::Conflict { .. })));
    assert_eq!(backend.list().await.unwrap()[0].record.as_deref(), Ok(&record));
    removed(&backend, &record).await;
}

/// POD-3, NEW-2: what another instance or backend is to make is refused, and nothing is made.
async fn what_is_for_others_is_refused<B: Backend, C: Fn() -> B, E>(stage: &Stage<C, E>) {
    let backend = (stage.controller)();
    let foreign = ExecutorRecord { instance: "there".parse().unwrap(), ..stage.record(4) };
    let other = ExecutorRecord { backend: Kind::Vm, ..stage.record(4) };
    for record in [foreign, other] {
        assert!(matches!(backend.ensure(launch_of(record)).await, Err(BackendError::Permanent { .. })));
    }
    assert!(backend.list().await.unwrap().is_empty());
}

/// NEW-63, WRK-2: one that has ended is there, is ready, and is not started again.
async fn ended_is_not_made_again<B: Backend, C: Fn() -> B, E: AsyncFn(&str)>(stage: &Stage<C, E>) {
    let (backend, record) = ((stage.controller)(), stage.record(5));
    made(&backend, &record).await;
    (stage.end)(&name(&record)).await;
    let ended = |state: Option<ExecutorState>| matches!(state, Some(ExecutorState::Ended(Exit { code: Some(0), .. })));
    until("ended", async || ended(state(&backend, &record).await)).await;
    made(&backend, &record).await;
    assert!(ended(state(&backend, &record).await));
    drop(backend);
    let backend = (stage.controller)();
    assert!(ended(state(&backend, &record).await), "also for a new controller");
    removed(&backend, &record).await;
}

/// WRK-9, POD-7: deleted once or often, running or not there at all, nothing is left.
async fn deleting_leaves_nothing<B: Backend, C: Fn() -> B, E>(stage: &Stage<C, E>) {
    let (backend, record) = ((stage.controller)(), stage.record(6));
    removed(&backend, &record).await;
    made(&backend, &record).await;
    removed(&backend, &record).await;
    removed(&backend, &record).await;
    assert!(backend.list().await.unwrap().is_empty());
}

/// NEW-55: many at once are made, counted and removed, each for itself.
async fn many_at_once<B: Backend, C: Fn() -> B, E>(stage: &Stage<C, E>) {
    let backend = (stage.controller)();
    let records: Vec<_> = (10..18).map(|n| stage.record(n)).collect();
    futures::future::join_all(records.iter().map(|record| made(&backend, record))).await;
    assert_eq!(backend.list().await.unwrap().len(), records.len());
    futures::future::join_all(records.iter().map(|record| removed(&backend, record))).await;
    assert!(backend.list().await.unwrap().is_empty());
}
