//! Cancels at every moment of a task (T12, T29, F08, F163). Gitea 1.26 ends the task at once; what is left to us is to
//! stop what runs, to close the log, and to be quiet.

use connectrpc::ErrorCode;
use futures::future::join_all;
use testkit::gitea::{CallEnd, FaultSpec, Gitea, JobId, Method, Status};
use testkit::world::{Plan, SOON, World, job};

use crate::planned;

async fn hasty(capacity: u32) -> World {
    planned(Plan::capacity(capacity).set("CANCEL_GRACE", "1s").set("TERMINAL_GRACE", "2s").set("LOOK_AHEAD", "1")).await
}

/// The log is closed with a last row, and Gitea heard of the end from nobody but itself: one call that learned of it.
async fn assert_over(world: &mut World, job: JobId) {
    world.gitea_shows("the log is closed", |gitea| gitea.state(job).archived).await;
    world.nothing_left().await;
    let late = world.gitea.state(job).updates_after_end;
    assert!(late <= 1, "{late} calls after the end");
}

/// T12a, NEW-22: cancelled while it waits for a slot: nothing is made for it, its message goes.
#[tokio::test]
async fn while_it_waits() {
    let mut world = hasty(1).await;
    // Two runs: a cancel ends all jobs of one.
    let jobs = [job("runs", &["gate here"]), job("waits", &["say never"])].map(|job| world.push_one(job));
    world.desk.arrived("here", 1, SOON).await;
    world.gitea_shows("the second is held", |gitea| gitea.held().len() == 2).await;
    world.gitea.cancel(jobs[1]);
    world.gitea_shows("the log is closed", |gitea| gitea.state(jobs[1]).archived).await;
    world.desk.open_gate("here");
    world.ends_as(jobs[0], Status::Success, SOON).await;
    assert_over(&mut world, jobs[1]).await;
    assert_eq!(world.desk.executions().len(), 1);
    world.finish().await;
}

/// T12d, NEW-23: cancelled when its executor is up and has not asked yet: the runner is sent home.
#[tokio::test]
async fn before_its_claim() {
    let mut world = hasty(1).await;
    let job = world.push_one(job("late", &["say never"]));
    world.eventually("its executor exists", SOON, |world| some(world.executors().len())).await;
    // The claim asks Gitea first; it hears nothing until the cancel is there.
    let away = FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX);
    world.gitea.fail_next(Method::UpdateTask, away);
    world.gitea_shows("a question of the claim failed", |gitea| failed_updates(gitea) > 0).await;
    world.gitea.cancel(job);
    world.gitea.clear_faults();
    assert_over(&mut world, job).await;
    assert!(world.desk.executions().is_empty());
    world.finish().await;
}

fn failed_updates(gitea: &Gitea) -> usize {
    let failed = |end: &CallEnd| matches!(end, CallEnd::Answered { status: 500, .. });
    gitea.calls().iter().filter(|call| call.method == Method::UpdateTask && failed(&call.end)).count()
}

fn some(count: usize) -> Result<(), String> {
    if count > 0 { Ok(()) } else { Err("none".to_owned()) }
}

/// T29, T81, NEW-24, F08, F160: cancelled while it runs, with a runner that obeys (and says SUCCESS), one that falls
/// silent, one that goes without a word, and one that goes on as if nothing were.
#[tokio::test]
async fn while_it_runs() {
    join_all(["obey", "mute", "leave", "ignore"].map(cancelled_while_it_runs)).await;
}

async fn cancelled_while_it_runs(manners: &str) {
    let mut world = hasty(1).await;
    let script = format!("on-cancel {manners}\nsay here\ngate never");
    let job = world.push_one(job("long", &[&script, "say second"]));
    world.desk.arrived("never", 1, SOON).await;
    world.gitea.cancel(job);
    assert_over(&mut world, job).await;
    assert_eq!(world.gitea.state(job).status, Status::Cancelled, "{manners}");
    world.finish().await;
}

/// T12: the job is run again while its cancelled attempt is still being cleaned up.
#[tokio::test]
async fn and_run_again() {
    let world = planned(Plan::capacity(2)).await;
    let job = world.push_one(job("again", &["on-cancel ignore\ngate again"]));
    world.desk.arrived("again", 1, SOON).await;
    world.gitea.cancel(job);
    world.gitea.rerun(job);
    // The first attempt stays at the gate for less than its grace.
    world.desk.arrived("again", 2, SOON).await;
    world.desk.open_gate("again");
    let state = world.ends_as(job, Status::Success, SOON).await;
    assert_eq!(state.attempts.len(), 2);
    world.finish().await;
}

/// T12, NEW-166, F163: the controller is killed within the grace of a cancelled job: the rows of its post steps still get
/// into the log, and the next controller closes it.
#[tokio::test]
async fn a_restart_within_the_grace() {
    let mut world = planned(Plan::capacity(1).set("CANCEL_GRACE", "6s").set("TERMINAL_GRACE", "8s")).await;
    let job = world.push_one(job("long", &["on-cancel ignore\nsay here\ngate post\nsay cleaned up\nhang"]));
    world.desk.arrived("post", 1, SOON).await;
    world.gitea.cancel(job);
    world.eventually("its end is marked", SOON, |world| some(marked_ends(world))).await;
    world.kill9();
    world.restart();
    world.desk.open_gate("post");
    let written = |gitea: &Gitea| gitea.state(job).rows().contains(&"cleaned up");
    world.gitea_shows("the row of the post step", written).await;
    assert_over(&mut world, job).await;
    world.finish().await;
}

fn marked_ends(world: &World) -> usize {
    let meta = |name: &String| std::fs::read_to_string(world.state().join("executors").join(name).join("meta.json"));
    world.executors().iter().filter(|name| meta(name).is_ok_and(|text| text.contains("/terminal"))).count()
}

/// T12, WRK-1, NEW-23, F07: nothing is made before Gitea was asked whether the task is still wanted: as long as it cannot
/// be asked there is no executor, and for a job that was cancelled meanwhile there never is one.
#[tokio::test]
async fn before_its_executor_is_made() {
    let mut world = hasty(1).await;
    world
        .gitea
        .fail_next(Method::UpdateTask, FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX));
    let job = world.push_one(job("unwanted", &["say never"]));
    let tried = |world: &World| some(world.log().matches(r#""event":"backend_retry""#).count());
    world.eventually("a launch has failed", SOON, tried).await;
    assert_eq!(world.executors(), [""; 0]);
    world.gitea.cancel(job);
    world.gitea.clear_faults();
    assert_over(&mut world, job).await;
    assert!(
        !world.log().contains("executor_created") && !world.log().contains(r#""event":"granted""#),
        "{}",
        world.log()
    );
    world.finish().await;
}
