//! Gitea's clock is another than ours.

use std::time::Duration;

use testkit::gitea::Status;
use testkit::world::{Plan, SOON, World, job};

use crate::programs;

/// T35, NEW-151, F17: Gitea's clock is an hour ahead. It is measured and told with the remedy, and no verdict depends
/// on it: a job runs to its end as ever.
#[tokio::test]
async fn an_hour_of_difference_is_told_and_changes_nothing() {
    let hour = Duration::from_secs(3600);
    let world = World::start_without_waiting(&programs(), Plan::capacity(1), |gitea| gitea.advance(hour)).await;
    let told = |world: &World| match world.log().contains("s ahead of this host's: let both follow a time server") {
        true => Ok(()),
        false => Err(world.log()),
    };
    world.eventually("the difference is told", SOON, told).await;
    let job = world.push_one(job("punctual", &["say hello"]));
    world.ends_as(job, Status::Success, SOON).await;
    assert!(world.log().contains("\"skew_seconds\":3"), "{}", world.log());
    world.finish().await;
}
