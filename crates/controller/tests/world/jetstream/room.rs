//! The stream fills up.

use async_nats::jetstream::{self, stream::Stream};
use testkit::gitea::Status;
use testkit::world::{Plan, SOON, World, job};

use super::{away, fetches, on_stream, ready};

/// The room that an operator leaves.
const ROOM: i64 = 10;

async fn narrowed(world: &World) -> (jetstream::Context, Stream) {
    let context = jetstream::new(world.broker().client().await.unwrap());
    let stream = context.get_stream("CI_RUNNER").await.unwrap();
    let mut config = stream.cached_info().config.clone();
    config.max_messages = ROOM;
    context.update_stream(config).await.unwrap();
    (context, stream)
}

/// Messages of an instance that is stopped.
async fn fill(context: &jetstream::Context, messages: usize) {
    for _ in 0..messages {
        context.publish("ci.runner.stopped.local", "sealed".into()).await.unwrap().await.unwrap();
    }
}

/// T38, NEW-40, F25: at four fifths of the stream nothing is fetched any more, before anything is refused; `/readyz` says how
/// full it is. When there is room again the next task comes.
#[tokio::test]
async fn nearly_full() {
    let world = on_stream(Plan::capacity(1)).await;
    let (context, stream) = narrowed(&world).await;
    fill(&context, 8).await;
    world.operators_see("/readyz", SOON, |status, body| away(status, body) && body.contains("80 % full")).await;
    let (fetched, job) = (fetches(&world), world.push_one(job("unfetched", &["say here"])));
    // Two looks of the controller at the stream, and many at Gitea.
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    assert_eq!((fetches(&world), world.gitea.state(job).task), (fetched, None), "it was asked for a task");
    stream.purge().await.unwrap();
    world.ends_as(job, Status::Success, SOON).await;
    world.operators_see("/readyz", SOON, ready).await;
    world.finish().await;
}

/// T38, NEW-40, NEW-15, CFG-12, F25: full in the moment in which a task comes: it is held under heartbeat, its page says what
/// it waits for, nothing that lies there is dropped for it, and it is stored when there is room.
#[tokio::test]
async fn full_when_a_task_comes() {
    let world = on_stream(Plan::capacity(1)).await;
    let (context, stream) = narrowed(&world).await;
    let mut round = 0;
    let (comes, oldest) = loop {
        round += 1;
        assert!(round < 6, "the controller looked at the stream in every moment between two questions to Gitea");
        fill(&context, usize::try_from(ROOM).unwrap()).await;
        let oldest = stream.get_info().await.unwrap().state.first_sequence;
        let comes = world.push_one(job("comes", &["gate open"]));
        let is_told =
            |world: &World| world.gitea.state(comes).rows().iter().any(|row| row.contains("room in the queue"));
        let held_back = |world: &World| world.log().matches("nothing is fetched until this is over").count() == round;
        let met = |world: &World| if is_told(world) || held_back(world) { Ok(()) } else { Err("neither".to_owned()) };
        world.eventually("its page says it, or it was not fetched", SOON, met).await;
        // A look at the full stream may come between the push and the next question to Gitea.
        if !held_back(&world) || world.gitea.state(comes).task.is_some() {
            break (comes, oldest);
        }
        stream.purge().await.unwrap();
        world.desk.open_gate("open");
        world.ends_as(comes, Status::Success, SOON).await;
        world.operators_see("/readyz", SOON, ready).await;
    };
    world
        .eventually("its page says it", SOON, |world| {
            let rows = world.gitea.state(comes).rows().concat();
            if rows.contains("room in the queue") { Ok(()) } else { Err(rows) }
        })
        .await;
    world.operators_see("/readyz", SOON, away).await;
    let first = stream.get_info().await.unwrap().state.first_sequence;
    assert_eq!(first, oldest, "the oldest message was dropped");
    stream.purge().await.unwrap();
    world.desk.arrived("open", 1, SOON).await;
    world.desk.open_gate("open");
    world.ends_as(comes, Status::Success, SOON).await;
    world.finish().await;
}
