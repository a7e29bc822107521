//! Whose an identity is, where the queue of one-host mode is in NATS.

use testkit::gitea::Status;
use testkit::queue::Names;
use testkit::world::{Plan, SOON, World, job};

use super::on_stream;

/// What `identity pins` says with these settings, and whether it went well.
async fn pins(world: &World, arguments: &[&str], settings: &[String]) -> (bool, String) {
    let mut command = tokio::process::Command::new(world.program());
    command.args(["identity", "pins"]).args(arguments).arg("--state").arg(world.state()).kill_on_drop(true);
    command.args(settings.iter().flat_map(|setting| ["--set", setting]));
    let output = tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.success(), text.concat())
}

/// NEW-122, F122, T21: with the settings of its start the pins of one-host mode are shown and confirmed where its queue is,
/// while it runs; without them nothing is made, and it is said what to give.
#[tokio::test]
async fn pins_of_one_host_mode() {
    let world = on_stream(Plan::capacity(1)).await;
    let build = || job("build", &["say here"]).repository("acme/app");
    let first = world.push_one(build().ids(4, 2));
    world.ends_as(first, Status::Success, SOON).await;
    let refused = world.push_one(build().ids(9, 2));
    world.ends_as(refused, Status::Failure, SOON).await;

    let folder = tempfile::tempdir().unwrap();
    let settings = world.broker().settings_of(&Names::alone(), world.broker().url(), folder.path()).unwrap();
    let (listed, text) = pins(&world, &["list"], &settings).await;
    assert!(listed && text.contains("repository 4 of owner 2; REFUSED to repository 9 of owner 2"), "{text}");
    let (without, text) = pins(&world, &["list"], &[]).await;
    assert!(!without && text.contains("give the settings of its start"), "{text}");
    assert!(!world.state().join("queue.db").exists());
    let (confirmed, text) = pins(&world, &["confirm", "acme/app"], &settings).await;
    assert!(confirmed && text.contains("/ci/acme/app/build  repository 9 of owner 2\n"), "{text}");
    let after = world.push_one(build().ids(9, 2));
    world.ends_as(after, Status::Success, SOON).await;
    world.finish().await;
}
