//! What the server tells of the queue without being asked. Nobody looks at it otherwise while these tests last.

use super::*;

const BLIND: Pace = Pace { look: Duration::from_hours(1), ..QUICK };

async fn open_blind(server: &NatsServer, store: &str) -> JetStream {
    open_at(&server.url(), store, BLIND).await.unwrap()
}

async fn remove_consumer(api: &Api, stream: &str, backend: &str) {
    api.ask_for::<Value>(&format!("CONSUMER.DELETE.{stream}.f66f031b-{backend}")).await.unwrap();
}

async fn is_made_again(api: &Api, stream: &str, backend: &str) {
    let call = format!("CONSUMER.INFO.{stream}.f66f031b-{backend}");
    until("it is made again", async || api.ask_for::<ConsumerInfo>(&call).await.is_ok()).await;
}

/// The work beside the calls, when its only look is at its end: what was removed before it is there again. It listens before
/// it looks.
async fn tended(queue: &JetStream, api: &Api, stream: &str) -> Tended {
    remove_consumer(api, stream, "local").await;
    let tended = Tended::new(queue);
    is_made_again(api, stream, "local").await;
    tended
}

/// NEW-42, F20: a limit of deliveries that somebody gave our consumer and took away again before anybody looked: the
/// consumer is as it was, and never hands out what it had given up. The server has told of it: both come again.
#[tokio::test]
async fn what_a_consumer_has_given_up_comes_again() {
    let server = start().await;
    let (queue, api) = (open_blind(&server, "told").await, operator(&server).await);
    publish(&queue, 1..=2).await;
    let _tended = tended(&queue, &api, "S_told").await;
    let turn = queue.inner.shaping.lock().await;
    let as_it_was = consumer(&api, "S_told").await.config;
    let limit = async |deliveries: i64| {
        let mut config = as_it_was.clone();
        config["max_deliver"] = deliveries.into();
        let body = json!({ "stream_name": "S_told", "config": config });
        api.call::<Value>("CONSUMER.DURABLE.CREATE.S_told.f66f031b-pod", &body).await.unwrap();
    };
    let handed = async || api.pull("S_told", "f66f031b-pod").await.unwrap();
    limit(1).await;
    for _ in 1..=2 {
        api.give_back(&handed().await.unwrap().reply, Duration::ZERO).await;
    }
    assert!(handed().await.is_none(), "the server has not given them up");
    limit(-1).await;
    assert_eq!(consumer(&api, "S_told").await.config, as_it_was);
    assert!(handed().await.is_none(), "they come without the advisory");
    drop(turn);
    let mut again = Vec::new();
    until("both come again", async || {
        again.extend(repeat("pull", async || queue.pull(Backend::Pod, Timestamp::now()).await).await);
        again.len() == 2
    })
    .await;
    let mut numbers: Vec<i64> = again.iter().map(|delivery| delivery.id.task().get()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
}

/// NEW-42, CON-4, F20: a consumer that somebody removes is made again, and a stream that somebody removes ends the queue, as
/// soon as the server tells of it.
#[tokio::test]
async fn what_somebody_removes_is_noticed_at_once() {
    let server = start().await;
    let (queue, api) = (open_blind(&server, "removals").await, operator(&server).await);
    let mut tended = tended(&queue, &api, "S_removals").await;
    for _ in 1..=2 {
        remove_consumer(&api, "S_removals", "pod").await;
        is_made_again(&api, "S_removals", "pod").await;
    }
    api.ask_for::<Value>("STREAM.DELETE.S_removals").await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(30), &mut tended.0).await.unwrap().unwrap();
    assert!(matches!(&end, QueueError::Unusable { cause, .. } if cause.contains("S_removals is gone")), "{end}");
}
