//! What each user must be allowed to do, held against the configuration that docs/nats.md shows.

use domain::id::Backend;
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::clock::Clock;
use crate::lease::{KeyValueLease, Leadership as _};
use crate::queue::contract::{key, message};
use crate::queue::jetstream::{JetStream, Settings};
use crate::queue::ledger::{Entry, Kind};
use crate::queue::{Disposition, Message, Queue as _, QueueError};

const DOCUMENT: &str = include_str!("../../../../../docs/nats.md");

/// The block of users, with the passwords of these tests.
fn configuration() -> String {
    let begin = DOCUMENT.find("authorization {").unwrap();
    let block = DOCUMENT[begin..].split("```").next().unwrap();
    block.replace("$PRODUCER_PASSWORD", PRODUCER).replace("$WORKER_PASSWORD", WORKER)
}

async fn server(authorization: String) -> NatsServer {
    NatsServer::start(NatsSettings { further: authorization, ..NatsSettings::default() }).await.unwrap()
}

fn text(error: &QueueError) -> String {
    error.to_string()
}

/// Everything that the program does with NATS, from nothing: what keeps it from that, in its words.
async fn exercise(server: &NatsServer) -> Result<(), String> {
    let bench = Bench::new(&[&server.url()]);
    let connect = async |role| Connection::open(&bench.nats, role, quick()).await.map_err(|error| error.to_string());
    let (producer, worker) = (connect(Role::Producer).await?, connect(Role::Worker).await?);
    let instance: domain::id::InstanceId = "f66f031b".parse().unwrap();
    let context = async_nats::jetstream::new(producer.client().clone());
    let times = crate::lease::Times { lease: SOON / 4, renew_deadline: SOON / 8, retry: Duration::from_millis(200) };
    let lease = KeyValueLease::new(context, "CI_RUNNER_LEADER", &instance, "a").with_times(times);
    let held = lease.acquire().await.map_err(|error| error.to_string())?;
    let open = || {
        JetStream::open(Settings {
            producer: producer.client().clone(),
            worker: worker.client().clone(),
            stream: "CI_RUNNER".to_owned(),
            subject_base: "ci.runner".to_owned(),
            instance: instance.clone(),
            backends: vec![Backend::Pod],
            clock: Clock::start(),
            tenure: None,
        })
    };
    work(&open().await.map_err(|error| text(&error))?).await.map_err(|error| text(&error))?;
    // What a former process had in hand.
    work_again(&open().await.map_err(|error| text(&error))?).await.map_err(|error| text(&error))?;
    held.release().await;
    Ok(())
}

async fn work(queue: &JetStream) -> Result<(), QueueError> {
    let ledger = queue.ledger();
    for n in 1..=4 {
        queue.publish(message(n, "a")).await?;
    }
    queue.publish(message(1, "a")).await?;
    let now = Timestamp::now;
    assert!(queue.pull(Backend::Pod, now()).await?.is_some());
    queue.settle(key(1), Disposition::Ack).await?;
    queue.settle(key(2), Disposition::Ack).await?;
    assert!(queue.pull(Backend::Pod, now()).await?.is_some());
    let at = now() + SignedDuration::from_secs(60);
    queue.settle(key(3), Disposition::Retry { at, error: "no room".to_owned() }).await?;
    assert!(queue.pull(Backend::Pod, now()).await?.is_some());
    let pin = Entry { key: "a".to_owned(), value: "1".to_owned(), at: now() };
    ledger.put_if_absent(Kind::Pin, pin.clone()).await?;
    ledger.put(Kind::Pin, pin).await?;
    ledger.remove(Kind::Pin, "a").await
}

async fn work_again(queue: &JetStream) -> Result<(), QueueError> {
    assert_eq!(queue.list(Backend::Pod).await?.len(), 2);
    queue.settle(key(3), Disposition::Ack).await?;
    let pulled = queue.pull(Backend::Pod, Timestamp::now()).await?;
    assert_eq!(pulled.map(|delivery| delivery.id), Some(message(4, "a").id));
    let Message { id, digest, .. } = message(4, "a");
    queue.settle(crate::queue::Key { id, digest }, Disposition::Ack).await
}

/// T77, F154, CFG-3, CFG-12: the documented rights are enough; without any one of those to publish or to hear answers the
/// text names it. What only a changed stream and old records need, the right to hear of changes, and that to acknowledge, which is not
/// missed but by its delay, are no part of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_is_needed_and_named() {
    let whole = configuration();
    exercise(&server(whole.clone()).await).await.unwrap();
    let lines: Vec<&str> = whole.lines().filter(|line| line.trim().starts_with('"')).collect();
    let apart = ["STREAM.UPDATE", "$JS.EVENT", "\"_INBOX", "$JS.ACK", "STREAM.PURGE"];
    let tried = lines.iter().enumerate().filter(|(_, line)| !apart.iter().any(|part| line.contains(part)));
    let cases = tried.map(|(nth, line)| {
        let without = without(&whole, nth);
        async move {
            let server = server(without).await;
            let answer =
                tokio::time::timeout(4 * SOON, exercise(&server)).await.unwrap_or_else(|_| Err("hangs".to_owned()));
            let right = line.trim().trim_matches('"').trim_end_matches(['>', '*']);
            match answer {
                Err(said) if said.contains(right) => None,
                said => Some(format!("{line}: {said:?}")),
            }
        }
    });
    let missing: Vec<String> = futures::future::join_all(cases).await.into_iter().flatten().collect();
    assert!(lines.len() > 20 && missing.is_empty(), "{missing:#?}");
    // What a server acknowledges without it may be gone with the machine.
    assert!(DOCUMENT.contains("sync_interval: always") && whole.contains("KV_CI_RUNNER_LEADER"));
}

/// NEW-41, T77, CFG-3: what the earlier controller left is read, looked after and taken out with the documented rights, and
/// without one of them the text names it.
#[tokio::test]
async fn the_migration_needs_no_other_rights() {
    let migrate = async |server: &NatsServer| {
        let bench = Bench::new(&[&server.url()]);
        let connect = async |role| Connection::open(&bench.nats, role, quick()).await.unwrap();
        let (producer, worker) = (connect(Role::Producer).await, connect(Role::Worker).await);
        let (producer, worker) = (producer.client().clone(), worker.client().clone());
        let queue = JetStream::open(Settings {
            producer: producer.clone(),
            worker,
            stream: "CI_RUNNER".to_owned(),
            subject_base: "ci.runner".to_owned(),
            instance: "f66f031b".parse().unwrap(),
            backends: vec![],
            clock: Clock::start(),
            tenure: None,
        });
        let queue = queue.await?;
        let stored = async_nats::jetstream::new(producer).publish("ci.runner.pod", "left".into()).await.unwrap();
        stored.await.unwrap();
        let earlier = queue.earlier(Backend::Pod).await?;
        assert_eq!(earlier.taker().await?, None);
        let left = earlier.next(1).await?.unwrap();
        assert!(left.in_time && *left.body == b"left");
        earlier.remove(left.place).await?;
        assert!(earlier.next(1).await?.is_none());
        Ok::<_, QueueError>(())
    };
    let whole = configuration();
    migrate(&server(whole.clone()).await).await.unwrap();
    for right in ["CONSUMER.INFO.CI_RUNNER.", "STREAM.MSG.GET.CI_RUNNER", "STREAM.MSG.DELETE.CI_RUNNER"] {
        let nth = whole.lines().filter(|line| line.trim().starts_with('"')).position(|line| line.contains(right));
        let said = migrate(&server(without(&whole, nth.unwrap())).await).await.unwrap_err().to_string();
        assert!(said.contains(right), "{right}: {said}");
    }
}

/// The configuration without the `nth` of its rights.
fn without(whole: &str, nth: usize) -> String {
    let mut seen = 0;
    let keep = |line: &&str| {
        let right = line.trim().starts_with('"');
        seen += usize::from(right);
        !right || seen != nth + 1
    };
    whole.lines().filter(keep).collect::<Vec<_>>().join("\n")
}
