//! Others use the same server: as they should, and as they should not.

use async_nats::jetstream;
use testkit::gitea::Status;
use testkit::queue::{Broker, Names};
use testkit::real::NatsSettings;
use testkit::world::{Plan, SOON, job};

use super::{away, lies_in_the_stream, on_stream, ready, running_and_waiting};
use crate::planned;

/// NEW-41, PRC-2, T13, F27: a message on our subject that we did not write stops the taking of messages: nothing is started,
/// `/readyz` names it and what to do, and when it was removed the work that waits is done. A start refuses it as well.
#[tokio::test]
async fn a_message_of_somebody_else_stops_everything() {
    let mut world = on_stream(Plan::capacity(1).set("LOOK_AHEAD", "1").set("INSTANCE_ID", "ours")).await;
    let runs = world.push_one(job("runs", &["gate open"]));
    world.desk.arrived("open", 1, SOON).await;
    let context = jetstream::new(world.broker().client().await.unwrap());
    let write =
        async || context.publish("ci.runner.ours.local", "who wrote this?".into()).await.unwrap().await.unwrap();
    let place = write().await.sequence;
    let waits = world.push_one(job("waits", &["say here"]));
    world.desk.open_gate("open");
    world.ends_as(runs, Status::Success, SOON).await;
    let remedy = format!("nats stream rmm CI_RUNNER {place}");
    world.operators_see("/readyz", SOON, |status, body| away(status, body) && body.contains(&remedy)).await;
    assert!(world.executors().is_empty() && world.desk.told(world.task_of(waits), "task").is_empty());
    let stream = context.get_stream("CI_RUNNER").await.unwrap();
    stream.delete_message(place).await.unwrap();
    world.ends_as(waits, Status::Success, SOON).await;
    world.operators_see("/readyz", SOON, ready).await;
    let place = write().await.sequence;
    assert!(world.sigterm(SOON).await.success());
    world.restart();
    assert_eq!(world.ended(SOON).await.code(), Some(1));
    assert!(world.log().contains(&format!("nats stream rmm CI_RUNNER {place}")), "{}", world.log());
    stream.delete_message(place).await.unwrap();
    world.restart();
    world.finish().await;
}

/// T15, NEW-1, PUB-1, CON-1, F153: two instances on one stream, with tasks of the same numbers. Neither sees the other's
/// messages, and one that is killed finds its own where it left them, whatever the other did meanwhile.
#[tokio::test]
async fn two_instances_share_a_stream() {
    let broker = Broker::start(NatsSettings::default()).await.unwrap();
    let world = async |instance: &str| {
        let names = Names { instance: Some(instance.to_owned()), ..Names::alone() };
        planned(Plan::capacity(1).set("LOOK_AHEAD", "1").on(&broker, names)).await
    };
    let (mut one, other) = (world("one").await, world("other").await);
    let (ours, theirs) = (running_and_waiting(&one).await, running_and_waiting(&other).await);
    assert_eq!(ours.map(|job| one.task_of(job)), theirs.map(|job| other.task_of(job)), "the numbers are the same");
    one.kill9();
    other.desk.open_gate("open");
    other.all_succeed(&theirs, SOON).await;
    other.nothing_left().await;
    lies_in_the_stream(&one, ours[1]).await;
    one.restart();
    // A start on a busy machine takes long, and is not what is waited for below.
    one.operators_see("/readyz", SOON, ready).await;
    one.desk.open_gate("open");
    one.all_succeed(&ours, SOON).await;

    other.finish().await;
    one.finish().await;
}
