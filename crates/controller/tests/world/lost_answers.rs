//! Calls that Gitea carried out and whose answers never came (NEW-102, F47, F162).

use std::time::Duration;

use testkit::gitea::{FaultSpec, Gitea, JobId, Latency, Method, Status, Sweep};
use testkit::stand_in::Temper;
use testkit::world::{Allowance, Plan, SOON, World, job};

use crate::{planned, world};

const STEPS: [&str; 2] = ["burst 150\ngate middle\nburst 150", "say second"];

async fn assert_exact(world: &World, job: JobId) {
    let state = world.ends_as(job, Status::Success, SOON).await;
    let row = |row: usize| format!("row {row}");
    let first: Vec<_> = (1..=150).map(row).chain((1..=150).map(row)).collect();
    assert_eq!(state.page().steps, [first, vec!["second".to_owned()]]);
}

/// T83, NEW-32, NEW-102, F162: the answers to the next UpdateLog and UpdateTask calls are lost, in the middle of a job
/// and to its end: the log has every row once, and there is one result.
#[tokio::test]
async fn of_rows_and_states() {
    let world = world(1).await;
    let job = world.push_one(job("lossy", &STEPS));
    world.desk.arrived("middle", 1, SOON).await;
    for method in [Method::UpdateLog, Method::UpdateTask] {
        world.gitea.fail_next(method, FaultSpec::cut().after_commit().times(3));
    }
    world.desk.open_gate("middle");
    assert_exact(&world, job).await;
    world.finish().await;
}

/// NEW-102, NEW-100: the answer to the result itself is lost; its repetition is accepted and changes nothing.
#[tokio::test]
async fn of_the_result() {
    let world = world(1).await;
    let job = world.push_one(job("lossy", &["gate end"]));
    world.desk.arrived("end", 1, SOON).await;
    // Every UpdateTask from here to the end, and one more than the runner's own loop makes at most.
    world.gitea.fail_next(Method::UpdateTask, FaultSpec::cut().after_commit().times(4));
    world.desk.open_gate("end");
    let state = world.ends_as(job, Status::Success, SOON).await;
    assert!(state.archived);
    world.finish().await;
}

/// NEW-163, NEW-166: the answer to the job's last row is lost, and the job is cancelled before its runner says it again: how
/// long the log is nobody knows any more, nobody asks, and it is closed behind the last row.
#[tokio::test]
async fn of_the_last_row_before_a_cancel() {
    let world = planned(Plan::capacity(1).set("CANCEL_GRACE", "3s").set("TERMINAL_GRACE", "4s")).await;
    let job = world.push_one(job("lossy", &["on-cancel mute\nsay here\ngate middle\nsay there\ngate never"]));
    let shows = |text: &'static str| move |gitea: &Gitea| gitea.state(job).rows().contains(&text);
    world.gitea_shows("the first row is stored", shows("here")).await;
    world.gitea.fail_next(Method::UpdateLog, FaultSpec::cut().after_commit().times(u32::MAX));
    world.desk.open_gate("middle");
    world.gitea_shows("the second row is stored", shows("there")).await;
    world.gitea.cancel(job);
    let heard = |world: &World| {
        world.log().contains(r#""event":"cancelled""#).then_some(()).ok_or_else(|| "not yet".to_owned())
    };
    world.eventually("the controller has heard of it", SOON, heard).await;
    world.gitea.clear_faults();
    world.gitea_shows("the log is closed", |gitea| gitea.state(job).archived).await;
    let state = world.gitea.state(job);
    let rows = state.rows();
    let end = ["here", "there", "The task has ended; nothing more is written to this log."];
    assert!(rows.ends_with(&end), "{rows:?}");
    assert_eq!(rows.iter().filter(|row| **row == "there").count(), 1, "{rows:?}");
    world.finish().await;
}

/// Rows whose call never reached Gitea are sent again, as are those that it refused.
#[tokio::test]
async fn of_calls_that_never_arrived() {
    let world = world(1).await;
    let job = world.push_one(job("lossy", &STEPS));
    world.desk.arrived("middle", 1, SOON).await;
    for method in [Method::UpdateLog, Method::UpdateTask] {
        world.gitea.fail_next(method, FaultSpec::cut().times(2));
        world.gitea.fail_next(method, FaultSpec::answer(502, "text/html", "<h1>bad gateway</h1>").times(2));
    }
    world.desk.open_gate("middle");
    assert_exact(&world, job).await;
    world.finish().await;
}

/// SCH-15: the answer to FetchTask is lost: Gitea has no redelivery, so that job ends by its zombie rule. It takes no
/// slot, and the next job runs.
#[tokio::test]
async fn of_the_question_for_work() {
    let mut world = world(1).await;
    world.gitea.fail_next(Method::FetchTask, FaultSpec::cut().after_commit());
    let lost = world.push_one(job("lost", &["say never"]));
    world.gitea_shows("it was handed out", |gitea| gitea.state(lost).status == Status::Running).await;
    let next = world.push_one(job("next", &["say here"]));
    world.ends_as(next, Status::Success, SOON).await;
    world.gitea.advance(Duration::from_secs(11 * 60));
    world.gitea.sweep(Sweep::Zombie);
    world.ends_as(lost, Status::Failure, SOON).await;
    assert_eq!(world.desk.executions().len(), 1);
    world.allow(Allowance::Unended(lost));
    world.finish().await;
}

/// T8, NEW-58, NEW-63, F47: the facade's answers with the task are lost three times on their way to the runner, which
/// asks again: one execution.
#[tokio::test]
async fn of_the_facade() {
    let world = planned(Plan { temper: Temper::Impatient(3), ..Plan::capacity(2) }).await;
    world.gitea.set_latency(Latency::fixed(Duration::from_millis(60)));
    let jobs = world.push([job("one", &["say here"]), job("two", &["say here"])]);
    world.all_succeed(&jobs, SOON).await;
    world.finish().await;
}

/// T8 step 2: a runner that has its task and asks for another is sent home, and its job goes on.
#[tokio::test]
async fn and_a_runner_that_asks_twice() {
    let world = world(1).await;
    let job = world.push_one(job("greedy", &["say here\nsleep 400\ntry fetch\ntry declare", "say second"]));
    let state = world.ends_as(job, Status::Success, SOON).await;
    assert_eq!(world.desk.told(state.task.unwrap(), "tried"), ["fetch unauthenticated", "declare ok"]);
    world.finish().await;
}
