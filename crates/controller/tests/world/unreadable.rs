//! What lies in the queue and does not open (T13, NEW-38, NEW-51, F23).

use std::time::Duration;

use testkit::gitea::{JobId, Status, Sweep};
use testkit::world::{Allowance, Plan, SOON, World, job};

use crate::planned;

/// One job that runs and one that waits behind it, then a new controller with another envelope key.
async fn one_waits_under_a_key_that_is_gone(wait_limit: &str) -> (World, JobId, JobId) {
    let plan = Plan::capacity(1).set("LOOK_AHEAD", "1").set("QUEUE_WAIT_LIMIT", wait_limit);
    let mut world = planned(plan).await;
    let runs = world.push_one(job("runs", &["gate open"]));
    world.desk.arrived("open", 1, SOON).await;
    let waits = world.push_one(job("waits", &["say never"]));
    world.gitea_shows("it was fetched", |gitea| gitea.state(waits).task.is_some()).await;
    world.eventually("it is in the queue", SOON, |world| dispatched(world, waits)).await;
    world.kill9();
    std::fs::write(world.state().join("keys").join("envelope.key"), "another-key-and-a-long-enough-one-too").unwrap();
    world.allow(Allowance::Unended(waits));
    world.restart();
    (world, runs, waits)
}

fn dispatched(world: &World, job: JobId) -> Result<(), String> {
    let word = format!("\"task_id\":{}", world.task_of(job));
    let found = world.log().lines().any(|line| line.contains("\"dispatched\"") && line.contains(&word));
    if found { Ok(()) } else { Err("not dispatched".to_owned()) }
}

/// T13, ENV-7, NEW-38, NEW-51, F23: it is never run and nothing is said to Gitea in its name; after the longest wait it
/// is set aside, with a record in `status` that outlives a restart and holds nothing of what was inside. Other jobs go
/// on.
#[tokio::test]
async fn what_never_opens_is_set_aside() {
    let (mut world, runs, waits) = one_waits_under_a_key_that_is_gone("7s").await;
    world.desk.open_gate("open");
    world.ends_as(runs, Status::Success, SOON).await;
    world.gitea.advance(Duration::from_secs(11 * 60));
    world.gitea.sweep(Sweep::Zombie);
    world.eventually("its message was set aside", SOON, |world| says(world, "message set aside")).await;
    for _ in 0..2 {
        let (_, status) = world.status().await;
        let line = format!("set aside gitea-task-{}: its message did not open: unknown_key", world.task_of(waits));
        assert!(status.contains(&line), "{status}");
        let declares = world.gitea.counters().declares;
        world.sigterm(SOON).await;
        world.restart();
        world.gitea_shows("it has declared itself again", |gitea| gitea.counters().declares > declares).await;
    }
    let next = world.push_one(job("next", &["say here"]));
    world.ends_as(next, Status::Success, SOON).await;
    assert!(world.desk.told(world.task_of(waits), "task").is_empty());
    world.finish().await;
}

fn says(world: &World, word: &str) -> Result<(), String> {
    if world.log().contains(word) { Ok(()) } else { Err(format!("no {word:?} in the log")) }
}
