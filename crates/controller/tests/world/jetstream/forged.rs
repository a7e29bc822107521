//! Whoever may write to the stream can choose the number that a message says it has, and nothing else.

use async_nats::{HeaderMap, jetstream};
use testkit::gitea::Status;
use testkit::world::{Plan, SOON, World, job};

use super::on_stream;

/// T13, NEW-35, NEW-38, NEW-3, NEW-51, PRC-2, F23, F29: a message that came while the controller ran, and does not open, keeps no
/// task of its number out of the queue, says nothing on that task's page, and is set aside in the end with a record.
#[tokio::test]
async fn what_is_written_in_advance_stands_in_nobody_s_way() {
    let plan = Plan::capacity(2).set("LOOK_AHEAD", "1").set("QUEUE_WAIT_LIMIT", "10s").set("INSTANCE_ID", "ours");
    let world = on_stream(plan).await;
    let first = world.push_one(job("first", &["say here"]));
    world.ends_as(first, Status::Success, SOON).await;
    let before = world.task_of(first);
    forge(&world, before + 2).await;
    forge(&world, 900_001).await;
    // Both are handed out before the task of this one.
    let between = world.push_one(job("between", &["say here"]));
    world.ends_as(between, Status::Success, SOON).await;
    let taken = world.push_one(job("taken", &["say here"]));
    let state = world.ends_as(taken, Status::Success, SOON).await;
    assert_eq!(world.task_of(taken), before + 2, "the number that was written in advance");
    assert!(state.rows().into_iter().all(|row| !row.contains("a key that opens it")), "{:?}", state.rows());
    world.eventually("it is set aside", SOON, set_aside).await;
    let (_, status) = world.status().await;
    assert!(status.contains("set aside gitea-task-900001: its message did not open"), "{status}");
    world.finish().await;
}

/// A message as a stranger to the keys can write it: of this instance and number, with some digest.
async fn forge(world: &World, task: i64) {
    let context = jetstream::new(world.broker().client().await.unwrap());
    let mut headers = HeaderMap::new();
    headers.insert(async_nats::header::NATS_MESSAGE_ID, format!("ours.gitea-task-{task}.7a5a21d9db2e6fa5"));
    let stored = context.publish_with_headers("ci.runner.ours.local", headers, "sealed by nobody".into()).await;
    stored.unwrap().await.unwrap();
}

fn set_aside(world: &World) -> Result<(), String> {
    let log = world.log();
    let found = log.lines().any(|line| line.contains("message set aside") && line.contains("900001"));
    if found { Ok(()) } else { Err("not set aside".to_owned()) }
}
