//! Into the stream: every task once.

use super::relay::Relay;
use super::*;
use crate::queue::ledger::{Entry, Kind, life};

/// SCH-15, PUB-1, F06: a task is sent to be stored before anything else is asked and answered: of a server of which nothing is
/// heard it stores the task all the same. Published again it is one message.
#[tokio::test]
async fn storing_waits_for_no_other_answer() {
    let server = start().await;
    let relay = Relay::to(server.port()).await;
    let pace = Pace { answer: Duration::from_millis(500), ..QUICK };
    let (queue, api) = (open_at(&relay.url(), "unheard", pace).await.unwrap(), operator(&server).await);
    relay.lose_answers();
    let unheard = queue.publish(message(1, "a")).await;
    assert!(matches!(unheard, Err(QueueError::Unavailable { .. })), "{unheard:?}");
    assert_eq!(stored(&api, "S_unheard").await, 1);
    relay.mend();
    assert_eq!(repeat("publish", async || queue.publish(message(1, "a")).await).await, Published::Duplicate);
    assert_eq!((stored(&api, "S_unheard").await, pull(&queue).await), (1, Some(1)));
}

/// NEW-45, SCH-15, T11: what is stored beside the look for its tombstone is taken out when there is one, and starts nothing.
#[tokio::test]
async fn what_has_ended_is_taken_out_again() {
    let server = start().await;
    let (queue, api) = (open(&server, "over").await, operator(&server).await);
    let Key { id, digest } = key(1);
    let over = Entry { key: life(id, &digest), value: "acknowledged".to_owned(), at: Timestamp::now() };
    queue.ledger().put(Kind::Tombstone, over).await.unwrap();
    assert_eq!(queue.publish(message(1, "a")).await, Err(QueueError::Ended { id, digest }));
    assert_eq!((stored(&api, "S_over").await, pull(&queue).await), (0, None));
}

/// PUB-1, PUB-2, NEW-39, F24, T14: the answer to a publish is lost; published again it is one message.
#[tokio::test]
async fn a_lost_answer_stores_one_message() {
    let server = start().await;
    let relay = Relay::to(server.port()).await;
    let pace = Pace { answer: Duration::from_millis(500), ..QUICK };
    let queue = open_at(&relay.url(), "lost", pace).await.unwrap();
    let api = operator(&server).await;
    relay.lose_answers();
    let direct = queue.inner.store(&message(1, "a"), &key(1), None).await;
    assert!(matches!(direct, Err(failure::Failure::Silent { .. })), "the answer arrived");
    until("the server stored it", async || stored(&api, "S_lost").await == 1).await;
    let unavailable = queue.publish(message(1, "a")).await;
    assert!(matches!(unavailable, Err(QueueError::Unavailable { .. })), "{unavailable:?}");
    relay.mend();
    until("it is connected again", async || queue.list(Backend::Pod).await.is_ok()).await;
    queue.inner.shelf().forget(&key(1));
    assert_eq!(queue.publish(message(1, "a")).await, Ok(Published::Duplicate));
    assert_eq!((stored(&api, "S_lost").await, pull(&queue).await), (1, Some(1)));
}

/// PUB-2, NEW-39, F24, T14: the server remembers the id of a message that is gone; that is never believed, however often
/// it happens.
#[tokio::test]
async fn a_remembered_id_without_a_message_is_not_believed() {
    let server = start().await;
    let api = operator(&server).await;
    for round in 1..=4 {
        let queue = open(&server, "purged").await;
        assert_eq!(queue.publish(message(1, "a")).await, Ok(Published::New), "round {round}");
        assert_eq!(numbers(&queue).await, [1], "round {round}");
        assert_eq!(queue.publish(message(1, "a")).await, Ok(Published::Duplicate), "round {round}");
        api.ask_for::<Value>("STREAM.PURGE.S_purged").await.unwrap();
        // Round by round: by one that knew the message, and by one that never did.
        if round % 2 == 1 {
            assert_eq!(queue.publish(message(1, "a")).await, Ok(Published::New), "round {round}");
            api.ask_for::<Value>("STREAM.PURGE.S_purged").await.unwrap();
        }
    }
}

/// NEW-3, PRC-4, T14: another payload under a number that waits is a conflict, also for a process that only read it.
#[tokio::test]
async fn another_payload_is_a_conflict_after_a_restart() {
    let server = start().await;
    publish(&open(&server, "conflict").await, [1]).await;
    let queue = open(&server, "conflict").await;
    let (first, second) = (message(1, "a"), message(1, "b"));
    let conflict = QueueError::Conflict { id: first.id, stored: first.digest, offered: second.digest.clone() };
    assert_eq!(queue.publish(second).await, Err(conflict));
    assert!(queue.list(Backend::Pod).await.unwrap().swap_remove(0).body == first.body);
}

/// NEW-40, F25, T38: at either limit nothing more is taken and nothing is lost; there is room again when something goes.
#[tokio::test]
async fn a_full_stream_refuses_and_loses_nothing() {
    let server = start().await;
    let (queue, api) = (open(&server, "full").await, operator(&server).await);
    for (limit, size, room) in [("max_msgs", 10, 5), ("max_bytes", 10_000, 52_000)] {
        change(&api, "S_full", json!({ "max_msgs": -1, "max_bytes": -1 })).await;
        change(&api, "S_full", json!({ limit: room })).await;
        let sized = |n| Message { body: vec![7; size], ..message(n, limit) };
        let mut count = 0;
        let refusal = loop {
            assert!(count < 20, "{limit}: nothing is refused");
            match queue.publish(sized(count + 1)).await {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(
            matches!(&refusal, QueueError::Full { remedy, .. } if remedy.contains("raise the limits")),
            "{refusal}"
        );
        assert_eq!((count, numbers(&queue).await), (5, vec![1, 2, 3, 4, 5]), "{limit}");
        let Message { id, digest, .. } = sized(1);
        queue.settle(Key { id, digest }, Disposition::Ack).await.unwrap();
        assert_eq!(queue.publish(sized(6)).await, Ok(Published::New), "{limit}");
        for message in queue.list(Backend::Pod).await.unwrap() {
            queue.settle(message.key(), Disposition::Ack).await.unwrap();
        }
    }
}

/// NEW-40, T38: nearly full is told before anything is refused, and is over when there is room.
#[tokio::test]
async fn nearly_full_is_trouble() {
    let server = start().await;
    let (queue, api) = (open(&server, "nearly").await, operator(&server).await);
    let _tended = Tended::new(&queue);
    change(&api, "S_nearly", json!({ "max_msgs": 10 })).await;
    publish(&queue, 1..=7).await;
    until("it has looked", async || queue.trouble().is_none()).await;
    publish(&queue, [8]).await;
    until("nearly full", async || queue.trouble().is_some()).await;
    assert_eq!(queue.trouble().as_deref(), Some("the stream is 80 % full: 8 of 10 messages"));
    assert_eq!(queue.publish(message(9, "a")).await, Ok(Published::New), "not refused yet");
    for n in [1, 2] {
        queue.settle(key(n), Disposition::Ack).await.unwrap();
    }
    until("there is room", async || queue.trouble().is_none()).await;
}
