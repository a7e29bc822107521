//! Servers that die, freeze, and change their leader.

use super::*;

/// PUB-1, NEW-34, NEW-46, NEW-47, NEW-52, F34, T43: the server is killed and started again between any two calls.
#[tokio::test]
async fn a_server_that_dies_between_any_two_calls() {
    let mut server = start().await;
    // What is put back is forgotten by a server that dies at once, and comes when its time is over.
    let pace = Pace { ack_wait: Duration::from_secs(2), ..QUICK };
    let queue = open_at(&server.url(), "dies", pace).await.unwrap();
    let _tended = Tended::new(&queue);
    let mut die = async || {
        server.kill();
        server.start_again().await.unwrap();
    };
    for n in 1..=4 {
        repeat("publish", async || queue.publish(message(n, "a")).await).await;
        die().await;
    }
    assert_eq!(repeat("list", async || queue.list(Backend::Pod).await).await.len(), 4);
    die().await;
    let pull = async || {
        let delivery = repeat("pull", async || queue.pull(Backend::Pod, Timestamp::now()).await).await;
        delivery.map(|delivery| (delivery.id.task().get(), delivery.attempts))
    };
    assert_eq!(pull().await, Some((1, 0)));
    die().await;
    assert_eq!(pull().await, Some((2, 0)));
    die().await;
    repeat("retry", async || queue.settle(key(1), later(0)).await).await;
    die().await;
    repeat("release", async || queue.settle(key(2), Disposition::Release).await).await;
    let mut all = Vec::new();
    for _ in 0..4 {
        die().await;
        until("it comes", async || {
            let pulled = pull().await;
            all.extend(pulled);
            pulled.is_some()
        })
        .await;
    }
    all.sort_unstable();
    assert_eq!(all, [(1, 1), (2, 0), (3, 0), (4, 0)]);
    die().await;
    assert_eq!(pull().await, None);
    for n in 1..=4 {
        die().await;
        repeat("ack", async || queue.settle(key(n), Disposition::Ack).await).await;
    }
    die().await;
    assert_eq!(repeat("list", async || queue.list(Backend::Pod).await).await.len(), 0);
    let ended = repeat("publish", async || match queue.publish(message(1, "a")).await {
        Err(QueueError::Ended { .. }) => Ok(()),
        other => other.map(|published| panic!("{published:?}")),
    });
    ended.await;
}

/// NEW-47, F34, T43: while the server is away that is said at once; what failed meanwhile is not carried out later.
#[tokio::test]
async fn a_server_that_is_away() {
    let mut server = start().await;
    let pace = Pace { answer: Duration::from_millis(500), ..QUICK };
    let queue = open_at(&server.url(), "away", pace).await.unwrap();
    let tended = Tended::new(&queue);
    publish(&queue, [1]).await;
    assert_eq!(queue.trouble(), None);
    server.kill();
    until("it is said", async || queue.trouble().as_deref() == Some("NATS: not connected")).await;
    for n in 2..=4 {
        let stored = queue.inner.store(&message(n, "a"), &key(n), None).await;
        assert!(matches!(stored, Err(failure::Failure::Away)));
        let pulled = queue.pull(Backend::Pod, Timestamp::now()).await;
        assert!(matches!(pulled, Err(QueueError::Unavailable { .. })));
    }
    server.start_again().await.unwrap();
    until("it is over", async || queue.trouble().is_none()).await;
    assert!(!tended.0.is_finished());
    assert_eq!(numbers(&queue).await, [1], "a call of before went out late");
    assert_eq!((pull(&queue).await, pull(&queue).await), (Some(1), None));
    let info = consumer(&operator(&server).await, "S_away").await;
    assert_eq!((info.num_ack_pending, info.num_redelivered), (1, 0), "{info:?}");
}

/// NEW-43, NEW-47, PUB-2, F34, T43: frozen for 20 s: calls end in time, and afterwards everything is as before.
#[tokio::test]
async fn a_server_that_is_frozen() {
    let server = start().await;
    let queue = JetStream::open(settings(&server.url(), "frozen").await).await.unwrap();
    let _tended = Tended::new(&queue);
    publish(&queue, 1..=3).await;
    assert_eq!(pull(&queue).await, Some(1));
    server.pause().unwrap();
    let began = tokio::time::Instant::now();
    let published = queue.publish(message(4, "a")).await;
    assert!(matches!(published, Err(QueueError::Unavailable { .. })), "{published:?}");
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
    until("it is said", async || queue.trouble().is_some()).await;
    while began.elapsed() < Duration::from_secs(20) {
        assert!(queue.pull(Backend::Pod, Timestamp::now()).await.is_err());
    }
    server.resume();
    until("it is over", async || queue.trouble().is_none()).await;
    repeat("publish", async || queue.publish(message(4, "a")).await).await;
    assert_eq!(numbers(&queue).await, [1, 2, 3, 4]);
    repeat("ack", async || queue.settle(key(1), Disposition::Ack).await).await;
    let mut got = Vec::new();
    // What was handed out to a pull that nobody waited for any more comes again when its time is over.
    let all = async {
        while got.len() < 3 {
            got.extend(pull(&queue).await);
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(70), all).await.is_ok(), "{got:?}");
    got.sort_unstable();
    assert_eq!((got, pull(&queue).await), (vec![2, 3, 4], None));
}

/// NEW-42, NEW-47, PUB-1, F34, T43: three servers; the one that leads the stream is killed in the middle of everything.
#[tokio::test]
async fn a_cluster_loses_its_leader() {
    let mut cluster = NatsCluster::start(3, NatsSettings::default()).await.unwrap();
    let queue = open_at(&cluster.url(), "leader", PACE).await.unwrap();
    let _tended = Tended::new(&queue);
    let (mut published, mut ended) = (0, Vec::new());
    for round in 0..3 {
        for _ in 0..4 {
            published += 1;
            repeat("publish", async || queue.publish(message(published, "a")).await).await;
        }
        let pulled = repeat("pull", async || queue.pull(Backend::Pod, Timestamp::now()).await).await.unwrap();
        let config = config(&queue.inner.producer, "S_leader").await;
        assert_eq!(config["num_replicas"], 3);
        let info = queue.inner.producer.ask_for::<Value>("STREAM.INFO.S_leader").await.unwrap();
        let leader = cluster.index_of(info["cluster"]["leader"].as_str().unwrap()).unwrap();
        cluster.server(leader).kill();
        let began = tokio::time::Instant::now();
        repeat("ack", async || queue.settle(pulled.key(), Disposition::Ack).await).await;
        ended.push(pulled.id.task().get());
        published += 1;
        repeat("publish", async || queue.publish(message(published, "a")).await).await;
        assert!(began.elapsed() < Duration::from_secs(30), "round {round}: {:?}", began.elapsed());
        cluster.server(leader).start_again().await.unwrap();
        cluster.ready().await.unwrap();
    }
    let all = repeat("list", async || queue.list(Backend::Pod).await).await;
    let waiting: Vec<i64> = all.iter().map(|message| message.id.task().get()).collect();
    let expected: Vec<i64> = (1..=published).filter(|n| !ended.contains(n)).collect();
    assert_eq!(waiting, expected, "nothing lost, nothing doubled");
    let mut got = Vec::new();
    while let Some(delivery) = repeat("pull", async || queue.pull(Backend::Pod, Timestamp::now()).await).await {
        repeat("ack", async || queue.settle(delivery.key(), Disposition::Ack).await).await;
        got.push(delivery.id.task().get());
    }
    got.sort_unstable();
    assert_eq!(got, expected);
}

/// NEW-50, CFG-12, T43: stream and records that were made while too few servers of a cluster were there are stored on three
/// of them when they are; the operator's own settings and what lies there stay.
#[tokio::test]
async fn a_stream_on_one_server_is_spread() {
    let cluster = NatsCluster::start(3, NatsSettings::default()).await.unwrap();
    let open = async || repeat("open", async || open_at(&cluster.url(), "alone", PACE).await).await;
    let queue = open().await;
    let api = queue.inner.producer.clone();
    for stream in ["S_alone", "KV_S_alone_RECORDS"] {
        change(&api, stream, json!({ "num_replicas": 1, "description": "the operator's" })).await;
    }
    let mut published = 0;
    while published < 3 {
        published += 1;
        repeat("publish", async || queue.publish(message(published, "a")).await).await;
    }
    drop(queue);
    let queue = open().await;
    for stream in ["S_alone", "KV_S_alone_RECORDS"] {
        let is = config(&api, stream).await;
        assert_eq!((&is["num_replicas"], &is["description"]), (&json!(3), &json!("the operator's")), "{stream}");
    }
    let all = repeat("list", async || queue.list(Backend::Pod).await).await;
    assert_eq!(all.iter().map(|message| message.id.task().get()).collect::<Vec<_>>(), [1, 2, 3]);
}
