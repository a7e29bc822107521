//! What each user must be allowed to do, held against the configuration that docs/nats.md shows.

use async_nats::jetstream;
use domain::id::Backend;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};

use testkit::real::NatsCluster;

use super::*;
use crate::clock::Clock;
use crate::lease::{Held, KeyValueLease, Leadership as _, Times as LeaseTimes};
use crate::queue::contract::{key, message};
use crate::queue::jetstream::{JetStream, Settings};
use crate::queue::ledger::{Entry, Kind, life};
use crate::queue::{Disposition, Message, Queue as _, QueueError};

const DOCUMENT: &str = include_str!("../../../../../docs/nats.md");
const LEADER: &str = "CI_RUNNER_LEADER";

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

/// Both connections of a program.
struct Program {
    producer: Connection,
    worker: Connection,
}

impl Program {
    async fn connect(bench: &Bench) -> Result<Self, String> {
        let connect =
            async |role| Connection::open(&bench.nats, role, quick()).await.map_err(|error| error.to_string());
        Ok(Self { producer: connect(Role::Producer).await?, worker: connect(Role::Worker).await? })
    }

    async fn lead(&self) -> Result<Held, String> {
        let context = jetstream::new(self.producer.client().clone());
        let times = LeaseTimes { lease: SOON / 4, renew_deadline: SOON / 8, retry: Duration::from_millis(200) };
        let lease = KeyValueLease::new(context, LEADER, &instance(), "a").with_times(times);
        lease.acquire().await.map_err(|error| error.to_string())
    }

    async fn open(&self, backends: Vec<Backend>, clock: Clock) -> Result<JetStream, QueueError> {
        let settings = Settings {
            producer: self.producer.client().clone(),
            worker: self.worker.client().clone(),
            stream: "CI_RUNNER".to_owned(),
            subject_base: "ci.runner".to_owned(),
            instance: instance(),
            backends,
            clock,
            tenure: None,
        };
        JetStream::open(settings).await
    }
}

fn instance() -> domain::id::InstanceId {
    "f66f031b".parse().unwrap()
}

/// What the server refused last, as the log has it too.
fn refusal(connection: &Connection) -> Result<(), String> {
    connection.health.refused().now_or_never().map_or(Ok(()), Err)
}

/// Everything that the program does with NATS, from nothing: what keeps it from that, in its words; else what was refused
/// meanwhile.
async fn exercise(server: &NatsServer) -> Result<(), String> {
    let bench = Bench::new(&[&server.url()]);
    let program = Program::connect(&bench).await?;
    let held = program.lead().await?;
    let open = async |clock| program.open(vec![Backend::Pod], clock).await.map_err(|error| text(&error));
    work(&open(Clock::start()).await?).await.map_err(|error| text(&error))?;
    // What a former process had in hand.
    let queue = open(Clock::start()).await?;
    tended(&queue, work_again(&queue)).await.map_err(|error| text(&error))?;
    let queue = open(Clock::saying(Timestamp::now() + SignedDuration::from_hours(40 * 24))).await?;
    tended(&queue, forgets(&program, &queue)).await.map_err(|error| text(&error))?;
    held.release().await;
    refusal(&program.producer).and(refusal(&program.worker))
}

/// It listens before any of this is done.
async fn tended(queue: &JetStream, work: impl Future<Output = Result<(), QueueError>>) -> Result<(), QueueError> {
    tokio::select! {
        biased;
        ended = queue.tend() => Err(ended),
        worked = work => worked,
    }
}

/// Waits until old records are gone, or something was refused.
async fn forgets(program: &Program, queue: &JetStream) -> Result<(), QueueError> {
    let crate::queue::Key { id, digest } = key(1);
    eventually("old records are gone, or that is refused", SOON, async || {
        Ok(match queue.ledger().get(Kind::Tombstone, &life(id, &digest)).await {
            Ok(Some(_)) if refusal(&program.worker).is_ok() => Seen::NotYet("it stays".to_owned()),
            found => Seen::Done(found.map(drop)),
        })
    })
    .await
    .unwrap()
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

/// T77, F154, CFG-3, CFG-12: the documented rights are enough; without any one of them the text names it, or the log where
/// work goes on without it. The next test has those that only a change of streams needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_right_is_needed_and_named() {
    let whole = configuration();
    exercise(&server(whole.clone()).await).await.unwrap();
    let lines: Vec<&str> = whole.lines().filter(|line| line.trim().starts_with('"')).collect();
    let tried = lines.iter().enumerate().filter(|(_, line)| !line.contains("STREAM.UPDATE"));
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

/// T77, F154, NEW-50: without the right to change a stream, one that must be repaired is refused, and one that should lie on more
/// servers stays as it is; the log names the right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_may_not_be_changed() {
    let operator = "users: [ { user: operator, password: operator }";
    let rights: Vec<String> = configuration().lines().map(str::to_owned).collect();
    let kept = rights.iter().filter(|line| !line.contains("STREAM.UPDATE")).map(String::as_str).collect::<Vec<_>>();
    assert_eq!(rights.len() - kept.len(), 3);
    let further = kept.join("\n").replace("users: [", operator);
    let cluster = NatsCluster::start(3, NatsSettings { further, ..NatsSettings::default() }).await.unwrap();
    let urls = cluster.url();
    let context = made_by_hand(&urls).await;
    let bench = Bench::new(&urls.split(',').collect::<Vec<_>>());
    let program = Program::connect(&bench).await.unwrap();
    let named = |connection: &Connection, right: &str| {
        let said = refusal(connection).unwrap_err();
        assert!(said.contains(&format!("$JS.API.STREAM.UPDATE.{right}")), "{right}: {said}");
    };
    let held = program.lead().await.unwrap();
    named(&program.producer, "KV_CI_RUNNER_LEADER");
    let queue = program.open(vec![Backend::Pod], Clock::start()).await.unwrap();
    named(&program.producer, "CI_RUNNER");
    named(&program.worker, "KV_CI_RUNNER_RECORDS");
    work(&queue).await.unwrap();
    held.release().await;
    let narrow = jetstream::stream::Config { max_messages: 10, ..as_documented() };
    context.update_stream(narrow).await.unwrap();
    let said = text(&program.open(vec![Backend::Pod], Clock::start()).await.err().unwrap());
    assert!(said.contains("$JS.API.STREAM.UPDATE.CI_RUNNER"), "{said}");
}

/// Streams and buckets on one server, as whoever may do anything makes them.
async fn made_by_hand(urls: &str) -> jetstream::Context {
    let addresses: Vec<async_nats::ServerAddr> = urls.split(',').map(|url| url.parse().unwrap()).collect();
    let login = async_nats::ConnectOptions::with_user_and_password("operator".to_owned(), "operator".to_owned());
    let context = jetstream::new(login.connect(addresses.as_slice()).await.unwrap());
    let leader = jetstream::kv::Config { bucket: LEADER.to_owned(), num_replicas: 1, ..Default::default() };
    context.create_key_value(leader).await.unwrap();
    let records = jetstream::stream::Config {
        name: "KV_CI_RUNNER_RECORDS".to_owned(),
        subjects: vec!["$KV.CI_RUNNER_RECORDS.>".to_owned()],
        discard: jetstream::stream::DiscardPolicy::New,
        max_messages_per_subject: 1,
        num_replicas: 1,
        ..Default::default()
    };
    for stream in [records, as_documented()] {
        context.create_stream(stream).await.unwrap();
    }
    context
}

fn as_documented() -> jetstream::stream::Config {
    jetstream::stream::Config {
        name: "CI_RUNNER".to_owned(),
        subjects: vec!["ci.runner.>".to_owned()],
        retention: jetstream::stream::RetentionPolicy::WorkQueue,
        discard: jetstream::stream::DiscardPolicy::New,
        max_age: Duration::from_hours(7 * 24),
        max_messages: 100_000,
        max_bytes: 1 << 30,
        duplicate_window: Duration::from_hours(24),
        num_replicas: 1,
        ..Default::default()
    }
}

/// NEW-41, T77, CFG-3: what the earlier controller left is read, looked after and taken out with the documented rights, and
/// without one of them the text names it.
#[tokio::test]
async fn the_migration_needs_no_other_rights() {
    let migrate = async |server: &NatsServer| {
        let bench = Bench::new(&[&server.url()]);
        let program = Program::connect(&bench).await.unwrap();
        let producer = program.producer.client().clone();
        let queue = program.open(vec![], Clock::start()).await?;
        let stored = jetstream::new(producer).publish("ci.runner.pod", "left".into()).await.unwrap();
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

/// The configuration without the `nth` of its rights. Something else stands there: a list without any would allow all.
fn without(whole: &str, nth: usize) -> String {
    let mut seen = 0;
    let keep = |line| {
        let right = str::trim(line).starts_with('"');
        seen += usize::from(right);
        if right && seen == nth + 1 { "\"nothing\"" } else { line }
    };
    whole.lines().map(keep).collect::<Vec<_>>().join("\n")
}
