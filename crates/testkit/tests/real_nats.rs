//! The real NATS server as the other tests use it. Needs `cargo xtask provision nats`.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use async_nats::{Client, ConnectOptions, connect};
use testkit::real::{Error, NatsCluster, NatsServer, NatsSettings};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

async fn stream_of(client: Client, replicas: usize) -> stream::Stream {
    let context = jetstream::new(client);
    let config = stream::Config {
        name: "S".to_owned(),
        subjects: vec!["s.>".to_owned()],
        num_replicas: replicas,
        ..Default::default()
    };
    context.get_or_create_stream(config).await.unwrap()
}

async fn store(client: Client, text: &'static str) {
    let context = jetstream::new(client);
    context.publish("s.one", text.into()).await.unwrap().await.unwrap();
}

async fn messages(stream: &mut stream::Stream) -> u64 {
    stream.info().await.unwrap().state.messages
}

#[tokio::test]
async fn what_is_stored_survives_a_kill_and_a_stop() {
    let mut server = NatsServer::start(NatsSettings::default()).await.unwrap();
    let url = server.url();
    stream_of(connect(&url).await.unwrap(), 1).await;
    for (text, stored) in [("before a kill", 1), ("before a stop", 2)] {
        store(connect(&url).await.unwrap(), text).await;
        if stored == 1 {
            server.kill()
        } else {
            server.stop().await.unwrap()
        }
        assert!(connect(&url).await.is_err() && server.pid().is_none());
        server.start_again().await.unwrap();
        assert_eq!(server.url(), url);
        assert_eq!(messages(&mut stream_of(connect(&url).await.unwrap(), 1).await).await, stored);
    }
    let folder = server.folder().to_owned();
    assert!(folder.join("jetstream").is_dir());
    assert!(server.log().contains("Server is ready"), "{}", server.log());
    drop(server);
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_paused_server_is_silent_until_it_goes_on() {
    let mut server = NatsServer::start(NatsSettings::default()).await.unwrap();
    let client = connect(server.url()).await.unwrap();
    server.pause().unwrap();
    let context = jetstream::new(client);
    assert!(timeout(Duration::from_millis(300), context.query_account()).await.is_err());
    server.resume();
    timeout(SOON, context.query_account()).await.unwrap().unwrap();
    server.pause().unwrap();
    server.stop().await.unwrap();
    assert!(server.pause().is_err());
}

#[tokio::test]
async fn users_permissions_and_limits_are_kept() {
    let mut settings = NatsSettings::default().with_user("all", "secret");
    settings = settings.with_limited_user("few", "secret", r#"publish: { deny: "$JS.API.STREAM.CREATE.>" }"#);
    settings.max_payload = Some(4096);
    let mut server = NatsServer::start(settings).await.unwrap();
    let as_user = async |name: &str, password: &str| {
        ConnectOptions::with_user_and_password(name.to_owned(), password.to_owned()).connect(server.url()).await
    };
    assert!(connect(server.url()).await.is_err());
    assert!(as_user("all", "wrong").await.is_err());
    let all = as_user("all", "secret").await.unwrap();
    assert_eq!(all.server_info().max_payload, 4096);
    stream_of(all, 1).await;
    let mut few = jetstream::new(as_user("few", "secret").await.unwrap());
    few.set_timeout(Duration::from_millis(300));
    few.create_stream("T").await.unwrap_err();
    few.get_stream("S").await.unwrap();
    server.kill();
    server.change(NatsSettings { further: "no_such_setting: 1".to_owned(), ..NatsSettings::default() });
    let refused = server.start_again().await.unwrap_err();
    assert!(matches!(&refused, Error::Ended { output, .. } if output.contains("no_such_setting")), "{refused}");
}

#[tokio::test]
async fn a_cluster_stores_on_without_one_of_its_servers() {
    let mut cluster = NatsCluster::start(3, NatsSettings::default()).await.unwrap();
    let addresses: Vec<async_nats::ServerAddr> = cluster.url().split(',').map(|url| url.parse().unwrap()).collect();
    let mut stream = stream_of(connect(addresses.as_slice()).await.unwrap(), 3).await;
    let leader = stream.info().await.unwrap().cluster.as_ref().unwrap().leader.clone().unwrap();
    let leader = cluster.index_of(&leader).unwrap();
    cluster.server(leader).kill();
    cluster.ready().await.unwrap();
    let client = connect(addresses.as_slice()).await.unwrap();
    timeout(SOON, stored_at_last(client)).await.unwrap();
    cluster.server(leader).start_again().await.unwrap();
    cluster.ready().await.unwrap();
}

/// The stream needs a moment to choose another leader.
async fn stored_at_last(client: Client) {
    let mut context = jetstream::new(client);
    context.set_timeout(Duration::from_millis(500));
    while context.publish("s.one", "text".into()).await.unwrap().await.is_err() {}
}
