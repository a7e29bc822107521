//! The bucket of records: what is asked of it, and what others do with it.

use async_nats::HeaderMap;
use futures::StreamExt as _;

use super::*;
use crate::queue::jetstream::records::TRIES;
use crate::queue::ledger::{Entry, Kind, life};

fn tombstone(n: i64) -> Entry {
    let key = key(n);
    Entry { key: life(key.id, &key.digest), value: "acknowledged".to_owned(), at: Timestamp::now() }
}

/// NEW-45: while the first record is young nothing is asked to be purged: servers before 2.15 take the first place for all of
/// them, and every server takes 0 for that.
#[tokio::test]
async fn young_records_are_not_purged() {
    let server = start().await;
    let queue = open(&server, "young").await;
    let watcher = async_nats::connect(server.url()).await.unwrap();
    let mut asked = watcher.subscribe("$JS.API.STREAM.PURGE.>").await.unwrap();
    watcher.flush().await.unwrap();
    // Of an empty bucket; of young records; of old ones.
    queue.inner.records.forget(Timestamp::MAX).await.unwrap();
    queue.ledger().put(Kind::Tombstone, tombstone(1)).await.unwrap();
    queue.inner.records.forget(Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(queue.ledger().is_ended(key(1).id, &key(1).digest).await.unwrap());
    queue.inner.records.forget(Timestamp::MAX).await.unwrap();
    let mut places = Vec::new();
    for _ in 0..4 {
        let call = tokio::time::timeout(Duration::from_secs(10), asked.next()).await.unwrap().unwrap();
        places.push(serde_json::from_slice::<Value>(&call.payload).unwrap()["seq"].as_u64().unwrap());
    }
    assert_eq!(places, [2; 4]);
}

/// NEW-45, NEW-46: a record that is not ours is refused with its name until it is taken away by the tools of a bucket, which
/// leave a marker: that is no record, whoever reads it, and a new one can be written in its place.
#[tokio::test]
async fn what_was_taken_away_with_the_tools_is_no_record() {
    let server = start().await;
    let (queue, api) = (open(&server, "tools").await, operator(&server).await);
    let (key, names, ledger) = (key(1), &queue.inner.names, queue.ledger());
    let life = life(key.id, &key.digest);
    for kind in [TRIES, Kind::Tombstone.as_str(), Kind::SetAside.as_str()] {
        let subject = names.record(kind, &life);
        api.publish(&subject, HeaderMap::new(), "by hand".into()).await.unwrap();
        if kind == TRIES {
            let refusal = open_at(&server.url(), "tools", QUICK).await.err().unwrap().to_string();
            assert!(refusal.contains(&subject) && refusal.contains("nats kv del"), "{refusal}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("KV-Operation", "DEL");
        api.publish(&subject, headers, "".into()).await.unwrap();
    }
    let queue = open(&server, "tools").await;
    assert_eq!(queue.inner.records.read_all(TRIES).await.unwrap(), []);
    for kind in [Kind::Tombstone, Kind::SetAside] {
        assert_eq!((ledger.list(kind).await.unwrap(), ledger.get(kind, &life).await.unwrap()), (vec![], None));
    }
    assert!(!ledger.is_ended(key.id, &key.digest).await.unwrap());
    let first = ledger.put_if_absent(Kind::Tombstone, tombstone(1)).await.unwrap();
    let second = Entry { value: "another".to_owned(), ..tombstone(1) };
    assert_eq!(ledger.put_if_absent(Kind::Tombstone, second).await.unwrap().value, first.value);
}

/// CFG-12, NEW-45: a bucket that gives up what it should keep, or keeps what it should give up, as one that was made by hand
/// does, is refused at the start with the difference; nothing is written to it.
#[tokio::test]
async fn a_bucket_that_does_not_keep_records_is_refused() {
    let server = start().await;
    let api = operator(&server).await;
    drop(open(&server, "kept").await);
    let made = config(&api, "KV_S_kept_RECORDS").await;
    let cases = [
        (json!({ "deny_delete": true }), "deny_delete is true"),
        (json!({ "deny_purge": true, "allow_rollup_hdrs": false }), "deny_purge is true"),
        (json!({ "storage": "memory" }), r#"storage is "memory", and must be "file""#),
        (json!({ "max_age": 86_400_000_000_000_u64 }), "max_age is 86400000000000, and must be 0"),
        (json!({ "max_msgs": 3 }), "max_msgs is 3, and must be -1"),
        (json!({ "max_bytes": 4096 }), "max_bytes is 4096, and must be -1"),
        (json!({ "max_msg_size": 50 }), "max_msg_size is 50, and must be -1"),
        (json!({ "discard": "old" }), r#"discard is "old", and must be "new""#),
        (json!({ "subjects": ["$KV.other.>"] }), "must take $KV.S_kept_RECORDS.>"),
    ];
    for (change, difference) in cases {
        api.ask_for::<Value>("STREAM.DELETE.KV_S_kept_RECORDS").await.unwrap();
        let mut config = made.clone();
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        api.call::<Value>("STREAM.CREATE.KV_S_kept_RECORDS", &config).await.unwrap();
        let refusal = open_at(&server.url(), "kept", QUICK).await.err().unwrap().to_string();
        assert!(refusal.contains(difference) && refusal.contains("nats stream rm KV_S_kept_RECORDS"), "{refusal}");
        assert_eq!(stored(&api, "KV_S_kept_RECORDS").await, 0);
    }
    api.ask_for::<Value>("STREAM.DELETE.KV_S_kept_RECORDS").await.unwrap();
    api.call::<Value>("STREAM.CREATE.KV_S_kept_RECORDS", &made).await.unwrap();
    open(&server, "kept").await;
}

/// NEW-42, NEW-45: a bucket that is gone, or is another one than was opened, ends the queue with its name: what ended is not
/// known any more, and nothing could be settled.
#[tokio::test]
async fn a_removed_bucket_ends_the_queue() {
    let server = start().await;
    let api = operator(&server).await;
    for again in ["stays away", "comes again"] {
        let queue = open(&server, "lost").await;
        let tended = tokio::spawn(queue.tend());
        let config = config(&api, "KV_S_lost_RECORDS").await;
        api.ask_for::<Value>("STREAM.DELETE.KV_S_lost_RECORDS").await.unwrap();
        if again == "comes again" {
            api.call::<Value>("STREAM.CREATE.KV_S_lost_RECORDS", &config).await.unwrap();
        }
        let end = tokio::time::timeout(Duration::from_secs(10), tended).await.unwrap().unwrap();
        let told = matches!(&end, QueueError::Unusable { cause, .. } if cause.contains("KV_S_lost_RECORDS"));
        assert!(told, "{again}: {end}");
    }
}
