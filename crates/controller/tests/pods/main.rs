//! Whole jobs in Pods: the real controller between Gitea's double and the double of the Kubernetes API, whose node starts
//! the real executor for every Pod that runs, with a stand-in for the official runner in it.
#![expect(clippy::unwrap_used, reason = "tests")]

mod admission;
mod away;
mod broken;
mod deaths;
mod identities;
mod jobs;
mod replicas;
mod site;
mod stuck;
mod takeover;
mod trouble;
mod unserved;

use site::Site;

/// This test program, started again by an executor as its runner; see [`testkit::stand_in`].
#[test]
#[ignore = "a process of its own, started by the executors of the other tests"]
fn stand_in_runner() {
    testkit::stand_in::run();
}

/// A job for a Pod, with these scripts of stand-in words as steps.
fn job(key: &str, steps: &[&str]) -> testkit::gitea::JobSpec {
    testkit::world::job(key, steps).runs_on(["pod"])
}

/// A site with so many slots.
async fn site(capacity: u32) -> Site {
    Site::start(capacity, &[]).await
}
