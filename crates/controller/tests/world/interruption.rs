//! A job that a signal cut off is never a success, whatever its runner says.

use connectrpc::ErrorCode;
use testkit::gitea::{FaultSpec, JobId, Method, Status};
use testkit::outcome::Rule;
use testkit::real::Signal;
use testkit::world::{Allowance, Plan, SOON, World, job};

use crate::{planned, world};

async fn assert_interrupted(world: &World, job: JobId) {
    let state = world.ends_as(job, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]interrupted:")), "{:?}", state.rows());
    assert!(state.steps.iter().all(|step| step.status.is_end()), "{:?}", state.steps);
    let page = state.page();
    let shown = page.set_up.iter().chain(page.steps.iter().flatten()).chain(&page.complete);
    assert!(shown.into_iter().any(|row| row.contains("interrupted")), "not on the page: {page:?}");
}

/// T79, T57, NEW-158, F156: SIGTERM to the executor, in a first and in a last step, with a runner that reports success
/// and with one that goes without a word.
#[tokio::test]
async fn sigterm_to_the_executor() {
    let world = world(1).await;
    for (gate, steps) in [
        ("first", ["say here\ngate first", "say second"]),
        ("last", ["say first", "gate last"]),
        ("leaves", ["on-sigterm leave\ngate leaves", "say second"]),
    ] {
        let job = world.push_one(job("cut", &steps));
        world.desk.arrived(gate, 1, SOON).await;
        world.signal_only(&world.executor_processes(), Signal::Terminate);
        assert_interrupted(&world, job).await;
    }
    world.finish().await;
}

/// T57, NEW-158, NEW-61, F80: SIGTERM to the executor in the phases around its job. Before the claim nothing is lost: another
/// one takes the task. After the end that its runner told, also while nobody could hear it, that end stands.
#[tokio::test]
async fn sigterm_to_the_executor_around_its_job() {
    let mut world = world(1).await;
    let early = world.push_one(job("early", &["say here"]));
    world.eventually("its executor exists", SOON, |world| exactly(1, world.executors().len())).await;
    // The claim asks Gitea first.
    let away = FaultSpec::gitea(ErrorCode::Unavailable, "database is locked").times(u32::MAX);
    world.gitea.fail_next(Method::UpdateTask, away);
    world.eventually("its runner was started", SOON, |world| exactly(1, world.runners().len())).await;
    world.signal_only(&world.executor_processes(), Signal::Terminate);
    let replaced = |world: &World| world.log().contains("executor_lost").then_some(()).ok_or_else(|| world.log());
    world.eventually("it has gone", SOON, replaced).await;
    world.gitea.clear_faults();
    assert_succeeded(&world, early).await;

    let told = world.push_one(job("told", &["on-cancel ignore\non-sigterm leave\nsay here\ntry success\ngate never"]));
    world.ends_as(told, Status::Success, SOON).await;
    // It says so for itself, and its runner never comes to its end.
    world.allow(Allowance::Breaks(Rule::FalseSuccess));
    world.allow(Allowance::Breaks(Rule::Rows));
    world.signal_only(&world.executor_processes(), Signal::Terminate);
    world.nothing_left().await;
    assert_succeeded(&world, told).await;

    let late = world.push_one(job("late", &["say here\ngate late"]));
    world.desk.arrived("late", 1, SOON).await;
    world.kill9();
    world.desk.open_gate("late");
    world.eventually("the runner has gone", SOON, |world| exactly(0, world.runners().len())).await;
    world.signal_only(&world.executor_processes(), Signal::Terminate);
    world.restart();
    assert_succeeded(&world, late).await;
    world.finish().await;
}

async fn assert_succeeded(world: &World, job: JobId) {
    let state = world.ends_as(job, Status::Success, SOON).await;
    assert!(!state.rows().iter().any(|row| row.contains("interrupted")), "{:?}", state.rows());
    assert_eq!(world.desk.executions()[&world.task_of(job)], 1);
}

fn exactly(count: usize, found: usize) -> Result<(), String> {
    if found == count { Ok(()) } else { Err(format!("{found} instead of {count}")) }
}

/// T84, NEW-168, F156: SIGTERM that reaches the runner alone, from outside and from one of its own steps.
#[tokio::test]
async fn sigterm_to_the_runner_alone() {
    let world = world(1).await;
    let outside = world.push_one(job("outside", &["gate outside", "say second"]));
    world.desk.arrived("outside", 1, SOON).await;
    world.signal_only(&world.runners(), Signal::Terminate);
    assert_interrupted(&world, outside).await;
    for steps in [["terminate-self", "say second"], ["say first", "terminate-self"]] {
        let job = world.push_one(job("inside", &steps));
        assert_interrupted(&world, job).await;
    }
    world.finish().await;
}

/// T7, NEW-26: a runner that ends without a final report, and one that leaves a process behind.
#[tokio::test]
async fn runners_that_go_without_a_word() {
    let world = world(2).await;
    let jobs =
        world.push([job("vanishes", &["say here\nvanish", "say never"]), job("leaves", &["leave-behind\nsay here"])]);
    assert_lost(&world, jobs[0]).await;
    world.ends_as(jobs[1], Status::Success, SOON).await;
    world.finish().await;
}

/// NEW-173: an isolated job cannot end its executor; without isolation it can, and the job ends with a reason (NEW-26).
#[tokio::test]
async fn a_runner_that_kills_its_executor() {
    let steps = ["say here\nkill-executor", "say still here"];
    let isolated = world(1).await;
    let kills = isolated.push_one(job("kills", &steps));
    assert_eq!(isolated.ends_as(kills, Status::Success, SOON).await.page().steps[1], ["still here"]);
    isolated.finish().await;
    let open = planned(Plan::capacity(1).set("LOCAL_ISOLATION", "none")).await;
    let kills = open.push_one(job("kills", &steps));
    assert_lost(&open, kills).await;
    open.finish().await;
}

async fn assert_lost(world: &World, job: JobId) {
    let state = world.ends_as(job, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_")), "{:?}", state.rows());
    assert!(state.steps.iter().all(|step| step.status.is_end()), "{:?}", state.steps);
}
