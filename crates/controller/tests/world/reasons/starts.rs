//! Tasks that could run, and of which no runner ever heard.

use std::time::Duration;

use connectrpc::ErrorCode;
use domain::reason::Reason;
use testkit::gitea::{FaultSpec, Method, Status};
use testkit::outcome::Rule;
use testkit::stand_in::Temper;
use testkit::world::{Allowance, Plan, SOON, World, job};

use super::shows;
use crate::planned;

/// The queue, as somebody else opens it.
fn queue(world: &World) -> rusqlite::Connection {
    let queue = rusqlite::Connection::open(world.state().join("queue.db")).unwrap();
    queue.busy_timeout(Duration::from_secs(10)).unwrap();
    queue
}

/// NEW-29, NEW-30: no slot within the longest wait; the row of the wait stands before the reason.
#[tokio::test]
async fn no_slot() {
    let plan = Plan::capacity(1).set("LOOK_AHEAD", "1").set("QUEUE_WAIT_LIMIT", "8s");
    let world = planned(plan).await;
    let first = world.push_one(job("first", &["gate end"]));
    world.desk.arrived("end", 1, SOON).await;
    let waits = world.push_one(job("waits", &["say never"]));
    shows(&world, waits, Reason::QueueTimeout).await;
    world.desk.open_gate("end");
    world.ends_as(first, Status::Success, SOON).await;
    world.finish().await;
}

/// NEW-29, NEW-15: somebody else writes the file of the queue for as long as a task may wait.
#[tokio::test]
async fn no_queue() {
    let world = planned(Plan::capacity(1).set("QUEUE_WAIT_LIMIT", "7s").embedded()).await;
    let holder = queue(&world);
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let unkept = world.push_one(job("unkept", &["say never"]));
    shows(&world, unkept, Reason::QueueUnavailable).await;
    drop(holder);
    world.finish().await;
}

/// NEW-29, NEW-46: the last of thirty attempts to make an executor fails: a file is in the way.
#[tokio::test]
async fn no_executor() {
    const ATTEMPTS: u32 = 29;
    let mut world = planned(Plan::capacity(3).set("OWNER_LIMIT", "1").embedded()).await;
    let first = world.push_one(job("first", &["gate end"]));
    world.desk.arrived("end", 1, SOON).await;
    let waits = world.push_one(job("waits", &["say never"]));
    world.gitea_shows("it is fetched", |gitea| gitea.state(waits).task.is_some()).await;
    let kept = world.task_of(waits);
    let stored = |world: &World| -> Result<(), String> {
        let count = "SELECT count(*) FROM message WHERE id = ?1";
        let count: i64 = queue(world).query_row(count, [kept], |row| row.get(0)).map_err(|error| error.to_string())?;
        if count == 1 { Ok(()) } else { Err("not yet".to_owned()) }
    };
    world.eventually("it is in the queue", SOON, stored).await;
    world.kill9();
    queue(&world).execute("UPDATE message SET attempts = ?1 WHERE id = ?2", (ATTEMPTS, kept)).unwrap();
    let name = world.executors().remove(0);
    let name = name.replace(&format!("-{}-", world.task_of(first)), &format!("-{kept}-"));
    let in_the_way = world.state().join("executors").join(name.replace("-e1", &format!("-e{}", ATTEMPTS + 1)));
    std::fs::write(&in_the_way, "").unwrap();
    world.restart();
    world.desk.open_gate("end");
    world.ends_as(first, Status::Success, SOON).await;
    shows(&world, waits, Reason::BackendUnavailable).await;
    std::fs::remove_file(in_the_way).unwrap();
    world.finish().await;
}

/// NEW-29, NEW-61: four executors whose runners never ask for the task.
#[tokio::test]
async fn no_claim() {
    let plan = Plan { temper: Temper::Idle, ..Plan::capacity(1).set("CLAIM_LIMIT", "1s") };
    let world = planned(plan).await;
    let idle = world.push_one(job("idle", &["say never"]));
    shows(&world, idle, Reason::ClaimTimeout).await;
    world.finish().await;
}

/// NEW-29, NEW-54: the queue lost a task whose executor has not begun it, while no controller was there.
#[tokio::test]
async fn no_message() {
    let mut world = planned(Plan::capacity(1).embedded()).await;
    let lost = world.push_one(job("lost", &["say never"]));
    world.eventually("its executor exists", SOON, |world| some(world.executors().len())).await;
    // The claim asks Gitea first.
    let away = FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX);
    world.gitea.fail_next(Method::UpdateTask, away);
    world.kill9();
    queue(&world).execute("DELETE FROM message", []).unwrap();
    world.allow(Allowance::Breaks(Rule::MessageLost));
    world.restart();
    let judged =
        |world: &World| world.log().contains(r#""reason":"internal""#).then_some(()).ok_or_else(|| world.log());
    world.eventually("it is judged", SOON, judged).await;
    world.gitea.clear_faults();
    shows(&world, lost, Reason::Internal).await;
    world.finish().await;
}

fn some(count: usize) -> Result<(), String> {
    if count > 0 { Ok(()) } else { Err("none".to_owned()) }
}
