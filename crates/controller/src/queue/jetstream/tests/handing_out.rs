//! Out of the stream: to one hand at a time.

use super::*;

/// CON-3, NEW-34, NEW-157, F20, F22, T4: with two slots the server never has more than two out, and waiting costs nothing.
#[tokio::test]
async fn only_what_has_a_slot_is_out() {
    let server = start().await;
    let (queue, api) = (open(&server, "slots").await, operator(&server).await);
    publish(&queue, 1..=50).await;
    let mut hands: std::collections::VecDeque<i64> =
        [pull(&queue).await, pull(&queue).await].into_iter().flatten().collect();
    let mut order = Vec::new();
    while let Some(done) = hands.pop_front() {
        let info = consumer(&api, "S_slots").await;
        assert!(info.num_ack_pending <= 2 && info.num_redelivered == 0, "{info:?}");
        assert_eq!(info.num_ack_pending + info.num_pending, u64::try_from(numbers(&queue).await.len()).unwrap());
        queue.settle(key(done), Disposition::Ack).await.unwrap();
        order.push(done);
        hands.extend(pull(&queue).await);
    }
    assert_eq!(order, (1..=50).collect::<Vec<_>>());
}

/// CON-1, NEW-46, F22: two hundred that wait for their next try stand in nobody's way.
#[tokio::test]
async fn delayed_messages_hide_none() {
    let server = start().await;
    let queue = open(&server, "delayed").await;
    publish(&queue, 1..=200).await;
    for n in 1..=200 {
        assert_eq!(pull(&queue).await, Some(n));
        queue.settle(key(n), later(600)).await.unwrap();
    }
    publish(&queue, [201]).await;
    assert_eq!(pull(&queue).await, Some(201));
    assert_eq!(pull(&queue).await, None);
}

/// CON-1, F22: why the window is not 2 × capacity + 16. What waits for its next try counts as outstanding at the server, and
/// with a window of 20 twenty such messages keep every other one from being handed out.
#[tokio::test]
async fn a_narrow_window_is_filled_by_delayed_messages() {
    let server = start().await;
    let (queue, api) = (open(&server, "window").await, operator(&server).await);
    let mut config = consumer(&api, "S_window").await.config;
    config["max_ack_pending"] = 20.into();
    let body = json!({ "stream_name": "S_window", "config": config });
    api.call::<Value>("CONSUMER.DURABLE.CREATE.S_window.f66f031b-pod", &body).await.unwrap();
    publish(&queue, 1..=20).await;
    for n in 1..=20 {
        assert_eq!(pull(&queue).await, Some(n));
        queue.settle(key(n), later(600)).await.unwrap();
    }
    publish(&queue, [21]).await;
    assert_eq!(pull(&queue).await, None, "hidden");
    assert_eq!(consumer(&api, "S_window").await.num_ack_pending, 20);
    let _tended = Tended::new(&queue);
    until("the window is set right and it comes", async || pull(&queue).await == Some(21)).await;
}

/// NEW-43, F30, T41: a lease that outlives the server's patience is kept by signs of progress.
#[tokio::test]
async fn signs_of_progress_keep_a_lease() {
    let server = start().await;
    let pace = Pace { ack_wait: Duration::from_secs(1), ..QUICK };
    let queue = open_at(&server.url(), "signs", pace).await.unwrap();
    let api = operator(&server).await;
    let _tended = Tended::new(&queue);
    publish(&queue, [1]).await;
    assert_eq!(pull(&queue).await, Some(1));
    let began = tokio::time::Instant::now();
    while began.elapsed() < 4 * pace.ack_wait {
        assert_eq!(pull(&queue).await, None);
    }
    let info = consumer(&api, "S_signs").await;
    assert_eq!((info.num_redelivered, info.num_ack_pending), (0, 1), "{info:?}");
}

/// NEW-43, F30, F32, T11, T41: without them the message comes again, and joins; its acknowledgement is that of the newest.
#[tokio::test]
async fn a_redelivery_joins_the_lease() {
    let server = start().await;
    let pace = Pace { ack_wait: Duration::from_millis(300), ..QUICK };
    let queue = open_at(&server.url(), "joins", pace).await.unwrap();
    let api = operator(&server).await;
    publish(&queue, [1]).await;
    assert_eq!(pull(&queue).await, Some(1));
    until("it came again", async || {
        assert_eq!(pull(&queue).await, None, "started twice");
        consumer(&api, "S_joins").await.num_redelivered > 0
    })
    .await;
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    assert_eq!((stored(&api, "S_joins").await, pull(&queue).await), (0, None));
}

/// CON-4, NEW-52: somebody removes the consumer; it is made again, nothing is lost and nothing is started twice.
#[tokio::test]
async fn a_removed_consumer_is_made_again() {
    let server = start().await;
    let (queue, api) = (open(&server, "removed").await, operator(&server).await);
    publish(&queue, 1..=3).await;
    assert_eq!(pull(&queue).await, Some(1));
    let remove = async || api.ask_for::<Value>("CONSUMER.DELETE.S_removed.f66f031b-pod").await.unwrap();
    remove().await;
    assert_eq!((pull(&queue).await, pull(&queue).await, pull(&queue).await), (Some(2), Some(3), None));
    remove().await;
    let _tended = Tended::new(&queue);
    until("it is made again without a pull", async || {
        api.ask_for::<ConsumerInfo>("CONSUMER.INFO.S_removed.f66f031b-pod").await.is_ok()
    })
    .await;
    for n in 1..=3 {
        queue.settle(key(n), Disposition::Ack).await.unwrap();
    }
    assert_eq!(stored(&api, "S_removed").await, 0);
}

/// NEW-42, NEW-52, F20: a consumer that somebody gave a limit of deliveries is set right, and what the server had given up
/// is handed out again.
#[tokio::test]
async fn a_changed_consumer_is_set_right() {
    let server = start().await;
    let (queue, api) = (open(&server, "changed").await, operator(&server).await);
    publish(&queue, 1..=2).await;
    let mut config = consumer(&api, "S_changed").await.config;
    config["max_deliver"] = 1.into();
    let body = json!({ "stream_name": "S_changed", "config": config });
    api.call::<Value>("CONSUMER.DURABLE.CREATE.S_changed.f66f031b-pod", &body).await.unwrap();
    for n in 1..=2 {
        assert_eq!(pull(&queue).await, Some(n));
        queue.settle(key(n), Disposition::Release).await.unwrap();
    }
    assert_eq!(pull(&queue).await, None, "the server has given it up");
    let _tended = Tended::new(&queue);
    let mut again = Vec::new();
    until("both come again", async || {
        again.extend(pull(&queue).await);
        again.len() == 2
    })
    .await;
    again.sort_unstable();
    assert_eq!(again, [1, 2]);
    assert_eq!(consumer(&api, "S_changed").await.config["max_deliver"], -1);
}

/// CON-1, NEW-42, F20: a consumer that somebody paused, or has hand out headers only, is made anew, at a start and between two
/// looks: until then it hands out nothing that can be used.
#[tokio::test]
async fn a_useless_consumer_is_made_anew() {
    let server = start().await;
    let api = operator(&server).await;
    let mut queue = open(&server, "useless").await;
    let mut handed = 0;
    for start_anew in [true, false] {
        for change in [json!({ "pause_until": "2100-01-01T00:00:00Z" }), json!({ "headers_only": true })] {
            let mut config = consumer(&api, "S_useless").await.config;
            config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            api.ask_for::<Value>("CONSUMER.DELETE.S_useless.f66f031b-pod").await.unwrap();
            let body = json!({ "stream_name": "S_useless", "config": config });
            api.call::<Value>("CONSUMER.DURABLE.CREATE.S_useless.f66f031b-pod", &body).await.unwrap();
            handed += 1;
            publish(&queue, [handed]).await;
            let tended = if start_anew {
                queue = open(&server, "useless").await;
                None
            } else {
                Some(Tended::new(&queue))
            };
            // Between its removal and its making there is none.
            until("it is as it was", async || {
                let found = api.ask_for::<ConsumerInfo>("CONSUMER.INFO.S_useless.f66f031b-pod").await;
                found.is_ok_and(|is| ["pause_until", "headers_only"].iter().all(|name| is.config.get(name).is_none()))
            })
            .await;
            let delivery = repeat("pull", async || queue.pull(Backend::Pod, Timestamp::now()).await).await.unwrap();
            assert_eq!((delivery.id, delivery.body.is_empty()), (message(handed, "a").id, false));
            queue.settle(delivery.key(), Disposition::Ack).await.unwrap();
            drop(tended);
        }
    }
}

/// NEW-41, PRC-2, F27, T13: what somebody else wrote on our subject stops everything behind it, in words, and stays.
#[tokio::test]
async fn a_foreign_message_stops_the_queue() {
    let server = start().await;
    let (queue, api) = (open(&server, "foreign").await, operator(&server).await);
    publish(&queue, [1]).await;
    let webhook = br#"{"action":"queued"}"#.as_slice().into();
    api.publish("ci.foreign.f66f031b.pod", async_nats::HeaderMap::new(), webhook).await.unwrap();
    publish(&queue, [2]).await;
    assert_eq!(pull(&queue).await, Some(1));
    let pulled = async || queue.pull(Backend::Pod, Timestamp::now()).await.err();
    let listed = async || queue.list(Backend::Pod).await.err();
    for refusal in [pulled().await, pulled().await, listed().await] {
        let text = refusal.unwrap().to_string();
        assert!(text.contains("message 2 of stream S_foreign on ci.foreign.f66f031b.pod"), "{text}");
        assert!(text.contains("nats stream rmm S_foreign 2"), "{text}");
    }
    assert!(open_at(&server.url(), "foreign", QUICK).await.is_err(), "nor does a new process begin");
    api.delete("S_foreign", 2).await.unwrap();
    let queue = open(&server, "foreign").await;
    assert_eq!((pull(&queue).await, pull(&queue).await), (Some(1), Some(2)));
}
