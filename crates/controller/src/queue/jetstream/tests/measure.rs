//! How long it takes.

use std::io::Write as _;
use std::time::Instant;

use super::*;

const COUNT: i64 = 2_000;

fn told(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[times.len() * percent / 100];
    let (count, max) = (times.len(), times[times.len() - 1]);
    writeln!(std::io::stdout(), "{what}, n={count}: p50 {:?} p90 {:?} p99 {:?} max {max:?}", at(50), at(90), at(99))
        .unwrap();
}

/// Measures a durable enqueue of 16 KiB beside a bare publish of the same size to a stream of the same settings, in turns,
/// and how long it takes to list 1,000 waiting tasks: `cargo test -p controller --release durable_enqueue_in_jetstream --
/// --ignored --nocapture`. The server's folder is below TMPDIR, which should be on the disk in question.
#[tokio::test]
#[ignore = "a measurement"]
async fn time_of_a_durable_enqueue_in_jetstream() {
    let server = start().await;
    let (queue, api) = (open_at(&server.url(), "times", PACE).await.unwrap(), operator(&server).await);
    let mut bare = config(&api, "S_times").await;
    bare.as_object_mut()
        .unwrap()
        .extend([("name".to_owned(), "BARE".into()), ("subjects".to_owned(), json!(["bare.>"]))]);
    api.call::<Value>("STREAM.CREATE.BARE", &bare).await.unwrap();
    let body: Vec<u8> = (0..16 * 1024_usize).map(|k| k.wrapping_mul(31).to_le_bytes()[0]).collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for n in 1..=COUNT {
        let message = Message { body: body.clone(), ..message(n, "a") };
        let start = Instant::now();
        queue.publish(message).await.unwrap();
        ours.push(start.elapsed());
        let start = Instant::now();
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", format!("{n}"));
        api.publish("bare.x", headers, body.clone().into()).await.unwrap();
        theirs.push(start.elapsed());
    }
    told("durable enqueue of 16 KiB", ours);
    told("bare publish of 16 KiB", theirs);
    for n in 1_001..=COUNT {
        queue.settle(key(n), Disposition::Ack).await.unwrap();
    }
    let lists = async || {
        let start = Instant::now();
        assert_eq!(queue.list(Backend::Pod).await.unwrap().len(), 1_000);
        start.elapsed()
    };
    told("list of 1,000 waiting tasks of 16 KiB", vec![lists().await, lists().await, lists().await]);
}
