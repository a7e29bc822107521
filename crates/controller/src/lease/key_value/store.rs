//! The calls to the bucket. Each is bounded by [`Times::call`] and nothing is tried again here.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{
    CreateKeyValueErrorKind, CreateStreamError, CreateStreamErrorKind, GetStreamError, GetStreamErrorKind,
    KeyValueErrorKind,
};
use async_nats::jetstream::kv::{self, UpdateErrorKind};
use async_nats::jetstream::stream::{self, LastRawMessageErrorKind, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use serde::{Deserialize, Serialize};

use super::super::boot_time::BootTime;
use super::super::renew;
use super::super::rules::{Heard, Seen, Times};
use super::KeyValueLease;
use super::error::{KeyValueError, Trouble};
use crate::nats::{FEW_REPLICAS, REPLICAS, TOO_FEW_SERVERS};

/// Room for some thousand leases; an account may demand that a bucket has a limit.
const MAX_BYTES: i64 = 1024 * 1024;

/// How often a call that waits for a connection looks for one.
const CONNECTED_YET: Duration = Duration::from_millis(20);

/// The bucket, opened or not.
#[derive(Clone)]
pub(super) struct Bucket {
    pub(super) context: Context,
    pub(super) name: String,
}

/// One session at one key.
pub(super) struct Store {
    context: Context,
    inner: kv::Store,
    key: String,
    subject: String,
    record: Record,
    times: Times,
}

/// What stands under the key.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    /// The name of the one who wrote it, for people.
    holder: String,
    /// The session that holds the lease; none: its holder gave it up.
    session: Option<String>,
    /// Where its holder is the only one, if it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<String>,
}

impl Bucket {
    /// Opens the bucket for a new session, and makes it where it is missing.
    pub(super) async fn open(&self, lease: &KeyValueLease) -> Result<Store, Trouble> {
        let KeyValueLease { key, holder, place, times, .. } = lease;
        let inner = match in_time(times, self.context.get_key_value(&self.name)).await? {
            Ok(store) => store,
            Err(error) if is_missing(&error) => self.create(times).await?,
            Err(error) if error.kind() == KeyValueErrorKind::InvalidStoreName => {
                return Err(not_a_bucket(format!("{:?} is no name of a bucket, or of something else", self.name)));
            }
            Err(error) => return Err(Trouble::Silent(error.to_string())),
        };
        fit(&inner)?;
        self.spread(&inner, times).await;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|cause| Trouble::Unusable {
            cause: format!("the system gave no random number for the session ({cause})"),
            remedy: "it must offer getrandom(2)",
        })?;
        let session = format!("{:032x}", u128::from_ne_bytes(random));
        let record = Record { holder: holder.clone(), session: Some(session), place: place.clone() };
        let subject = format!("{}{key}", inner.prefix);
        Ok(Store { context: self.context.clone(), inner, key: key.clone(), subject, record, times: *times })
    }

    /// On three servers, or on one where there are fewer.
    async fn create(&self, times: &Times) -> Result<kv::Store, Trouble> {
        match self.create_with(REPLICAS, times).await {
            Err(Trouble::TooFewServers) => self.create_with(1, times).await,
            made => made,
        }
    }

    async fn create_with(&self, replicas: usize, times: &Times) -> Result<kv::Store, Trouble> {
        let config = kv::Config {
            bucket: self.name.clone(),
            description: "who leads, one key per instance of gitea-dynamic-runner".to_owned(),
            history: 1,
            max_bytes: MAX_BYTES,
            storage: StorageType::File,
            num_replicas: replicas,
            ..kv::Config::default()
        };
        let error = match in_time(times, self.context.create_key_value(config)).await? {
            Ok(store) => return Ok(store),
            Err(error) => error,
        };
        // Its source is JetStream's answer; without one nobody knows whether it was made.
        match (error.kind(), answer(&error)) {
            // Another replica was faster: opened with the next try.
            (_, Some(answer)) if answer.error_code() == ErrorCode::STREAM_NAME_EXIST => {
                Err(Trouble::Silent(answer.to_string()))
            }
            (_, Some(answer)) if replicas > 1 && TOO_FEW_SERVERS.contains(&answer.error_code()) => {
                Err(Trouble::TooFewServers)
            }
            (CreateKeyValueErrorKind::BucketCreate, Some(answer)) if !is_passing(&answer) => Err(Trouble::Unusable {
                cause: format!("it cannot be made: {answer}"),
                remedy: "give the account room for one more stream",
            }),
            _ => Err(Trouble::Silent(error.to_string())),
        }
    }

    /// Has a bucket stored on more servers that was made while too few of a cluster were there. What keeps it from that is
    /// told at each start, and is no reason not to lead.
    async fn spread(&self, store: &kv::Store, times: &Times) {
        let info = store.stream.cached_info();
        // Of a server of its own it has no name.
        let clustered = info.cluster.as_ref().is_some_and(|cluster| cluster.name.is_some());
        if !clustered || info.config.num_replicas >= REPLICAS {
            return;
        }
        let bucket = &self.name;
        let config = stream::Config { num_replicas: REPLICAS, ..info.config.clone() };
        let cause = match in_time(times, self.context.update_stream(config)).await {
            Ok(Ok(_)) => {
                tracing::info!(
                    component = "scheduler",
                    bucket,
                    servers = REPLICAS,
                    "stored on more servers from now on"
                );
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(trouble) => trouble.to_string(),
        };
        tracing::warn!(component = "scheduler", bucket, cause, remedy = FEW_REPLICAS, "stored on too few servers");
    }

    /// Whether there is a connection; the client makes one again and again.
    pub(super) fn is_connected(&self) -> bool {
        self.context.client().connection_state() == State::Connected
    }

    /// What opening it asks.
    pub(super) fn open_subjects(&self) -> String {
        let stream = format!("KV_{}", self.name);
        format!("$JS.API.STREAM.INFO.{stream} ($JS.API.INFO and $JS.API.STREAM.CREATE.{stream} where it is missing)")
    }

    /// What looking at it asks.
    pub(super) fn look_subject(&self) -> String {
        format!("$JS.API.STREAM.MSG.GET.KV_{}", self.name)
    }

    pub(super) fn unusable(&self, cause: String, remedy: &'static str) -> KeyValueError {
        KeyValueError::Unusable { bucket: self.name.clone(), cause, remedy }
    }

    pub(super) fn unanswered(&self, subject: String, trouble: &Trouble, patience: &Patience) -> KeyValueError {
        let (bucket, cause, waited) = (self.name.clone(), trouble.to_string(), patience.limit);
        KeyValueError::Unanswered { bucket, subject, waited, cause }
    }
}

impl Store {
    /// What stands under the key, asked of the stream's leader: other replicas may be behind.
    pub(super) async fn find(&self) -> Result<Seen, Trouble> {
        let look = self.inner.stream.get_last_raw_message_by_subject(&self.subject);
        let message = match in_time(&self.times, self.connected(look)).await? {
            Ok(message) => message,
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => return Ok(Seen::Nothing),
                LastRawMessageErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    return Err(Trouble::NoBucket);
                }
                _ => return Err(Trouble::Silent(error.to_string())),
            },
        };
        let revision = message.sequence;
        // A message of the bucket without a record is what marks a deleted key.
        if message.payload.is_empty() {
            return Ok(Seen::Removed { revision });
        }
        Ok(match serde_json::from_slice::<Record>(&message.payload) {
            Ok(Record { session: None, .. }) => Seen::Free { revision },
            Ok(Record { session, .. }) if session == self.record.session => Seen::Ours { revision },
            Ok(Record { holder, place, .. }) => Seen::Theirs { revision, holder, place },
            Err(_) => Seen::Theirs { revision, holder: "somebody who wrote something else".to_owned(), place: None },
        })
    }

    /// The subject that is written to.
    pub(super) fn subject(&self) -> &str {
        &self.subject
    }

    /// Begins the call when there is a connection: what is asked without one lies in the client, hours of an outage long, and
    /// all of it goes out at its end.
    async fn connected<T>(&self, call: impl Future<Output = T>) -> T {
        while self.context.client().connection_state() != State::Connected {
            tokio::time::sleep(CONNECTED_YET).await;
        }
        call.await
    }

    async fn put(&self, record: &Record, expected: u64) -> Result<Heard, Trouble> {
        let text = serde_json::to_vec(record).map_err(|error| Trouble::Silent(error.to_string()))?;
        let update = self.inner.update(&self.key, text.into(), expected);
        match in_time(&self.times, self.connected(update)).await? {
            Ok(revision) => Ok(Heard::Stored { revision }),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(Heard::Refused),
            Err(error) => Err(Trouble::Silent(error.to_string())),
        }
    }
}

impl renew::Store for Store {
    type Trouble = Trouble;

    /// No bucket, no record.
    async fn look(&self) -> Result<Seen, Trouble> {
        match self.find().await {
            Err(Trouble::NoBucket) => Ok(Seen::Nothing),
            found => found,
        }
    }

    async fn write(&self, expected: u64) -> Result<Heard, Trouble> {
        self.put(&self.record, expected).await
    }

    async fn write_free(&self, expected: u64) -> Result<Heard, Trouble> {
        self.put(&Record { session: None, ..self.record.clone() }, expected).await
    }

    fn times(&self) -> &Times {
        &self.times
    }
}

/// How long something may bring nothing while NATS is connected.
pub(super) struct Patience {
    limit: Duration,
    since: Option<BootTime>,
    answered: bool,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, since: None, answered: false }
    }

    /// It is possible; from now on it is only a matter of time.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    /// Whether it brought nothing once more, and is not worth another try.
    pub(super) fn is_over(&mut self, connected: bool, now: BootTime) -> bool {
        if self.answered || !connected {
            self.since = None;
            return false;
        }
        now.after(*self.since.get_or_insert(now)) >= self.limit
    }
}

async fn in_time<T>(times: &Times, call: impl Future<Output = T>) -> Result<T, Trouble> {
    let limit = times.call();
    let late = |_| Trouble::Silent(format!("nothing within {} s", limit.as_secs_f32()));
    tokio::time::timeout(limit, call).await.map_err(late)
}

fn is_missing(error: &async_nats::jetstream::context::KeyValueError) -> bool {
    let stream = std::error::Error::source(error).and_then(|source| source.downcast_ref::<GetStreamError>());
    let kind = stream.map(GetStreamError::kind);
    matches!(kind, Some(GetStreamErrorKind::JetStream(answer)) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// JetStream's own words among the causes.
fn answer(error: &(dyn std::error::Error + 'static)) -> Option<async_nats::jetstream::Error> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<CreateStreamError>()
            && let CreateStreamErrorKind::JetStream(answer) = error.kind()
        {
            return Some(answer);
        }
        next = cause.source();
    }
    None
}

/// 503: JetStream has no leader for the moment.
fn is_passing(answer: &async_nats::jetstream::Error) -> bool {
    answer.code() == 503
}

/// A bucket that somebody else made must keep what is written, in order, until it is overwritten.
fn fit(store: &kv::Store) -> Result<(), Trouble> {
    let config = &store.stream.cached_info().config;
    if !config.max_age.is_zero() {
        return Err(not_a_bucket(format!("its entries are dropped after {} s", config.max_age.as_secs_f32())));
    }
    if config.storage != StorageType::File {
        return Err(not_a_bucket("it is kept in memory, and a restart of the server frees every lease".to_owned()));
    }
    Ok(())
}

fn not_a_bucket(cause: String) -> Trouble {
    Trouble::Unusable {
        cause,
        remedy: "delete the bucket and have it made anew, or name another NATS_STREAM, which its name follows",
    }
}
