#![expect(clippy::unwrap_used, reason = "tests")]

use testkit::real::NatsServer;

use super::*;
use crate::queue::contract;

/// A queue of its own in this server: stream and subjects have the store's name.
async fn open(server: &NatsServer, store: &str) -> JetStream {
    let connect = || async { async_nats::connect(server.url()).await.unwrap() };
    JetStream::open(Settings {
        producer: connect().await,
        worker: connect().await,
        stream: format!("S_{store}"),
        subject_base: format!("ci.{store}."),
        instance: "f66f031b".parse().unwrap(),
        backends: vec![Backend::Pod, Backend::Vm, Backend::Local],
        clock: Clock::start(),
    })
    .await
    .unwrap()
}

/// NEW-34, NEW-39, NEW-44, NEW-45, NEW-46, NEW-50, NEW-52, NEW-3, ADM-4, PRC-4, PRC-9, PUB-1, PUB-2, CON-3, CON-4, F24:
/// the same suite that every engine passes, on a real server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_of_a_queue() {
    let server = NatsServer::start(testkit::real::NatsSettings::default()).await.unwrap();
    contract::all(
        async |store| Arc::new(open(&server, store).await) as Arc<dyn Queue>,
        async |store| open(&server, store).await.ledger(),
    )
    .await;
}
