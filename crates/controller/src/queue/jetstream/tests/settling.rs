//! What became of a message, with answers lost and processes gone.

use super::relay::Relay;
use super::*;
use crate::queue::jetstream::records::TRIES;
use crate::queue::ledger::{Entry, Kind, life};

fn tombstone(n: i64) -> Entry {
    let key = key(n);
    Entry { key: life(key.id, &key.digest), value: "acknowledged".to_owned(), at: Timestamp::now() }
}

/// PRC-9, NEW-45, F32, T11: the answer to an acknowledgement is lost; settled again it is over and gone.
#[tokio::test]
async fn a_lost_acknowledgement_is_repeated() {
    let server = start().await;
    let relay = Relay::to(server.port()).await;
    let pace = Pace { answer: Duration::from_millis(500), ..QUICK };
    let queue = open_at(&relay.url(), "ack", pace).await.unwrap();
    let api = operator(&server).await;
    publish(&queue, [1, 2]).await;
    assert_eq!(pull(&queue).await, Some(1));
    let lease = queue.inner.shelf().lease(&key(1)).unwrap();
    relay.lose_answers();
    assert!(queue.inner.worker.acknowledge(&lease).await.is_err(), "the answer arrived");
    until("the server took it", async || stored(&api, "S_ack").await == 1).await;
    assert!(matches!(queue.settle(key(1), Disposition::Ack).await, Err(QueueError::Unavailable { .. })));
    relay.mend();
    until("settled", async || queue.settle(key(1), Disposition::Ack).await.is_ok()).await;
    assert_eq!(queue.settle(key(1), Disposition::Ack).await, Ok(()));
    assert_eq!((numbers(&queue).await, pull(&queue).await, pull(&queue).await), (vec![2], Some(2), None));
}

/// PRC-9, CON-4: the consumer was made anew while a message was in hand, and no slot is free to pull it once more: it can be
/// settled all the same.
#[tokio::test]
async fn a_lease_of_a_removed_consumer_is_settled() {
    let server = start().await;
    let (queue, api) = (open(&server, "anew").await, operator(&server).await);
    publish(&queue, 1..=3).await;
    for n in 1..=3 {
        assert_eq!(pull(&queue).await, Some(n));
    }
    api.ask_for::<Value>("CONSUMER.DELETE.S_anew.f66f031b-pod").await.unwrap();
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    assert_eq!(lying(&api, "S_anew").await, [2, 3]);
    consumer::create(&queue.inner.worker, &queue.inner.names, QUICK.ack_wait, Backend::Pod).await.unwrap();
    queue.settle(key(2), Disposition::Ack).await.unwrap();
    assert_eq!(lying(&api, "S_anew").await, [3]);
    assert_eq!(pull(&queue).await, None, "what is in hand joins");
    queue.settle(key(3), Disposition::Ack).await.unwrap();
    assert_eq!((stored(&api, "S_anew").await, pull(&queue).await), (0, None));
}

/// NEW-157, PRC-9: the message of a former process is taken out by its place, without a delivery.
#[tokio::test]
async fn what_nobody_has_in_hand_is_taken_out_by_its_place() {
    let server = start().await;
    let api = operator(&server).await;
    publish(&open(&server, "place").await, 1..=3).await;
    let queue = open(&server, "place").await;
    queue.settle(key(2), Disposition::Ack).await.unwrap();
    assert_eq!((stored(&api, "S_place").await, consumer(&api, "S_place").await.num_ack_pending), (2, 0));
    assert_eq!((pull(&queue).await, pull(&queue).await, pull(&queue).await), (Some(1), Some(3), None));
}

/// NEW-45, NEW-52, F32, T11: a process died between the tombstone and the acknowledgement. What it left is never handed
/// out again, whether the next process reads or pulls it, and goes.
#[tokio::test]
async fn a_tombstone_without_an_acknowledgement_is_enough() {
    let server = start().await;
    let api = operator(&server).await;
    let before = open(&server, "dead").await;
    publish(&before, 1..=3).await;
    assert_eq!(pull(&before).await, Some(1));
    before.ledger().put(Kind::Tombstone, tombstone(1)).await.unwrap();
    let after = open(&server, "dead").await;
    assert_eq!(stored(&api, "S_dead").await, 2, "read and removed");
    after.ledger().put(Kind::Tombstone, tombstone(2)).await.unwrap();
    assert_eq!((pull(&after).await, pull(&after).await), (Some(3), None));
    assert_eq!(stored(&api, "S_dead").await, 1, "pulled and removed");
}

/// CON-4, NEW-44, F31, T26: what an orderly stop gives back, the next process has within a second.
#[tokio::test]
async fn the_next_process_has_what_was_given_back() {
    let server = start().await;
    let before = open(&server, "released").await;
    publish(&before, [1]).await;
    assert_eq!(pull(&before).await, Some(1));
    before.settle(key(1), Disposition::Release).await.unwrap();
    let began = tokio::time::Instant::now();
    drop(before);
    assert_eq!(pull(&open(&server, "released").await).await, Some(1));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// NEW-34, NEW-52, F32: what a killed process had in hand is handed out at once by the next one, in its old order.
#[tokio::test]
async fn the_next_process_has_what_a_killed_one_held() {
    let server = start().await;
    let before = open(&server, "killed").await;
    publish(&before, 1..=4).await;
    for n in 1..=3 {
        assert_eq!(pull(&before).await, Some(n));
    }
    before.settle(key(2), later(600)).await.unwrap();
    // It still lives and says nothing: a process that was killed is not noticed by the server either.
    let began = tokio::time::Instant::now();
    let after = open(&server, "killed").await;
    assert_eq!((pull(&after).await, pull(&after).await, pull(&after).await), (Some(1), Some(3), Some(4)));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(pull(&after).await, None);
}

/// NEW-45, NEW-52, NEW-63, T16: a former leader that was frozen says, when it thaws, that a task has begun or ended. That is
/// a fact about the task whoever leads: the message goes, the new leader settles it as well, and no other message is
/// touched. What it says about its own lease changes nothing for the new one.
#[tokio::test]
async fn a_former_leader_may_end_a_task_and_nothing_else() {
    let server = start().await;
    let api = operator(&server).await;
    let former = open(&server, "former").await;
    publish(&former, 1..=4).await;
    for n in 1..=3 {
        assert_eq!(pull(&former).await, Some(n));
    }
    let leader = open(&server, "former").await;
    assert_eq!(pull(&leader).await, Some(1));
    former.settle(key(1), Disposition::Ack).await.unwrap();
    former.settle(key(2), Disposition::Ack).await.unwrap();
    former.settle(key(3), Disposition::Release).await.unwrap();
    assert_eq!(stored(&api, "S_former").await, 2);
    leader.settle(key(1), Disposition::Ack).await.unwrap();
    assert_eq!((pull(&leader).await, pull(&leader).await, pull(&leader).await), (Some(3), Some(4), None));
    former.settle(key(4), Disposition::Release).await.unwrap();
    former.settle(key(3), Disposition::Release).await.unwrap();
    assert_eq!(pull(&leader).await, None, "the leases of the leader hold");
    assert_eq!(numbers(&leader).await, [3, 4]);
}

/// NEW-52: a stream that was removed and made anew counts its places from one again: what a process still knows of the old
/// one takes nothing out of the new one.
#[tokio::test]
async fn places_of_another_stream_are_not_ours() {
    let server = start().await;
    let api = operator(&server).await;
    let former = open(&server, "twice").await;
    publish(&former, [1, 2]).await;
    assert_eq!(pull(&former).await, Some(1));
    api.ask_for::<Value>("STREAM.DELETE.S_twice").await.unwrap();
    let queue = open(&server, "twice").await;
    publish(&queue, [3, 4]).await;
    assert_eq!(pull(&queue).await, Some(3));
    for n in [1, 2] {
        former.settle(key(n), Disposition::Ack).await.unwrap();
    }
    assert_eq!(numbers(&queue).await, [3, 4]);
}

/// NEW-42, CFG-12: a stream that is gone, or is another one than was opened, ends the queue with words.
#[tokio::test]
async fn a_removed_stream_ends_the_queue() {
    let server = start().await;
    let api = operator(&server).await;
    for again in ["stays away", "comes again"] {
        let queue = open(&server, "gone").await;
        let tended = tokio::spawn(queue.tend());
        let config = config(&api, "S_gone").await;
        api.ask_for::<Value>("STREAM.DELETE.S_gone").await.unwrap();
        if again == "comes again" {
            api.call::<Value>("STREAM.CREATE.S_gone", &config).await.unwrap();
        }
        let end = tokio::time::timeout(Duration::from_secs(10), tended).await.unwrap().unwrap();
        assert!(matches!(&end, QueueError::Unusable { cause, .. } if cause.contains("S_gone")), "{again}: {end}");
    }
}

/// NEW-51, NEW-141, F28, T40: records hold ids, times and texts of errors; nothing of a message, sealed or not.
#[tokio::test]
async fn records_hold_nothing_of_a_message() {
    let server = start().await;
    let (queue, api) = (open(&server, "records").await, operator(&server).await);
    let marked = |n| Message { body: b"sealed-marker ".repeat(50), ..message(n, "a") };
    for n in 1..=3 {
        assert_eq!(queue.publish(marked(n)).await, Ok(Published::New));
        assert_eq!(pull(&queue).await, Some(n));
    }
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    queue.settle(key(2), later(600)).await.unwrap();
    queue.settle(key(3), Disposition::Reject { reason: domain::reason::Reason::QueueTimeout }).await.unwrap();
    let mut found = Vec::new();
    let mut from = 1;
    while let Some(lying) = api.next("KV_S_records_RECORDS", ">", from).await.unwrap() {
        from = lying.sequence + 1;
        let record: Value = serde_json::from_slice(&lying.body).unwrap();
        let kind = lying.subject.split('.').nth(3).unwrap().to_owned();
        let names: Vec<&String> = record.as_object().unwrap().keys().collect();
        assert!(names == ["at", "value"] && record["at"].as_str().unwrap().parse::<Timestamp>().is_ok(), "{record}");
        let value = record["value"].as_str().unwrap();
        match kind.as_str() {
            "tombstone" => assert!(["acknowledged", "queue_timeout"].contains(&value), "{value}"),
            "tries" => {
                let tries: std::collections::BTreeMap<String, Value> = serde_json::from_str(value).unwrap();
                assert_eq!(tries.keys().collect::<Vec<_>>(), ["attempts", "last_error", "next_try"]);
                assert_eq!(tries["last_error"], "no room");
            }
            other => panic!("{other}"),
        }
        found.push(kind);
    }
    found.sort();
    assert_eq!(found, ["tombstone", "tombstone", "tries"]);
    let folder = server.folder().to_owned();
    let holds = |path: std::path::PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(13).any(|w| w == b"sealed-marker"))
    };
    let mut folders = vec![folder];
    let mut holding = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if holds(path.clone()) {
                holding.push(path.to_string_lossy().into_owned());
            }
        }
    }
    assert!(!holding.is_empty() && holding.iter().all(|path| path.contains("/S_records/")), "{holding:?}");
}

/// NEW-45, NEW-122: what ended long ago is forgotten; what is younger stays, and a pin in any case.
#[tokio::test]
async fn old_records_are_forgotten() {
    let server = start().await;
    let queue = open(&server, "old").await;
    let ledger = queue.ledger();
    let pin = Entry { key: "spiffe://example.org/ci/a/b/c".to_owned(), ..tombstone(1) };
    ledger.put(Kind::Pin, pin.clone()).await.unwrap();
    publish(&queue, 1..=3).await;
    queue.settle(key(3), later(600)).await.unwrap();
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    let lying = queue.inner.worker.last("KV_S_old_RECORDS", ">").await.unwrap().unwrap();
    queue.settle(key(2), Disposition::Ack).await.unwrap();
    queue.inner.records.forget(lying.time).await.unwrap();
    let ended = async |n: i64| ledger.is_ended(key(n).id, &key(n).digest).await.unwrap();
    assert_eq!((ended(1).await, ended(2).await), (true, true), "the first one was written at this time, not before it");
    assert_eq!(queue.inner.records.read_all(TRIES).await.unwrap().len(), 0);
    let next = lying.time + jiff::SignedDuration::from_nanos(1);
    queue.inner.records.forget(next).await.unwrap();
    assert_eq!((ended(1).await, ended(2).await), (false, true));
    queue.inner.records.forget(Timestamp::MAX).await.unwrap();
    assert_eq!(ledger.list(Kind::Tombstone).await.unwrap(), []);
    assert_eq!(ledger.list(Kind::Pin).await.unwrap(), [pin]);
}
