//! What every [`Queue`] must do, whichever engine stands behind it (NEW-50).
//!
//! `make(store)` opens the queue of that name, empty the first time; opening it once more is a restart. `ledger(store)`
//! opens the records beside it. Each engine has one test that calls [`all`].

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::id::TaskId;
use futures::FutureExt as _;
use jiff::SignedDuration;

use super::ledger::{Entry, Kind, Ledger};
use super::*;

type Shared = Arc<dyn Queue>;

/// An engine that keeps the time of a retry elsewhere may notice so much later that it has come.
const NOTICED: Duration = Duration::from_millis(500);

/// An engine whose leases end by a time-out may take this long until a restarted one hands a message out again.
const REDELIVERY: Duration = Duration::from_secs(90);

pub(crate) async fn all(make: impl AsyncFn(&str) -> Shared, ledger: impl AsyncFn(&str) -> Arc<dyn Ledger>) {
    the_body_comes_back_as_it_was(&make("body").await).await;
    publishing_again_stores_one_message(&make("again").await).await;
    another_task_under_the_same_id_is_a_conflict(&make("conflict").await).await;
    an_older_life_settles_nothing_of_a_newer_one(&make("lives").await).await;
    the_oldest_goes_first_and_backends_are_apart(&make("order").await).await;
    a_retry_waits_counts_and_keeps_its_turn(&make("retry").await).await;
    a_release_counts_nothing(&make("release").await).await;
    acknowledged_and_rejected_messages_are_gone(&make("gone").await).await;
    a_late_redelivery_creates_nothing(&make).await;
    an_abandoned_pull_gives_back(&make("abandoned").await).await;
    nobody_gets_the_same_message_twice(&make("crowd").await).await;
    a_restart_forgets_leases_and_nothing_else(&make).await;
    records_are_kept_by_kind_and_key(&*ledger("records").await).await;
    a_record_is_written_once(&*ledger("once").await).await;
}

/// Message of task `n`; `life` makes the payload.
pub(crate) fn message(n: i64, life: &str) -> Message {
    let task = format!("task {n} {life}");
    let body = [b"\0\xffsealed ", task.as_bytes()].concat();
    Message { id: id(n), digest: PayloadDigest::of(task.as_bytes()), backend: Backend::Pod, body }
}

fn id(n: i64) -> AssignmentId {
    AssignmentId::of(TaskId::try_from(n).unwrap())
}

/// Names the message of task `n`.
pub(crate) fn key(n: i64) -> Key {
    let Message { id, digest, .. } = message(n, "a");
    Key { id, digest }
}

async fn publish(queue: &Shared, numbers: &[i64]) {
    for &n in numbers {
        assert_eq!(queue.publish(message(n, "a")).await, Ok(Published::New));
    }
}

async fn pull(queue: &Shared) -> Option<i64> {
    pull_at(queue, Timestamp::now()).await
}

async fn pull_at(queue: &Shared, now: Timestamp) -> Option<i64> {
    queue.pull(Backend::Pod, now).await.unwrap().map(|delivery| delivery.id.task().get())
}

async fn waiting(queue: &Shared) -> Vec<Waiting> {
    queue.list(Backend::Pod).await.unwrap()
}

async fn numbers(queue: &Shared) -> Vec<i64> {
    waiting(queue).await.iter().map(|message| message.id.task().get()).collect()
}

/// PUB-1: bytes are bytes, up to the size of a large task.
async fn the_body_comes_back_as_it_was(queue: &Shared) {
    let large = Message { body: (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect(), ..message(1, "a") };
    let empty = Message { body: Vec::new(), ..message(2, "a") };
    for sent in [large, empty] {
        assert_eq!(queue.publish(sent.clone()).await, Ok(Published::New));
        let got = queue.pull(Backend::Pod, Timestamp::now()).await.unwrap().unwrap();
        assert!(got.id == sent.id && got.digest == sent.digest && got.body == sent.body && got.attempts == 0);
        let listed = waiting(queue).await.pop().unwrap();
        assert!(listed.id == sent.id && listed.digest == sent.digest && listed.body == sent.body);
    }
}

/// PUB-2: after a lost answer the same task is published once more, perhaps sealed anew.
async fn publishing_again_stores_one_message(queue: &Shared) {
    let first = message(1, "a");
    let sealed_anew = Message { body: b"other bytes".to_vec(), ..first.clone() };
    assert_eq!(queue.publish(first.clone()).await, Ok(Published::New));
    assert_eq!(queue.publish(first.clone()).await, Ok(Published::Duplicate));
    assert_eq!(queue.publish(sealed_anew).await, Ok(Published::Duplicate));
    assert_eq!(pull(queue).await, Some(1));
    assert_eq!(queue.publish(first.clone()).await, Ok(Published::Duplicate), "a leased message is still there");
    let all = waiting(queue).await;
    assert!(all.len() == 1 && all[0].body == first.body);
    assert_eq!(pull(queue).await, None);
}

/// NEW-3, PRC-4: the stored task is left alone.
async fn another_task_under_the_same_id_is_a_conflict(queue: &Shared) {
    let (first, second) = (message(1, "a"), message(1, "b"));
    publish(queue, &[1]).await;
    let refused = queue.publish(second.clone()).await;
    let conflict = QueueError::Conflict { id: first.id, stored: first.digest.clone(), offered: second.digest.clone() };
    assert_eq!(refused, Err(conflict));
    assert!(waiting(queue).await[0].body == first.body);
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    assert_eq!(queue.publish(second).await, Ok(Published::New), "the id is free again");
}

/// NEW-3, NEW-45: what is done late with a message that is gone touches no newer one of the same number, nor its lease.
async fn an_older_life_settles_nothing_of_a_newer_one(queue: &Shared) {
    publish(queue, &[1]).await;
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    assert_eq!(queue.publish(message(1, "b")).await, Ok(Published::New));
    assert_eq!(pull(queue).await, Some(1));
    let retry = Disposition::Retry { at: Timestamp::now(), error: "late".to_owned() };
    let reject = Disposition::Reject { reason: Reason::Superseded };
    for late in [Disposition::Ack, Disposition::Release, retry, reject] {
        queue.settle(key(1), late).await.unwrap();
    }
    let listed = waiting(queue).await.swap_remove(0);
    assert_eq!((listed.attempts, listed.leased, listed.last_error), (0, true, None));
    assert_eq!(pull(queue).await, None, "it is still leased");
}

/// NEW-34, ADM-4: first in, first out; what is leased is not handed out again; another backend's queue is another queue.
async fn the_oldest_goes_first_and_backends_are_apart(queue: &Shared) {
    publish(queue, &[30, 10, 20]).await;
    assert_eq!(queue.publish(Message { backend: Backend::Vm, ..message(5, "a") }).await, Ok(Published::New));
    assert_eq!(pull(queue).await, Some(30));
    assert_eq!(pull(queue).await, Some(10));
    assert_eq!(numbers(queue).await, [30, 10, 20]);
    let leased: Vec<bool> = waiting(queue).await.iter().map(|message| message.leased).collect();
    assert_eq!(leased, [true, true, false]);
    assert_eq!(pull(queue).await, Some(20));
    assert_eq!(pull(queue).await, None);
    let vm = queue.pull(Backend::Vm, Timestamp::now()).await.unwrap().unwrap();
    assert_eq!(vm.id, id(5));
    assert!(queue.pull(Backend::Local, Timestamp::now()).await.unwrap().is_none());
}

/// NEW-46: count, last error and next try are kept; one that may be tried again goes before those that never were.
async fn a_retry_waits_counts_and_keeps_its_turn(queue: &Shared) {
    publish(queue, &[1, 2]).await;
    let at = Timestamp::now() + SignedDuration::from_secs(2);
    assert_eq!(pull(queue).await, Some(1));
    queue.settle(key(1), Disposition::Retry { at, error: "no room".to_owned() }).await.unwrap();
    assert_eq!(pull(queue).await, Some(2));
    assert_eq!(pull_at(queue, at - SignedDuration::from_millis(1)).await, None);
    publish(queue, &[3]).await;
    tokio::time::sleep(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default() + NOTICED).await;
    let delivery = queue.pull(Backend::Pod, Timestamp::now()).await.unwrap().unwrap();
    assert_eq!((delivery.id, delivery.attempts), (id(1), 1));
    assert_eq!(pull(queue).await, Some(3));
    let listed = waiting(queue).await.swap_remove(0);
    assert_eq!((listed.attempts, listed.last_error.as_deref()), (1, Some("no room")));
    assert_eq!(listed.next_try.as_millisecond(), at.as_millisecond());
    for attempts in 2..=3 {
        let again = Disposition::Retry { at: Timestamp::now(), error: format!("failed {attempts} times") };
        queue.settle(key(1), again).await.unwrap();
        assert_eq!(waiting(queue).await[0].attempts, attempts);
        assert_eq!(eventually(queue).await, Some(1));
    }
    let listed = waiting(queue).await.swap_remove(0);
    assert_eq!((listed.attempts, listed.leased, listed.last_error.as_deref()), (3, true, Some("failed 3 times")));
}

/// CON-4, NEW-44: given back at once, as if nothing had been.
async fn a_release_counts_nothing(queue: &Shared) {
    publish(queue, &[1]).await;
    for _ in 0..3 {
        assert_eq!(pull(queue).await, Some(1));
        queue.settle(key(1), Disposition::Release).await.unwrap();
    }
    let listed = waiting(queue).await.swap_remove(0);
    assert_eq!((listed.attempts, listed.leased, listed.last_error), (0, false, None));
}

/// PRC-9, WRK-9: settled once or several times, leased or not.
async fn acknowledged_and_rejected_messages_are_gone(queue: &Shared) {
    publish(queue, &[1, 2, 3]).await;
    assert_eq!(pull(queue).await, Some(1));
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    queue.settle(key(2), Disposition::Reject { reason: Reason::QueueTimeout }).await.unwrap();
    assert_eq!(numbers(queue).await, [3]);
    let late = Disposition::Retry { at: Timestamp::now(), error: "late".to_owned() };
    for disposition in [Disposition::Ack, Disposition::Release, late] {
        queue.settle(key(1), disposition).await.unwrap();
    }
    assert_eq!(numbers(queue).await, [3]);
    assert_eq!(pull(queue).await, Some(3));
}

/// NEW-45, NEW-3, F32: what was settled is known by id and digest, also by a new process; a retry is no end.
async fn a_late_redelivery_creates_nothing(make: &impl AsyncFn(&str) -> Shared) {
    let before = make("redelivery").await;
    publish(&before, &[1, 2, 3]).await;
    before.settle(key(1), Disposition::Ack).await.unwrap();
    before.settle(key(2), Disposition::Reject { reason: Reason::QueueTimeout }).await.unwrap();
    before.settle(key(3), Disposition::Retry { at: Timestamp::now(), error: "broken".to_owned() }).await.unwrap();
    drop(before);
    let after = make("redelivery").await;
    for n in [1, 2] {
        let Message { id, digest, .. } = message(n, "a");
        assert_eq!(after.publish(message(n, "a")).await, Err(QueueError::Ended { id, digest }));
    }
    assert_eq!(numbers(&after).await, [3]);
    assert_eq!(after.publish(message(3, "a")).await, Ok(Published::Duplicate));
    assert_eq!(after.publish(message(1, "b")).await, Ok(Published::New), "another life of the number");
}

/// NEW-52: a caller that stops waiting (a shutdown, a deadline) leaves no lease behind.
async fn an_abandoned_pull_gives_back(queue: &Shared) {
    publish(queue, &[1]).await;
    drop(queue.pull(Backend::Pod, Timestamp::now()));
    let polled_once = queue.pull(Backend::Pod, Timestamp::now()).now_or_never();
    if let Some(Ok(Some(delivery))) = polled_once {
        queue.settle(delivery.key(), Disposition::Release).await.unwrap();
    }
    assert_eq!(eventually(queue).await, Some(1));
}

/// NEW-34: two hands never hold the same message.
async fn nobody_gets_the_same_message_twice(queue: &Shared) {
    let all: Vec<i64> = (1..=50).collect();
    publish(queue, &all).await;
    let pulls = (0..60).map(|_| {
        let queue = Arc::clone(queue);
        tokio::spawn(async move { pull(&queue).await })
    });
    let got: Vec<i64> =
        futures::future::join_all(pulls).await.into_iter().filter_map(|pulled| pulled.unwrap()).collect();
    assert_eq!(got.len(), 50);
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), all.into_iter().collect());
}

/// NEW-50, NEW-52: a new process finds everything that was not settled, with its history, and nothing that was.
async fn a_restart_forgets_leases_and_nothing_else(make: &impl AsyncFn(&str) -> Shared) {
    let before = make("restart").await;
    publish(&before, &[1, 2, 3]).await;
    assert_eq!(pull(&before).await, Some(1));
    assert_eq!(pull(&before).await, Some(2));
    for error in ["weak", "broken"] {
        let retry = Disposition::Retry { at: Timestamp::now(), error: error.to_owned() };
        before.settle(key(1), retry).await.unwrap();
    }
    before.settle(key(3), Disposition::Ack).await.unwrap();
    drop(before);
    let after = make("restart").await;
    assert_eq!(numbers(&after).await, [1, 2]);
    let listed = waiting(&after).await.swap_remove(0);
    assert_eq!((listed.attempts, listed.last_error.as_deref()), (2, Some("broken")));
    let got = [eventually(&after).await, eventually(&after).await];
    assert_eq!(got.into_iter().flatten().collect::<BTreeSet<_>>(), [1, 2].into());
    assert_eq!(pull(&after).await, None);
}

/// NEW-51: kinds do not see each other; the last value wins; a key may be an identity.
async fn records_are_kept_by_kind_and_key(ledger: &dyn Ledger) {
    let name = "spiffe://example.org/ci/acme/app/build";
    ledger.put(Kind::Pin, entry(name, "1", 10)).await.unwrap();
    ledger.put(Kind::Pin, entry(name, "2", 20)).await.unwrap();
    ledger.put(Kind::SetAside, entry("b", "y", 30)).await.unwrap();
    ledger.put(Kind::SetAside, entry("a", "x", 10)).await.unwrap();
    assert_eq!(ledger.get(Kind::Pin, name).await.unwrap(), Some(entry(name, "2", 20)));
    assert_eq!(ledger.get(Kind::Pin, "b").await.unwrap(), None);
    assert_eq!(ledger.list(Kind::SetAside).await.unwrap(), [entry("a", "x", 10), entry("b", "y", 30)]);
    assert_eq!(ledger.list(Kind::Pin).await.unwrap().len(), 1);
    ledger.remove(Kind::Pin, name).await.unwrap();
    ledger.remove(Kind::Pin, name).await.unwrap();
    assert_eq!(ledger.get(Kind::Pin, name).await.unwrap(), None);
    assert_eq!(ledger.list(Kind::Pin).await.unwrap(), []);
}

/// NEW-122: of two that want to be the first, one is, and both are told which; what was taken away can be first again.
async fn a_record_is_written_once(ledger: &dyn Ledger) {
    let (first, second) = (entry("a", "1", 10), entry("a", "2", 20));
    assert_eq!(ledger.put_if_absent(Kind::Pin, first.clone()).await.unwrap(), first);
    assert_eq!(ledger.put_if_absent(Kind::Pin, second.clone()).await.unwrap(), first);
    ledger.remove(Kind::Pin, "a").await.unwrap();
    assert_eq!(ledger.put_if_absent(Kind::Pin, second.clone()).await.unwrap(), second);
}

fn entry(key: &str, value: &str, second: i64) -> Entry {
    Entry { key: key.to_owned(), value: value.to_owned(), at: Timestamp::from_second(second).unwrap() }
}

/// Pulls until there is a message or [`REDELIVERY`] has passed.
async fn eventually(queue: &Shared) -> Option<i64> {
    let deadline = tokio::time::Instant::now() + REDELIVERY;
    loop {
        let pulled = pull(queue).await;
        if pulled.is_some() || tokio::time::Instant::now() > deadline {
            return pulled;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
