//! A job that reports its own success and goes on (T20, F43, F108).

use std::time::Duration;

use testkit::gitea::Status;
use testkit::outcome::Rule;
use testkit::world::{Allowance, Plan, SOON, job};

use crate::{planned, world};

const GRACE: Duration = Duration::from_secs(4);

/// T20, T81, REG-3, NEW-100, ADM-6, NEW-126, F43, F108: final is final, the slot is not free before the grace is over,
/// and Gitea hears nothing more.
#[tokio::test]
async fn its_slot_stays_taken_until_the_grace_is_over() {
    let mut world = planned(Plan::capacity(1).set("TERMINAL_GRACE", "4s")).await;
    // Its runner never comes to its end, and writes on after the one that stands.
    world.allow(Allowance::Breaks(Rule::FalseSuccess));
    world.allow(Allowance::Breaks(Rule::Rows));
    const SLY: &str = "on-cancel ignore\nsay here\ntry success\ntry success\ntry failure\ntry state\ntry rows\n\
                       try declare\ntry fetch\nproxy GET /api/v1/version\nhang";
    let jobs = world.push([job("sly", &[SLY]), job("next", &["say here"])]);
    world.ends_as(jobs[0], Status::Success, SOON).await;
    let final_at = std::time::Instant::now();
    let sly = world.task_of(jobs[0]);
    world.desk.until("it has tried everything", SOON, |notes| notes.iter().any(|note| note.verb == "proxy")).await;
    assert_eq!(
        world.desk.told(sly, "tried"),
        [
            "success SUCCESS",
            "success SUCCESS",
            "failure CANCELLED",
            "state CANCELLED",
            "rows ok",
            "declare unauthenticated",
            "fetch unauthenticated",
        ]
    );
    assert_eq!(world.gitea.state(jobs[1]).status, Status::Waiting, "the slot is not free");
    world.gitea_shows("the second is fetched", |gitea| gitea.state(jobs[1]).task.is_some()).await;
    // The double's own change is seen at once; the controller's clock began a moment earlier.
    assert!(final_at.elapsed() >= GRACE - Duration::from_millis(500), "free after {:?}", final_at.elapsed());
    world.ends_as(jobs[1], Status::Success, SOON).await;
    let state = world.gitea.state(jobs[0]);
    assert_eq!((state.updates_after_end, state.completed_webhooks, state.archived), (0, 1, true));
    world.finish().await;
}

/// NEW-168, F108: a job that says SUCCESS for itself in the middle of a step is not believed.
#[tokio::test]
async fn a_success_in_the_middle_of_a_step() {
    let mut world = world(1).await;
    // Its runner writes on after the end that stands.
    world.allow(Allowance::Breaks(Rule::Rows));
    let job = world.push_one(job("sly", &["on-cancel leave\nsay here\ntry bare-success\nhang", "say never"]));
    let state = world.ends_as(job, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]interrupted:")), "{:?}", state.rows());
    // Its word may still be on its way to the desk.
    world.desk.until("it tried", SOON, |notes| notes.iter().any(|note| note.verb == "tried")).await;
    assert_eq!(world.desk.told(world.task_of(job), "tried"), ["bare-success CANCELLED"]);
    world.finish().await;
}
