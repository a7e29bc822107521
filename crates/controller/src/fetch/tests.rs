#![expect(clippy::unwrap_used, reason = "tests")]

use domain::identity::{IdentityCase, IdentityRules};
use domain::lifecycle::Limits;
use domain::policy::{LabelMap, TrustPolicy};
use futures::future::BoxFuture;
use jiff::SignedDuration;
use std::sync::atomic::AtomicBool;
use testkit::gitea::{Gitea as Double, JobSpec, JobState, Status};
use tokio::sync::watch;

use super::*;
use crate::board::Recovery;
use crate::chronicle::Chronicle;
use crate::clock::Clock;
use crate::config::Keys;
use crate::config::secret::{SecretFile, SecretRule};
use crate::gitea::{Credential, OnCancel};
use crate::ops::liveness::Liveness;
use crate::ops::metrics::Metrics;
use crate::ops::readiness::Readiness;
use crate::ops::status::StatusSnapshot;
use crate::queue::embedded::{Embedded, Settings};
use crate::queue::{Delivery, Key, Published, Waiting};
use crate::report::Report;
use crate::rotation::Ring;

const LOCAL: domain::id::Backend = domain::id::Backend::Local;
const SOON: Duration = Duration::from_secs(60);

/// The fetch and the report room of one process, between the double and a queue that takes 64 KiB a message.
struct Rooms {
    fetch: Arc<Fetch>,
    disk: Arc<Disk>,
    stop: CancellationToken,
    _report: tokio::task::JoinHandle<()>,
}

/// A queue on a disk that may be full.
struct Disk {
    queue: Embedded,
    is_full: AtomicBool,
    /// How many messages it did not take.
    refused: watch::Sender<usize>,
}

impl Queue for Disk {
    fn publish(&self, message: Message) -> BoxFuture<'_, Result<Published, QueueError>> {
        if !self.is_full.load(Ordering::SeqCst) {
            return self.queue.publish(message);
        }
        self.refused.send_modify(|refused| *refused += 1);
        Box::pin(async { Err(QueueError::Full { cause: "no space".into(), remedy: "free some".into() }) })
    }

    fn largest_message(&self) -> usize {
        self.queue.largest_message()
    }

    fn list(&self, backend: domain::id::Backend) -> BoxFuture<'_, Result<Vec<Waiting>, QueueError>> {
        self.queue.list(backend)
    }

    fn pull(
        &self,
        backend: domain::id::Backend,
        now: jiff::Timestamp,
    ) -> BoxFuture<'_, Result<Option<Delivery>, QueueError>> {
        self.queue.pull(backend, now)
    }

    fn settle(&self, key: Key, disposition: Disposition) -> BoxFuture<'_, Result<(), QueueError>> {
        self.queue.settle(key, disposition)
    }

    fn trouble(&self) -> Option<String> {
        self.queue.trouble()
    }

    fn tend(&self) -> BoxFuture<'static, QueueError> {
        self.queue.tend()
    }
}

impl Drop for Rooms {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn rooms(double: &Double, credential: &testkit::runner_client::Credentials, dir: &std::path::Path) -> Rooms {
    let instance: domain::id::InstanceId = "f66f031b".parse().unwrap();
    let settings = Settings { max_bytes: 1 << 20, ..Settings::new(dir.join("queue.db")) };
    let queue = Embedded::open(settings).await.unwrap();
    let disk = Arc::new(Disk { queue, is_full: AtomicBool::new(false), refused: watch::Sender::new(0) });
    let metrics = Metrics::new(&instance);
    let chronicle = Chronicle::new(metrics.clone(), instance.clone());
    let board = Arc::new(Board::new(Limits::default(), Clock::start(), chronicle));
    board.recovered(Recovery::Complete);
    let credential = Credential { uuid: credential.uuid.clone(), token: Zeroizing::new(credential.token.clone()) };
    let empty = StatusSnapshot::empty("f66f031b", vec![], board.now());
    let ops = Ops {
        readiness: Readiness::default(),
        metrics,
        liveness: Liveness::default(),
        clock: Clock::start(),
        snapshot: Arc::new(move |_| empty.clone()),
    };
    let identity =
        IdentityRules { trust_domain: "example.org".parse().unwrap(), prefix: None, case: IdentityCase::Lower };
    let labels = LabelMap::new(&[LOCAL], "vm", &[]);
    let fetch = Arc::new(Fetch {
        gitea: Arc::new(Gitea::new(&double.url(), credential, OnCancel::Stops).unwrap()),
        board: Arc::clone(&board),
        queue: Arc::clone(&disk) as Arc<dyn Queue>,
        sealing: Arc::new(Sealing::new(ring(dir), "ci", instance.clone())),
        labels: labels.declared(&[LOCAL], domain::policy::SelfHosted::Declared),
        rules: Arc::new(Rules {
            instance,
            labels,
            default_backend: Some(LOCAL),
            identity,
            trust: TrustPolicy::default(),
            run_limit: None,
            endless_limit: SignedDuration::from_hours(3),
        }),
        room: Room { capacity: 4, look_ahead: 0, shares: Default::default() },
        capabilities: Arc::default(),
        ops: ops.clone(),
        tracker: TaskTracker::new(),
        unwritten: AtomicUsize::new(0),
    });
    let stop = CancellationToken::new();
    let report = Arc::new(Report { board, ops, tracker: TaskTracker::new(), under_way: Default::default() });
    Rooms { fetch, disk, _report: tokio::spawn(report.run(stop.clone())), stop }
}

fn ring(dir: &std::path::Path) -> Arc<Ring> {
    let path = dir.join("envelope.key");
    std::fs::write(&path, "k".repeat(32)).unwrap();
    let Ok(current) = SecretFile::read(&path, SecretRule::Key) else { panic!("a key") };
    Arc::new(Ring::new(&Keys { current, previous: None }).unwrap())
}

/// Letters and digits that hardly compress.
fn noise(bytes: usize) -> String {
    let mut state = 88_172_645_463_325_252_u64;
    let letter = |state: u64| {
        char::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[(state >> 58) as usize])
    };
    let next = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    };
    (0..bytes).map(|_| letter(next(&mut state))).collect()
}

async fn refused(double: &Double, job: testkit::gitea::JobId, reason: &str) -> JobState {
    let failed = |double: &Double| double.state(job).status == Status::Failure;
    let waited = double.wait_for("the job has failed", failed, SOON).await;
    assert!(waited.is_ok(), "{:?} {:#?}", double.counters(), double.state(job));
    let state = double.state(job);
    assert!(state.rows().iter().any(|row| row.contains(reason)), "{reason}: {:?}", state.rows());
    state
}

/// NEW-37, NEW-14, F15, T13(a): too large for the queue after compression is refused with the numbers and the largest part;
/// what compresses well waits, however large; the loop goes on.
#[tokio::test]
async fn a_task_that_is_too_large_is_refused_with_numbers() {
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    let rooms = rooms(&double, &credential, dir.path()).await;
    let large = double.push_one(JobSpec::new("large").runs_on(["local"]).var("DATA", noise(90_000)));
    let long = double.push_one(JobSpec::new("long").runs_on(["local"]).secret("DATA", "x".repeat(1_500_000)));
    let loop_ = tokio::spawn(Arc::clone(&rooms.fetch).run(rooms.stop.clone()));
    let state = refused(&double, large, "too_large: the task has 9").await;
    for part in ["the queue takes 65536 bytes", "its vars with 900"] {
        assert!(state.rows().iter().any(|row| row.contains(part)), "{part}: {:?}", state.rows());
    }
    double.wait_for("the other is held", |double| double.state(long).status == Status::Running, SOON).await.unwrap();
    let waiting = async {
        while rooms.fetch.queue.list(LOCAL).await.unwrap().len() != 1 {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(SOON, waiting).await.unwrap();
    rooms.stop.cancel();
    loop_.await.unwrap();
}

/// T11, NEW-45, WRK-8, F32: the very task that ended here comes again: nothing is queued for it, and Gitea is told.
#[tokio::test]
async fn a_task_that_ended_here_is_not_taken_again() {
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    let job = double.push_one(JobSpec::new("once").runs_on(["local"]));
    let before = rooms(&double, &credential, dir.path()).await;
    let task = before.fetch.gitea.fetch_task(0).await.unwrap().task.unwrap();
    before.fetch.accept(task.clone(), &before.stop).await;
    let key = before.fetch.queue.list(LOCAL).await.unwrap()[0].key();
    before.fetch.queue.settle(key, Disposition::Ack).await.unwrap();
    drop(before);
    let after = rooms(&double, &credential, dir.path()).await;
    after.fetch.accept(task, &after.stop).await;
    refused(&double, job, "superseded: this very task").await;
    assert!(after.fetch.queue.list(LOCAL).await.unwrap().is_empty());
}

/// NEW-3, ENV-7: of an older life of the number only its message is left, which does not open: it gives way to the newer one.
#[tokio::test]
async fn a_message_that_does_not_open_gives_way() {
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    double.push_one(JobSpec::new("again").runs_on(["local"]));
    let Rooms { fetch, stop, .. } = &rooms(&double, &credential, dir.path()).await;
    let task = fetch.gitea.fetch_task(0).await.unwrap().task.unwrap();
    let id = AssignmentId::of(task_id(&task).unwrap());
    let older = Key { id, digest: domain::id::PayloadDigest::of(b"an older life") };
    let body = b"sealed with a key that is lost".to_vec();
    let message = Message { id, digest: older.digest.clone(), backend: LOCAL, body };
    assert_eq!(fetch.queue.publish(message).await, Ok(Published::New));
    let now = fetch.board.now();
    let life = Life::fetched(now, now, vec![]).found_waiting(now, 0, None);
    assert!(fetch.board.insert_unopened(older, Lane::new(Arc::clone(&fetch.gitea), id.task()), life));
    fetch.accept(task.clone(), stop).await;
    let waiting = fetch.queue.list(LOCAL).await.unwrap();
    assert_eq!(waiting.len(), 1);
    assert!(waiting[0].digest == domain::id::PayloadDigest::of(&task), "the older one is still there");
}

/// NEW-3, NEW-35, F29: a message that lies under the number of a task, and of which nobody here has heard, keeps the task out of
/// the queue as little.
#[tokio::test]
async fn a_message_that_was_there_before_gives_way() {
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    double.push_one(JobSpec::new("next").runs_on(["local"]));
    let Rooms { fetch, stop, .. } = &rooms(&double, &credential, dir.path()).await;
    let task = fetch.gitea.fetch_task(0).await.unwrap().task.unwrap();
    let id = AssignmentId::of(task_id(&task).unwrap());
    let digest = domain::id::PayloadDigest::of(b"somebody else's");
    let message = Message { id, digest, backend: LOCAL, body: b"sealed by nobody".to_vec() };
    assert_eq!(fetch.queue.publish(message).await, Ok(Published::New));
    fetch.accept(task.clone(), stop).await;
    let waiting = fetch.queue.list(LOCAL).await.unwrap();
    assert!(matches!(&waiting[..], [only] if only.digest == domain::id::PayloadDigest::of(&task)));
    assert_eq!(*fetch.board.view(id).unwrap().life.phase(), domain::lifecycle::Phase::Waiting);
}

/// NEW-15, NEW-9, SCH-6: while a task cannot be written no other one is fetched, which a crash would lose with it;
/// afterwards both are there.
#[tokio::test]
async fn nothing_is_fetched_while_the_queue_is_full() {
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    let rooms = rooms(&double, &credential, dir.path()).await;
    rooms.disk.is_full.store(true, Ordering::SeqCst);
    let jobs = ["first", "second"].map(|key| double.push_one(JobSpec::new(key).runs_on(["local"])));
    let loop_ = tokio::spawn(Arc::clone(&rooms.fetch).run(rooms.stop.clone()));
    // The second try comes a second after the first one; the loop had all of it for another FetchTask.
    let mut refused = rooms.disk.refused.subscribe();
    tokio::time::timeout(SOON, refused.wait_for(|&refused| refused > 1)).await.unwrap().unwrap();
    let running = |double: &Double| jobs.iter().filter(|&&job| double.state(job).status == Status::Running).count();
    assert_eq!((double.counters().fetches, running(&double)), (1, 1));
    assert!(rooms.fetch.ops.readiness.conditions().unwritten.is_some_and(|trouble| trouble.contains("full")));
    rooms.disk.is_full.store(false, Ordering::SeqCst);
    double.wait_for("both are held", |double| running(double) == 2, SOON).await.unwrap();
    let written = async {
        while rooms.fetch.queue.list(LOCAL).await.unwrap().len() != 2 {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(SOON, written).await.unwrap();
    assert_eq!(rooms.fetch.ops.readiness.conditions().unwritten, None);
    rooms.stop.cancel();
    loop_.await.unwrap();
}

/// NEW-16: at the end of the process nobody waits for the next try of a publish; the task is ended instead.
#[tokio::test]
async fn an_end_does_not_wait_for_the_next_publish() {
    use futures::FutureExt as _;
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    let rooms = rooms(&double, &credential, dir.path()).await;
    let message = crate::queue::contract::message(1, "a");
    rooms.stop.cancel();
    assert!(rooms.fetch.publish_again(message, rooms.stop.clone()).now_or_never().is_some());
}

/// NEW-15, NEW-16, T16, F49: a task that the queue did not take is offered once more at the end of the process, whoever leads then
/// and finds it there; the loop ends after that.
#[tokio::test]
async fn an_end_publishes_what_is_in_memory_only() {
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    let rooms = rooms(&double, &credential, dir.path()).await;
    for (key, stays_full) in [("first", true), ("second", false)] {
        double.push_one(JobSpec::new(key).runs_on(["local"]));
        let task = rooms.fetch.gitea.fetch_task(0).await.unwrap().task.unwrap();
        rooms.disk.is_full.store(true, Ordering::SeqCst);
        let stop = CancellationToken::new();
        let before = *rooms.disk.refused.borrow();
        rooms.fetch.accept(task, &stop).await;
        rooms.disk.is_full.store(stays_full, Ordering::SeqCst);
        stop.cancel();
        tokio::time::timeout(SOON, Arc::clone(&rooms.fetch).run(stop)).await.unwrap();
        let (refused, waiting) = (*rooms.disk.refused.borrow() - before, rooms.fetch.queue.list(LOCAL).await.unwrap());
        let expected = if stays_full { (2, 0) } else { (1, 1) };
        assert_eq!((refused, waiting.len()), expected, "{key}");
    }
}

/// SCH-7, ENV-5: what lies in the queue holds the very bytes that Gitea sent, fields of a later Gitea included, beside the
/// identity and the backend that were derived from them.
#[tokio::test]
async fn the_very_bytes_are_stored_with_what_was_derived() {
    let double = Double::start().await;
    let credential = double.register("runner", ["self-hosted", "local"]);
    let dir = tempfile::tempdir().unwrap();
    let rooms = rooms(&double, &credential, dir.path()).await;
    // Field 1999, a text.
    let unknown = [&[0xfa, 0x7c, 7][..], b"unknown"].concat();
    double.push_one(JobSpec::new("kept").runs_on(["local"]).secret("TOKEN", "hush").unknown_fields(unknown.clone()));
    let task = rooms.fetch.gitea.fetch_task(0).await.unwrap().task.unwrap();
    assert!(task.ends_with(&unknown));
    rooms.fetch.accept(task.clone(), &rooms.stop).await;
    let stored = rooms.fetch.queue.list(LOCAL).await.unwrap().remove(0);
    let Ok(opened) = rooms.fetch.sealing.open(LOCAL, stored.id, &stored.body) else { panic!("it does not open") };
    assert!(*opened.task == *task, "other bytes");
    assert_eq!(opened.assignment.spiffe_id.as_str(), "spiffe://example.org/ci/acme/app/kept");
    assert_eq!((opened.assignment.backend, opened.assignment.digest), (LOCAL, stored.digest));
}
