//! Tasks that a runner began.

use domain::reason::Reason;
use testkit::gitea::{Gitea, JobId, Status};
use testkit::real::Signal;
use testkit::world::{Plan, SOON, World, job};

use super::{shows, shows_as};
use crate::cancelling::{newer, newer_world};
use crate::{planned, world};

/// A job that waits in the middle of the second of its three steps, as Gitea knows.
async fn in_the_middle(world: &World) -> JobId {
    in_the_middle_of(world, "say second\ngate never").await
}

/// The same with this second step, which says `second` and waits.
async fn in_the_middle_of(world: &World, second: &str) -> JobId {
    let job = world.push_one(job("long", &["say first", second, "say third"]));
    let stored = |gitea: &Gitea| {
        let state = gitea.state(job);
        state.rows().contains(&"second") && state.steps.get(1).is_some_and(|step| step.log_length > 0)
    };
    world.gitea_shows("its rows are stored", stored).await;
    job
}

/// NEW-29, NEW-26, F62, T7: the executor is killed.
#[tokio::test]
async fn an_executor_that_was_killed() {
    let world = world(1).await;
    let job = in_the_middle(&world).await;
    world.signal_only(&world.executor_processes(), Signal::Kill);
    shows(&world, job, Reason::ExecutorExited).await;
    world.finish().await;
}

/// NEW-29, NEW-26, T7: everything of it is killed at once, so that nobody could say how it ended.
#[tokio::test]
async fn an_executor_that_vanished() {
    let world = world(1).await;
    let job = in_the_middle(&world).await;
    world.processes().iter().for_each(|process| process.signal(Signal::Stop));
    world.processes().iter().for_each(|process| process.signal(Signal::Kill));
    shows(&world, job, Reason::ExecutorLost).await;
    world.finish().await;
}

/// NEW-29, NEW-26, T7: its folder is taken away.
#[tokio::test]
async fn an_executor_that_was_deleted() {
    let world = world(1).await;
    let job = in_the_middle(&world).await;
    let folder = world.state().join("executors").join(&world.executors()[0]);
    world.processes().iter().for_each(|process| process.signal(Signal::Stop));
    let aside = world.state().join("aside");
    std::fs::rename(folder, &aside).unwrap();
    shows(&world, job, Reason::ExecutorDeleted).await;
    world.processes().iter().for_each(|process| process.signal(Signal::Kill));
    std::fs::remove_dir_all(aside).unwrap();
    world.finish().await;
}

/// NEW-29, NEW-158, T57, T79: SIGTERM to the executor.
#[tokio::test]
async fn a_job_that_was_cut_off() {
    let world = world(1).await;
    let job = in_the_middle(&world).await;
    world.signal_only(&world.executor_processes(), Signal::Terminate);
    shows(&world, job, Reason::Interrupted).await;
    world.finish().await;
}

/// NEW-29, NEW-30, F68: a job that goes on reporting beyond its limit.
#[tokio::test]
async fn a_job_that_takes_too_long() {
    let world = planned(Plan::capacity(1).set("RUN_LIMIT", "60s")).await;
    let job = in_the_middle(&world).await;
    shows(&world, job, Reason::Deadline).await;
    world.finish().await;
}

/// NEW-29, NEW-112, F110: the facade refuses a last report, and there is no other.
#[tokio::test]
async fn a_report_that_was_refused() {
    let world = world(1).await;
    let job = in_the_middle_of(&world, "say second\ngate told\ntry another-task\nvanish").await;
    world.desk.open_gate("told");
    shows(&world, job, Reason::ResultLost).await;
    assert_eq!(world.desk.told(world.task_of(job), "tried"), ["another-task permission_denied"]);
    world.finish().await;
}

/// NEW-29, NEW-22: a user cancels what no runner has, and Gitea waits for an end.
#[tokio::test]
async fn a_task_that_was_cancelled_before_it_began() {
    let world = newer_world(newer().set("LOOK_AHEAD", "1")).await;
    let jobs = [job("runs", &["gate here"]), job("waits", &["say never"])].map(|job| world.push_one(job));
    world.desk.arrived("here", 1, SOON).await;
    world.gitea_shows("the second is held", |gitea| gitea.held().len() == 2).await;
    world.gitea.cancel(jobs[1]);
    shows_as(&world, jobs[1], Reason::Cancelled, Status::Cancelled).await;
    world.desk.open_gate("here");
    world.finish().await;
}

/// NEW-29, NEW-167: a user cancels a job whose runner does not heed it.
#[tokio::test]
async fn a_cancel_that_was_not_heeded() {
    let world = newer_world(newer().set("CANCEL_GRACE", "1s").set("TERMINAL_GRACE", "2s")).await;
    let job = in_the_middle_of(&world, "on-cancel mute\nsay second\ngate never").await;
    world.gitea.cancel(job);
    shows_as(&world, job, Reason::CancelDeadline, Status::Cancelled).await;
    world.finish().await;
}
