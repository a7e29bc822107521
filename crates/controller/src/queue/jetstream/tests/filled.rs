//! A server that has no room for anything, whoever filled it: not the stream's own limit, which `publishing` shows.

use std::sync::Arc;

use async_nats::jetstream;
use futures::{StreamExt as _, stream};

use super::*;

/// The stream of tasks has a GiB for itself; this much more is there for others.
const FOR_OTHERS: u64 = 16 << 20;
const ROOM: u64 = (1 << 30) + FOR_OTHERS;
const PIECE: usize = 1 << 20;

/// NEW-40, PRC-9, NEW-46, T38: a server whose storage others have filled takes no task and says so with what to do; what has
/// ended goes out all the same, and what failed comes again, though neither can be written down.
#[tokio::test]
async fn a_server_that_others_have_filled() {
    let settings = NatsSettings { max_file_store: Some(ROOM), ..NatsSettings::default() };
    let server = NatsServer::start(settings).await.unwrap();
    let (queue, api) = (open(&server, "filled").await, operator(&server).await);
    for number in [1, 2] {
        queue.publish(message(number, "a")).await.unwrap();
        assert_eq!(pull(&queue).await, Some(number));
    }
    fill(&server).await;
    let refusal = queue.publish(message(3, "a")).await.unwrap_err();
    let QueueError::Full { cause, remedy } = &refusal else { panic!("{refusal}") };
    assert!(cause.contains("insufficient resources") && remedy.contains("max_file_store"), "{refusal}");
    queue.settle(key(1), Disposition::Ack).await.unwrap();
    assert_eq!(lying(&api, "S_filled").await, [2]);
    let again = Disposition::Retry { at: Timestamp::now(), error: "no room for its Pod".to_owned() };
    queue.settle(key(2), again).await.unwrap();
    let delivery = repeat("it comes again", async || {
        let delivery = queue.pull(Backend::Pod, Timestamp::now()).await?;
        delivery.ok_or_else(|| QueueError::Unavailable { cause: "not yet".to_owned() })
    });
    assert_eq!(delivery.await.attempts, 1);
}

/// Until the server takes nothing more.
async fn fill(server: &NatsServer) {
    let context = Arc::new(jetstream::new(async_nats::connect(server.url()).await.unwrap()));
    let others = jetstream::stream::Config { name: "OTHERS".to_owned(), ..Default::default() };
    context.create_stream(others).await.unwrap();
    let piece = bytes::Bytes::from(vec![0; PIECE - 1024]);
    let publish = |context: Arc<jetstream::Context>, piece| async move {
        context.publish("OTHERS", piece).await.unwrap().await.map(drop)
    };
    let pieces = stream::repeat_with(|| publish(Arc::clone(&context), piece.clone())).buffered(16);
    let stored = pieces.take_while(|stored| std::future::ready(stored.is_ok())).count().await;
    assert!(stored as u64 * PIECE as u64 > FOR_OTHERS, "only {stored} pieces");
}
