//! The records beside the queue, in a key-value bucket, which is a stream that keeps one message per subject. Read from the
//! stream's leader always: a bucket's quick reads may be answered by a server that has not heard of the last write.
//!
//! Tombstones, tries, who began what, and what was set aside are forgotten 30 days after they were written, once a day; a pin stays.

use async_nats::HeaderMap;
use async_nats::jetstream::ErrorCode;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::QueueError;
use super::super::ledger::{Entry, Kind, Ledger};
use super::api::Api;
use super::failure::Failure;
use super::fit::judge_records;
use super::names::{Names, key_of_record};
use super::stream;

/// A record of a message's tries.
pub(super) const TRIES: &str = "tries";

/// The bucket. Cloning gives another handle.
#[derive(Clone)]
pub(super) struct Records {
    api: Api,
    names: Names,
    /// When the bucket was made that was opened: another one under the same name has forgotten what ended.
    pub(super) created: String,
}

#[derive(Serialize, Deserialize)]
struct Content {
    value: String,
    at: Timestamp,
}

impl Records {
    /// Makes the bucket when it is not there, or sees that it keeps what it is given and gives up what it is told to.
    pub(super) async fn open(api: Api, names: Names) -> Result<Self, QueueError> {
        let records = names.records();
        let found = match stream::info(&api, &records).await {
            Err(failure) if failure.is(ErrorCode::STREAM_NOT_FOUND) => {
                stream::create(&api, &records, wanted(&names)).await?;
                stream::info(&api, &records).await?
            }
            found => {
                let found = found?;
                require_fit(&found, &names)?;
                stream::spread(&api, &records, &found).await;
                found
            }
        };
        Ok(Self { api, names, created: found.created })
    }

    /// The bucket as it is.
    pub(super) async fn find(api: Api, names: Names) -> Result<Self, QueueError> {
        let records = names.records();
        match stream::info(&api, &records).await {
            Ok(found) => Ok(Self { api, names, created: found.created }),
            Err(failure) if failure.is(ErrorCode::STREAM_NOT_FOUND) => Err(QueueError::Unusable {
                cause: format!("there are no records of a controller ({records})"),
                remedy: "name the stream that the controller uses with NATS_STREAM".to_owned(),
            }),
            Err(failure) => Err(failure.into()),
        }
    }

    pub(super) async fn write(&self, kind: &str, entry: &Entry) -> Result<(), QueueError> {
        self.store(kind, entry, HeaderMap::new()).await.map_err(QueueError::from)
    }

    async fn store(&self, kind: &str, entry: &Entry, headers: HeaderMap) -> Result<(), Failure> {
        let subject = self.names.record(kind, &entry.key);
        let value = Content { value: entry.value.clone(), at: entry.at };
        // A text and a time: writing them as JSON cannot fail.
        let body = serde_json::to_vec(&value).unwrap_or_default();
        self.api.publish(&subject, headers, body.into()).await.map(drop)
    }

    /// Stores it where this place holds the newest message of its subject; 0: where there is none.
    async fn store_behind(&self, place: u64, kind: Kind, entry: &Entry) -> Result<(), Failure> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", place.to_string());
        self.store(kind.as_str(), entry, headers).await
    }

    pub(super) async fn read(&self, kind: &str, key: &str) -> Result<Option<Entry>, QueueError> {
        let lying = self.api.last(&self.names.records(), &self.names.record(kind, key)).await?;
        lying.map_or(Ok(None), |lying| entry(&lying.subject, &lying.body))
    }

    pub(super) async fn read_all(&self, kind: &str) -> Result<Vec<Entry>, QueueError> {
        let (stream, subject) = (self.names.records(), self.names.records_of(kind));
        let (mut all, mut from) = (Vec::new(), 1);
        while let Some(lying) = self.api.next(&stream, &subject, from).await? {
            all.extend(entry(&lying.subject, &lying.body)?);
            from = lying.sequence.saturating_add(1);
        }
        all.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(all)
    }

    /// Forgets what was written before this time, pins excepted. Places stand in the order of time: the first one to stay is
    /// found by halves.
    pub(super) async fn forget(&self, before: Timestamp) -> Result<(), QueueError> {
        let stream = self.names.records();
        let (mut from, mut to) = stream::info(&self.api, &stream).await?.places();
        while from < to {
            let middle = from.midpoint(to);
            match self.api.next(&stream, ">", middle).await? {
                Some(lying) if lying.time < before => from = lying.sequence.saturating_add(1),
                _ => to = middle,
            }
        }
        for which in purges(&self.names, from) {
            self.api.call::<Value>(&format!("STREAM.PURGE.{stream}"), &which).await?;
        }
        Ok(())
    }

    /// Takes it out; nothing of it stays, and one that is not there is `Ok`.
    pub(super) async fn erase(&self, kind: &str, key: &str) -> Result<(), QueueError> {
        let lying = self.api.last(&self.names.records(), &self.names.record(kind, key)).await?;
        match lying {
            Some(lying) => Ok(self.api.delete(&self.names.records(), lying.sequence).await?),
            None => Ok(()),
        }
    }
}

impl Ledger for Records {
    fn put(&self, kind: Kind, entry: Entry) -> BoxFuture<'_, Result<(), QueueError>> {
        async move { self.write(kind.as_str(), &entry).await }.boxed()
    }

    fn put_if_absent(&self, kind: Kind, new: Entry) -> BoxFuture<'_, Result<Entry, QueueError>> {
        async move {
            let (stream, subject) = (self.names.records(), self.names.record(kind.as_str(), &new.key));
            // As a rule nothing lies there, which the server then says without a question before.
            let mut stored = self.store_behind(0, kind, &new).await;
            if stored.as_ref().is_err_and(|failure| failure.is(ErrorCode::STREAM_WRONG_LAST_SEQUENCE))
                && let Some(marker) = self.api.last(&stream, &subject).await?.filter(|lying| lying.body.is_empty())
            {
                stored = self.store_behind(marker.sequence, kind, &new).await;
            }
            match stored {
                Ok(()) => Ok(new),
                // Also after a lost answer: then the one that holds is ours.
                Err(failure) if failure.is(ErrorCode::STREAM_WRONG_LAST_SEQUENCE) => {
                    let there = self.read(kind.as_str(), &new.key).await?;
                    there.ok_or(QueueError::Unavailable {
                        cause: "a record was taken away while it was read".to_owned(),
                    })
                }
                Err(failure) => Err(failure.into()),
            }
        }
        .boxed()
    }

    fn get(&self, kind: Kind, key: &str) -> BoxFuture<'_, Result<Option<Entry>, QueueError>> {
        let key = key.to_owned();
        async move { self.read(kind.as_str(), &key).await }.boxed()
    }

    fn list(&self, kind: Kind) -> BoxFuture<'_, Result<Vec<Entry>, QueueError>> {
        async move { self.read_all(kind.as_str()).await }.boxed()
    }

    fn remove(&self, kind: Kind, key: &str) -> BoxFuture<'_, Result<(), QueueError>> {
        let key = key.to_owned();
        async move { self.erase(kind.as_str(), &key).await }.boxed()
    }
}

/// As a key-value bucket is made, so that the usual tools read it.
fn require_fit(found: &stream::Info, names: &Names) -> Result<(), QueueError> {
    let differences = judge_records(&found.config, &wanted(names), &subjects(names));
    if differences.is_empty() {
        return Ok(());
    }
    let records = names.records();
    Err(QueueError::Unusable {
        cause: format!("the bucket of records ({records}) is not fit: {}", differences.join("; ")),
        remedy: format!(
            "while no task waits or runs, remove it (nats stream rm {records}) and start again, which makes another one; \
             limits, discard and retention can be changed as well (nats stream edit {records})"
        ),
    })
}

fn subjects(names: &Names) -> String {
    let records = names.records();
    format!("$KV.{}.>", records.strip_prefix("KV_").unwrap_or(&records))
}

fn wanted(names: &Names) -> Map<String, Value> {
    let wanted = json!({
        "subjects": [subjects(names)],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "max_consumers": -1,
        "allow_rollup_hdrs": true,
        "allow_direct": true,
    });
    match wanted {
        Value::Object(wanted) => wanted,
        _ => Map::new(),
    }
}

/// What is asked for so that all records before this place go, pins excepted. Nothing before the first place: the place 0
/// means all of them to every server, and 1 does to those before 2.15.
fn purges(names: &Names, from: u64) -> Vec<Value> {
    if from <= 1 {
        return Vec::new();
    }
    let kinds = [Kind::Tombstone.as_str(), Kind::Begun.as_str(), Kind::SetAside.as_str(), TRIES];
    kinds.iter().map(|kind| json!({ "filter": names.records_of(kind), "seq": from })).collect()
}

/// A record; none where one was taken away by the tools of a key-value bucket, which leave a marker without a body.
fn entry(subject: &str, body: &[u8]) -> Result<Option<Entry>, QueueError> {
    if body.is_empty() {
        return Ok(None);
    }
    let parsed = key_of_record(subject).zip(serde_json::from_slice::<Content>(body).ok());
    let (key, Content { value, at }) = parsed.ok_or_else(|| QueueError::Unusable {
        cause: format!("the record {subject} is not one of ours"),
        remedy: "remove it (nats kv del), or restore the bucket from a backup".to_owned(),
    })?;
    Ok(Some(Entry { key, value, at }))
}
