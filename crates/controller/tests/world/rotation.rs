//! Keys are replaced while jobs run and wait.

use testkit::gitea::Status;
use testkit::world::{SOON, World, job};

use crate::world;

const SETTING: &str = "ENVELOPE_KEY_FILE";

/// NEW-140, NEW-99, NEW-36, T24: both keys are replaced without a restart while one job runs and one waits in the queue.
/// Both end well, and so does one that comes afterwards.
#[tokio::test]
async fn keys_are_replaced_while_jobs_run_and_wait() {
    let world = world(1).await;
    let running = world.push_one(job("running", &["say before\ngate middle\nsay after"]));
    world.desk.arrived("middle", 1, SOON).await;
    for name in ["capability.key", "envelope.key"] {
        std::fs::write(world.state().join("keys").join(name), "n".repeat(40)).unwrap();
    }
    let told = |world: &World| match world.log().matches("a secret file changed and is used from now on").count() {
        2 => Ok(()),
        n => Err(format!("{n} told\n{}", world.log())),
    };
    world.eventually("both new keys are used", SOON, told).await;
    let next = world.push_one(job("next", &["say hello"]));
    world.desk.open_gate("middle");
    world.ends_as(running, Status::Success, SOON).await;
    world.ends_as(next, Status::Success, SOON).await;
    assert!(!world.log().contains(&"n".repeat(40)));
    world.finish().await;
}

/// NEW-140, T24, F107: a content that cannot be used is a metric that can wake somebody, and none any more when it is right
/// again; meanwhile the old one stays in use.
#[tokio::test]
async fn a_broken_secret_is_a_metric() {
    let world = world(1).await;
    let key = world.state().join("keys/envelope.key");
    let before = std::fs::read(&key).unwrap();
    for (content, unusable) in [(&b"short"[..], 1), (&before[..], 0)] {
        std::fs::write(&key, content).unwrap();
        let line = format!("gdr_secrets_unusable{{setting=\"{SETTING}\"}} {unusable}\n");
        world.operators_see("/metrics", SOON, |_, text| text.contains(&line)).await;
        let job = world.push_one(job("goes-on", &["say hello"]));
        world.ends_as(job, Status::Success, SOON).await;
    }
    world.finish().await;
}
