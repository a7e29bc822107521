//! Whole-system scenarios on Gitea's double: the real controller and executors, a stand-in for the official runner, so
//! that a job lasts milliseconds and every fault of the far side can be ordered. Nothing here looks inside the program.
#![expect(clippy::unwrap_used, reason = "tests")]

mod caller;
mod cancel;
mod cancelling;
mod clock;
mod facade;
mod fencing;
mod gitea_away;
mod hostile;
mod identity;
mod interruption;
mod jetstream;
mod jobs;
mod leftovers;
mod lost_answers;
mod poison;
mod proxy;
mod reasons;
mod remembered;
mod restart;
mod rotation;
mod scheduling;
mod secrets;
mod self_report;
mod telling;
mod towards_gitea;
mod unreadable;
mod verdicts;

use testkit::world::{Plan, Programs, World};

/// This test program, started again by an executor as its runner; see [`testkit::stand_in`].
#[test]
#[ignore = "a process of its own, started by the executors of the other tests"]
fn stand_in_runner() {
    testkit::stand_in::run();
}

fn programs() -> Programs {
    Programs {
        controller: env!("CARGO_BIN_EXE_gitea-dynamic-runner").into(),
        stand_in: &["--exact", "stand_in_runner", "--ignored", "--nocapture", "--test-threads", "1"],
        place: env!("CARGO_TARGET_TMPDIR").into(),
    }
}

/// A world with so many slots.
async fn world(capacity: u32) -> World {
    planned(Plan::capacity(capacity)).await
}

/// A world by a plan.
async fn planned(plan: Plan) -> World {
    World::start(&programs(), plan).await
}
