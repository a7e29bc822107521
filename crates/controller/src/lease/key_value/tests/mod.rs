//! The lease on a real NATS server. Needs `cargo xtask provision nats`.

#![expect(clippy::unwrap_used, reason = "tests")]

mod faults;
mod frozen;
mod order;
mod refusals;
mod wire;

use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream;
use testkit::real::{NatsServer, NatsSettings};
use tokio::time::timeout;

use super::super::{Act, Fenced, Lost, Tenure};
use super::*;

const BUCKET: &str = "leases";

/// For what must not wait for the end of a lease: far shorter than [`LONG`].
const SOON: Duration = Duration::from_secs(20);

/// Nothing expires within a test.
const LONG: Times = times(60_000, 40_000, 100);

/// What a busy machine can hold, and a test can wait for.
const SHORT: Times = times(3_000, 2_000, 100);

const fn times(lease: u64, renew_deadline: u64, retry: u64) -> Times {
    let ms = Duration::from_millis;
    Times { lease: ms(lease), renew_deadline: ms(renew_deadline), retry: ms(retry) }
}

async fn server() -> NatsServer {
    NatsServer::start(NatsSettings::default()).await.unwrap()
}

async fn context(url: &str) -> Context {
    jetstream::new(hasty().connect(url).await.unwrap())
}

/// A client that does not wait long between two tries to connect.
fn hasty() -> ConnectOptions {
    ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(50))
}

/// A replica with a connection of its own.
async fn replica(url: &str, holder: &str, times: Times) -> KeyValueLease {
    let instance = "one".parse().unwrap();
    KeyValueLease::new(context(url).await, BUCKET, &instance, holder).with_times(times)
}

async fn leads(replica: &KeyValueLease) -> Held {
    timeout(SOON, replica.acquire()).await.unwrap().unwrap()
}

/// Becomes ready with what was lost.
async fn lost(held: &Held) -> Lost {
    timeout(SOON, held.lost()).await.unwrap();
    held.tenure().over().unwrap()
}

/// The key as others see it.
async fn bucket(url: &str) -> async_nats::jetstream::kv::Store {
    context(url).await.get_key_value(BUCKET).await.unwrap()
}

const KEY: &str = "dynamic-runner-scheduler-one";

/// Waits for so many writes more than there are now.
async fn writes(url: &str, count: u64) {
    written(url, revision(url).await + count).await;
}

/// The latest write.
async fn revision(url: &str) -> u64 {
    bucket(url).await.entry(KEY).await.unwrap().unwrap().revision
}

/// Waits for this write.
async fn written(url: &str, wanted: u64) {
    let bucket = bucket(url).await;
    let more = async {
        while bucket.entry(KEY).await.unwrap().unwrap().revision < wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, more).await.unwrap();
}

fn still_leads(tenure: &Tenure) {
    assert_eq!(tenure.permits(Act::Decide), Ok(()));
}

/// Waits until this may be done, or may not.
async fn until(held: &Held, act: Act, permitted: Result<(), Fenced>) {
    let tenure = held.tenure();
    let asked = async {
        while tenure.permits(act) != permitted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, asked).await.unwrap_or_else(|_| panic!("{act:?}: {:?}", tenure.permits(act)));
}
