#![expect(clippy::unwrap_used, reason = "tests")]

mod advisories;
mod bucket;
mod filled;
mod handing_out;
mod measure;
mod model;
mod outages;
mod publishing;
mod relay;
mod settling;
mod streams;

use serde::Deserialize;
use serde_json::{Value, json};
use testkit::real::{NatsCluster, NatsServer, NatsSettings};

use super::api::Api;
use super::*;
use crate::queue::contract::{self, key, message};

/// Times at which a test need not wait long.
const QUICK: Pace = Pace {
    answer: Duration::from_secs(2),
    ack_wait: Duration::from_secs(60),
    sign: Duration::from_millis(200),
    look: Duration::from_millis(100),
};

async fn start() -> NatsServer {
    NatsServer::start(NatsSettings::default()).await.unwrap()
}

async fn settings(url: &str, store: &str) -> Settings {
    let servers: Vec<async_nats::ServerAddr> = url.split(',').map(|server| server.parse().unwrap()).collect();
    let connect = || async { async_nats::connect(&servers[..]).await.unwrap() };
    Settings {
        producer: connect().await,
        worker: connect().await,
        stream: format!("S_{store}"),
        subject_base: format!("ci.{store}."),
        instance: "f66f031b".parse().unwrap(),
        backends: vec![Backend::Pod, Backend::Vm, Backend::Local],
        clock: Clock::start(),
        tenure: None,
    }
}

/// A queue of its own in this server: stream and subjects have the store's name.
async fn open_at(url: &str, store: &str, pace: Pace) -> Result<JetStream, QueueError> {
    JetStream::open_at(settings(url, store).await, pace).await
}

async fn open(server: &NatsServer, store: &str) -> JetStream {
    open_at(&server.url(), store, QUICK).await.unwrap()
}

/// An operator's connection.
async fn operator(server: &NatsServer) -> Api {
    Api::new(async_nats::connect(server.url()).await.unwrap(), QUICK.answer)
}

/// The stream's configuration, as an operator reads it.
async fn config(api: &Api, stream: &str) -> Value {
    api.ask_for::<Value>(&format!("STREAM.INFO.{stream}")).await.unwrap()["config"].take()
}

/// Changes the stream as an operator does.
async fn change(api: &Api, stream: &str, changes: Value) {
    let mut config = config(api, stream).await;
    config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    api.call::<Value>(&format!("STREAM.UPDATE.{stream}"), &config).await.unwrap();
}

/// What lies in the stream.
async fn stored(api: &Api, stream: &str) -> u64 {
    api.ask_for::<Value>(&format!("STREAM.INFO.{stream}")).await.unwrap()["state"]["messages"].as_u64().unwrap()
}

/// The numbers of the tasks that lie in the stream, as an operator reads them: the engine takes out what has ended when it
/// reads.
async fn lying(api: &Api, stream: &str) -> Vec<i64> {
    let names = names::Names::new(stream, "ci", "f66f031b".parse().unwrap());
    let (mut numbers, mut from) = (Vec::new(), 1);
    while let Some(lying) = api.next(stream, ">", from).await.unwrap() {
        from = lying.sequence + 1;
        numbers.push(names.key(&lying.id.unwrap()).unwrap().id.task().get());
    }
    numbers
}

#[derive(Debug, Deserialize)]
struct ConsumerInfo {
    config: Value,
    num_ack_pending: u64,
    num_redelivered: u64,
    num_pending: u64,
}

/// The consumer of the first store's Pods.
async fn consumer(api: &Api, stream: &str) -> ConsumerInfo {
    api.ask_for(&format!("CONSUMER.INFO.{stream}.f66f031b-pod")).await.unwrap()
}

async fn pull(queue: &JetStream) -> Option<i64> {
    queue.pull(Backend::Pod, Timestamp::now()).await.unwrap().map(|delivery| delivery.id.task().get())
}

/// Calls until there is an answer that is worth something: everything may be repeated.
async fn repeat<T>(what: &str, mut call: impl AsyncFnMut() -> Result<T, QueueError>) -> T {
    let calls = async {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(QueueError::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{what}: {error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), calls).await.unwrap_or_else(|_| panic!("not within a minute: {what}"))
}

async fn publish(queue: &JetStream, numbers: impl IntoIterator<Item = i64>) {
    for n in numbers {
        assert_eq!(queue.publish(message(n, "a")).await, Ok(Published::New));
    }
}

async fn numbers(queue: &JetStream) -> Vec<i64> {
    queue.list(Backend::Pod).await.unwrap().iter().map(|message| message.id.task().get()).collect()
}

fn later(seconds: i64) -> Disposition {
    let at = Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    Disposition::Retry { at, error: "no room".to_owned() }
}

/// Looks until it is true.
async fn until(what: &str, mut seen: impl AsyncFnMut() -> bool) {
    let looks = async {
        while !seen().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), looks).await.is_ok(), "not within 30 s: {what}");
}

/// NEW-34, NEW-39, NEW-44, NEW-45, NEW-46, NEW-50, NEW-52, NEW-3, ADM-4, PRC-4, PRC-9, PUB-1, PUB-2, CON-3, CON-4, F24:
/// the same suite that every engine passes, on a real server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_of_a_queue() {
    let server = start().await;
    let open = async |store: &str| JetStream::open(settings(&server.url(), store).await).await.unwrap();
    contract::all(
        async |store| Arc::new(open(store).await) as Arc<dyn Queue>,
        async |store| open(store).await.ledger(),
    )
    .await;
}

/// The work beside the calls, until it is dropped.
struct Tended(tokio::task::JoinHandle<QueueError>);

impl Tended {
    fn new(queue: &JetStream) -> Self {
        Self(tokio::spawn(queue.tend()))
    }
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// NEW-50, T43: the same suite on three servers that store together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_of_a_queue_in_a_cluster() {
    let cluster = NatsCluster::start(3, NatsSettings::default()).await.unwrap();
    // Three servers that have just made a stream may need longer for a consumer than one answer may take.
    let open = async |store: &str| {
        let patience = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            match JetStream::open(settings(&cluster.url(), store).await).await {
                Err(QueueError::Unavailable { .. }) if tokio::time::Instant::now() < patience => {}
                opened => break opened.unwrap(),
            }
        }
    };
    contract::all(
        async |store| Arc::new(open(store).await) as Arc<dyn Queue>,
        async |store| open(store).await.ledger(),
    )
    .await;
}
