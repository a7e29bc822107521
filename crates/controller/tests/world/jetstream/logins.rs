//! NATS knows other passwords than before.

use testkit::world::{Plan, SOON, World};

use super::{away, on_stream, ready, running_and_waiting};

/// NEW-140, NEW-47, T24, T43, F107, F34: both passwords are replaced in their files and then at the server, which cuts every
/// connection; later at the server first, so that the old ones are refused until the files follow. Work that waits and
/// work that runs comes to its end, and no password is told.
#[tokio::test]
async fn passwords_are_replaced() {
    let mut world = on_stream(Plan::capacity(1).set("LOOK_AHEAD", "1")).await;
    let [runs, waits] = running_and_waiting(&world).await;
    let first = world.broker().passwords();
    world.broker().change_passwords().await;
    world.write_passwords();
    let told = |world: &World| match world.log().matches("a secret file changed and is used from now on").count() {
        2 => Ok(()),
        n => Err(format!("{n} told\n{}", world.log())),
    };
    world.eventually("both files were read", SOON, told).await;
    again(&world).await;
    world.operators_see("/readyz", SOON, ready).await;
    world.broker().change_passwords().await;
    again(&world).await;
    world.operators_see("/readyz", SOON, |status, body| away(status, body) && body.contains("authorization")).await;
    world.write_passwords();
    world.operators_see("/readyz", SOON, ready).await;
    world.desk.open_gate("open");
    world.all_succeed(&[runs, waits], SOON).await;
    for old in [first.producer, first.worker] {
        assert!(!world.log().contains(&old));
    }
    world.nothing_left().await;
    assert!(world.sigterm(SOON).await.success());
    world.finish().await;
}

async fn again(world: &World) {
    let mut server = world.broker().server().await;
    server.kill();
    server.start_again().await.unwrap();
}
