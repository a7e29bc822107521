//! What lies in the queue and does not open (T13, NEW-38, NEW-51, F23).

use std::time::Duration;

use domain::capability::{Key, KeyRing};
use domain::envelope::{self, Opened};
use domain::id::InstanceId;
use testkit::gitea::{JobId, Status, Sweep};
use testkit::world::{Allowance, Plan, SOON, World, job};

use crate::planned;

/// A task whose message does not open for want of its key.
struct Locked {
    world: World,
    runs: JobId,
    waits: JobId,
    /// The key that is gone.
    key: String,
}

/// One job that runs and one that waits behind it, then a new controller with another envelope key.
async fn one_waits_under_a_key_that_is_gone(wait_limit: &str) -> Locked {
    let plan = Plan::capacity(1).set("LOOK_AHEAD", "1").set("QUEUE_WAIT_LIMIT", wait_limit);
    let mut world = planned(plan).await;
    let runs = world.push_one(job("runs", &["gate open"]));
    world.desk.arrived("open", 1, SOON).await;
    let waits = world.push_one(job("waits", &["say never"]));
    world.gitea_shows("it was fetched", |gitea| gitea.state(waits).task.is_some()).await;
    world.eventually("it is in the queue", SOON, |world| dispatched(world, waits)).await;
    world.kill9();
    let file = world.state().join("keys").join("envelope.key");
    let key = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, "another-key-and-a-long-enough-one-too").unwrap();
    world.allow(Allowance::Unended(waits));
    world.restart();
    Locked { world, runs, waits, key }
}

fn dispatched(world: &World, job: JobId) -> Result<(), String> {
    let word = format!("\"task_id\":{}", world.task_of(job));
    let found = world.log().lines().any(|line| line.contains("\"dispatched\"") && line.contains(&word));
    if found { Ok(()) } else { Err("not dispatched".to_owned()) }
}

/// T13, ENV-7, NEW-38, NEW-51, PRC-2, F23: it is never run and nothing is said to Gitea in its name; after the longest
/// wait it is set aside, with a record in `status` that outlives a restart and holds nothing of what was inside. Other
/// jobs go on.
#[tokio::test]
async fn what_never_opens_is_set_aside() {
    let Locked { mut world, runs, waits, .. } = one_waits_under_a_key_that_is_gone("7s").await;
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

/// T13, T24, NEW-38, ENV-7, NEW-36, NEW-140, F23, F28: nothing proves whose the message is while its key is missing, so that nobody
/// pulls it. The operator puts the key back, without a restart, and the task runs, though no other task comes.
#[tokio::test]
async fn a_key_that_is_put_back_opens_what_waits() {
    let Locked { world, runs, waits, key } = one_waits_under_a_key_that_is_gone("1h").await;
    world.desk.open_gate("open");
    world.ends_as(runs, Status::Success, SOON).await;
    world.eventually("its message did not open", SOON, |world| says(world, "unknown_key")).await;
    std::fs::write(world.state().join("keys").join("envelope.key"), key).unwrap();
    world.ends_as(waits, Status::Success, SOON).await;
    world.finish().await;
}

fn says(world: &World, word: &str) -> Result<(), String> {
    if world.log().contains(word) { Ok(()) } else { Err(format!("no {word:?} in the log")) }
}

/// The message of a task as somebody with the envelope key could write it: another identity inside.
fn contradict(world: &World, task: i64) {
    let text = |name: &str| std::fs::read_to_string(world.state().join(name)).unwrap();
    let key = Key::new(text("keys/envelope.key").trim().as_bytes()).unwrap();
    let ring = KeyRing::new(key, None);
    let queue = rusqlite::Connection::open(world.state().join("queue.db")).unwrap();
    let body: Vec<u8> = queue.query_row("SELECT body FROM message WHERE id = ?1", [task], |row| row.get(0)).unwrap();
    let outside: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let instance: InstanceId = outside["instance"].as_str().unwrap().parse().unwrap();
    let subject = format!("ci.runner.{instance}.local");
    let Opened { mut assignment, task: payload } = envelope::open(&ring, &subject, &body, &instance).ok().unwrap();
    assignment.spiffe_id = "spiffe://example.org/ci/somebody/else/deploy".parse().unwrap();
    let body = envelope::seal(&ring, &subject, &assignment, &payload, [7; 12]).unwrap();
    queue.execute("UPDATE message SET body = ?1 WHERE id = ?2", rusqlite::params![body, task]).unwrap();
}

/// T13, ENV-7, NEW-38, F23, F29: a message whose number is proven, but whose inside contradicts itself, is kept, tried again
/// and counted; its task is ended with a reason when it has waited too long, not before, and never runs.
#[tokio::test]
async fn what_contradicts_itself_ends_with_a_reason() {
    let plan = Plan::capacity(1).set("LOOK_AHEAD", "1").set("QUEUE_WAIT_LIMIT", "8s");
    let mut world = planned(plan.embedded()).await;
    let runs = world.push_one(job("runs", &["gate open"]));
    world.desk.arrived("open", 1, SOON).await;
    let waits = world.push_one(job("waits", &["say never"]));
    world.gitea_shows("it was fetched", |gitea| gitea.state(waits).task.is_some()).await;
    world.eventually("it is in the queue", SOON, |world| dispatched(world, waits)).await;
    let begun = std::time::Instant::now();
    world.kill9();
    contradict(&world, world.task_of(waits));
    world.restart();
    world.desk.open_gate("open");
    world.ends_as(runs, Status::Success, SOON).await;
    let state = world.ends_as(waits, Status::Failure, SOON).await;
    assert!(begun.elapsed() > Duration::from_secs(5), "after {:?}", begun.elapsed());
    let row = "##[error]queue_timeout:";
    let told = state.rows().into_iter().find(|text| text.starts_with(row)).map(str::to_owned);
    assert!(told.is_some_and(|text| text.contains("does not open: contradiction")), "{:?}", state.rows());
    let metrics = world.metrics().await;
    let counted = |line: &str| line.contains("contradiction") && !line.ends_with(" 0");
    assert!(metrics.lines().any(counted), "{metrics}");
    assert!(world.desk.told(world.task_of(waits), "task").is_empty());
    world.finish().await;
}
