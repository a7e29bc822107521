#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::queue::contract::{self, key, message};

async fn open(dir: &Path) -> Embedded {
    Embedded::open(Settings::new(dir.join("queue.db"))).await.unwrap()
}

fn sized(n: i64, size: usize) -> Message {
    let body: Vec<u8> = (0..size).map(|k| k.wrapping_mul(31).to_le_bytes()[0]).collect();
    Message { body, ..message(n, "a") }
}

/// NEW-50, ADM-4, NEW-3, NEW-34, NEW-39, NEW-45, NEW-46, NEW-52, PRC-4, PRC-9, PUB-1, PUB-2, CON-4, NEW-44, F24: the
/// same suite that every engine passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_of_a_queue() {
    let dir = tempfile::tempdir().unwrap();
    let open = async |store: &str| Embedded::open(Settings::new(dir.path().join(store))).await.unwrap();
    contract::all(
        async |store| Arc::new(open(store).await) as Arc<dyn Queue>,
        async |store| open(store).await.ledger(),
    )
    .await;
}

/// NEW-52: an answer that arrives after its caller went away gives the lease back.
#[tokio::test]
async fn a_delivery_nobody_receives_is_not_leased() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(dir.path()).await;
    queue.publish(message(1, "a")).await.unwrap();
    for _ in 0..100 {
        // The work is sent here; the answer may come before or after the drop.
        drop(queue.pull(Backend::Pod, Timestamp::now()));
    }
    let released = async { while queue.list(Backend::Pod).await.unwrap()[0].leased {} };
    tokio::time::timeout(Duration::from_secs(10), released).await.unwrap();
    assert!(queue.pull(Backend::Pod, Timestamp::now()).await.unwrap().is_some());
}

/// F26, NEW-40: at its limit the queue refuses with a remedy, keeps all it has, and works again once there is room.
#[tokio::test]
async fn a_full_queue_refuses_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue.db");
    let queue = Embedded::open(Settings { max_bytes: 512 * 1024, ..Settings::new(path.clone()) }).await.unwrap();
    let mut stored = 0;
    let refusal = loop {
        match queue.publish(sized(stored + 1, 16 * 1024)).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refusal, QueueError::Full { remedy, .. } if remedy.contains("free space")), "{refusal}");
    assert!(stored > 20, "{stored} messages of 16 KiB in 512 KiB");
    drop(queue);
    let queue = open(dir.path()).await;
    let waiting = queue.list(Backend::Pod).await.unwrap();
    assert_eq!(i64::try_from(waiting.len()).unwrap(), stored);
    assert!(waiting.iter().all(|message| message.body == sized(1, 16 * 1024).body));
    drop(queue);
    let queue = Embedded::open(Settings { max_bytes: 512 * 1024, ..Settings::new(path) }).await.unwrap();
    queue.settle(waiting[0].key(), Disposition::Ack).await.unwrap();
    assert_eq!(queue.publish(sized(stored + 1, 16 * 1024)).await, Ok(Published::New));
}

/// NEW-151: what is written down is the time of the process, whatever the wall clock was set to meanwhile.
#[tokio::test]
async fn times_are_those_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let began = Timestamp::now() - jiff::SignedDuration::from_hours(1);
    let settings = Settings { clock: Clock::saying(began), ..Settings::new(dir.path().join("queue.db")) };
    let queue = Embedded::open(settings).await.unwrap();
    queue.publish(message(1, "a")).await.unwrap();
    let enqueued = queue.list(Backend::Pod).await.unwrap()[0].enqueued_at;
    assert!(enqueued.duration_since(began) < jiff::SignedDuration::from_mins(10), "{enqueued}");
}

/// NEW-45: what ended is remembered for 30 days, and no longer.
#[test]
fn tombstones_are_forgotten_after_a_month() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(&Settings::new(dir.path().join("queue.db"))).unwrap();
    let day = |n: i64| Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * n);
    let known = |store: &Store, n| store.is_ended(message(n, "a").id, &message(n, "a").digest).unwrap();
    for n in 1..=3 {
        store.publish(&message(n, "a")).unwrap();
    }
    store.bury(&key(1), "acknowledged", day(100)).unwrap();
    store.bury(&key(2), "acknowledged", day(130)).unwrap();
    assert!(known(&store, 1) && known(&store, 2), "30 days later");
    store.bury(&key(3), "acknowledged", day(131)).unwrap();
    assert!(!known(&store, 1) && known(&store, 2) && known(&store, 3));
}

/// PUB-1: every commit is synced to the disk, which no kill of a process can show.
#[test]
fn commits_are_synced() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&Settings::new(dir.path().join("queue.db"))).unwrap();
    let ask = |sql| store.prepare(sql).unwrap().query_row([], |row| row.get::<_, String>(0)).ok();
    assert_eq!(ask("SELECT journal_mode FROM pragma_journal_mode()").as_deref(), Some("wal"));
    assert_eq!(ask("SELECT cast(synchronous AS TEXT) FROM pragma_synchronous()").as_deref(), Some("2"));
}

/// A downgrade is refused with both versions named, and nothing is touched.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue.db");
    open(dir.path()).await.publish(message(1, "a")).await.unwrap();
    let set_version = |version: i64| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute("UPDATE schema SET version = ?1", [version]).unwrap();
    };
    set_version(2);
    let refusal = Embedded::open(Settings::new(path.clone())).await.err().unwrap().to_string();
    assert!(refusal.contains("schema version 2") && refusal.contains("versions up to 1"), "{refusal}");
    set_version(1);
    assert_eq!(open(dir.path()).await.list(Backend::Pod).await.unwrap().len(), 1);
}

/// A file that is no database is named as such instead of being written over.
#[tokio::test]
async fn a_foreign_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("queue.db"), "something else entirely".repeat(100)).unwrap();
    let refusal = Embedded::open(Settings::new(dir.path().join("queue.db"))).await.err().unwrap();
    assert!(matches!(refusal, QueueError::Unusable { .. }), "{refusal}");
}

/// Sealed or not, nobody else on the host reads or writes it.
#[tokio::test]
async fn the_files_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(dir.path()).await;
    queue.publish(message(1, "a")).await.unwrap();
    for name in ["queue.db", "queue.db-wal", "queue.db-shm"] {
        assert_eq!(std::fs::metadata(dir.path().join(name)).unwrap().mode() & 0o777, 0o600, "{name}");
    }
}

/// PUB-1: every publish that was acknowledged is there after a SIGKILL, wherever it struck.
#[tokio::test]
async fn acknowledged_messages_survive_a_kill() {
    for acknowledged_before_the_kill in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["queue::embedded::tests::publisher_that_is_killed", "--exact", "--ignored", "--nocapture"])
            .env("QUEUE_TEST_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = Vec::new();
        for line in lines.map_while(Result::ok) {
            acknowledged.extend(line.strip_prefix("stored ").and_then(|n| n.parse::<i64>().ok()));
            if acknowledged.len() == acknowledged_before_the_kill {
                // What the child still wrote by now stays readable in the pipe, so the loop goes on to its end.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let found = open(dir.path()).await.list(Backend::Pod).await.unwrap();
        let found: Vec<i64> = found.iter().map(|message| message.id.task().get()).collect();
        assert!(acknowledged.len() >= acknowledged_before_the_kill);
        assert_eq!(found[..acknowledged.len()], acknowledged[..]);
        assert!(found.len() <= acknowledged.len() + 1, "at most the one in flight is there without an answer");
    }
}

/// Not a test of its own: the child of [`acknowledged_messages_survive_a_kill`].
#[tokio::test]
#[ignore = "started by another test"]
async fn publisher_that_is_killed() {
    let Some(dir) = std::env::var_os("QUEUE_TEST_DIR") else { return };
    let queue = open(Path::new(&dir)).await;
    for n in 1..100_000 {
        queue.publish(sized(n, 16 * 1024)).await.unwrap();
        writeln!(std::io::stdout(), "stored {n}").unwrap();
    }
}

/// Measures a durable enqueue of 16 KiB: `cargo test -p controller --release enqueue -- --ignored --nocapture`. The
/// folder is TMPDIR, which should be on the disk in question.
#[tokio::test]
#[ignore = "a measurement"]
async fn time_of_a_durable_enqueue() {
    let dir = tempfile::tempdir().unwrap();
    let queue = open(dir.path()).await;
    let mut times = Vec::new();
    for n in 1..=2_000 {
        let message = sized(n, 16 * 1024);
        let start = Instant::now();
        queue.publish(message).await.unwrap();
        times.push(start.elapsed());
    }
    times.sort();
    let at = |percent: usize| times[times.len() * percent / 100];
    let total: Duration = times.iter().sum();
    writeln!(
        std::io::stdout(),
        "durable enqueue of 16 KiB, n={}: mean {:?} p50 {:?} p90 {:?} p99 {:?} max {:?}",
        times.len(),
        total / u32::try_from(times.len()).unwrap(),
        at(50),
        at(90),
        at(99),
        times[times.len() - 1]
    )
    .unwrap();
}
