//! The lease on a real NATS server. Needs `cargo xtask provision nats`.

#![expect(clippy::unwrap_used, reason = "tests")]

mod faults;
mod frozen;
mod order;
mod refusals;
mod rollback;
mod wire;

use std::time::{Duration, Instant};

use async_nats::ConnectOptions;
use async_nats::jetstream;
use testkit::real::{NatsServer, NatsSettings};
use tokio::time::timeout;

use super::super::testing::{LONG, SHORT, SOON, leads, lost, still_leads, times, until};
use super::super::{Act, Fenced, Lost};
use super::*;

const BUCKET: &str = "leases";

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
