//! NATS dies, stays away, or freezes.

use std::time::Duration;

use testkit::gitea::{CallEnd, Gitea, JobId, Latency, Method, Status};
use testkit::world::{Plan, SOON, World, job};

use super::{away, fetches, lies_in_the_stream, on_stream, ready, running_and_waiting};

/// Longer than a lease that nobody renews.
const LONG: Duration = Duration::from_secs(25);

/// No held task is silent for longer: beats are 5 s apart.
const SILENT: Duration = Duration::from_secs(12);

/// T43, NEW-47, NEW-15, F34, F05: killed while a job runs, one waits, and a FetchTask that will bring a third is
/// under way: nobody ends, nothing is lost, and the third is written when NATS is back.
#[tokio::test]
async fn killed_for_a_moment() {
    let world = on_stream(Plan::capacity(1).set("LOOK_AHEAD", "2")).await;
    let [runs, waits] = running_and_waiting(&world).await;
    world.gitea.set_latency(Latency::fixed(Duration::from_millis(700)));
    let comes = world.push_one(job("comes", &["say here"]));
    let asking = |gitea: &Gitea| {
        gitea.calls().iter().any(|call| call.method == Method::FetchTask && call.end == CallEnd::Pending)
    };
    world.gitea_shows("a FetchTask is under way", asking).await;
    world.broker().server().await.kill();
    world.gitea.set_latency(Latency::default());
    world.gitea_shows("it brings the third", |gitea| gitea.state(comes).task.is_some()).await;
    world.operators_see("/readyz", SOON, away).await;
    is_not_taken(&world, comes).await;
    world.broker().server().await.start_again().await.unwrap();
    world.operators_see("/readyz", SOON, ready).await;
    lies_in_the_stream(&world, comes).await;
    world.desk.open_gate("open");
    world.all_succeed(&[runs, waits, comes], SOON).await;
    world.finish().await;
}

/// T43, NEW-47, NEW-15, NEW-40, NEW-131, CON-5, F34: away for longer than anything waits for an answer. `/readyz` says so, no
/// task is fetched meanwhile, those that are held stay alive, the one that runs comes to its end, and what waited
/// afterwards runs once. What fails again and again is logged once, with its backend.
#[tokio::test]
async fn away_for_long() {
    let world = on_stream(Plan::capacity(1).set("LOOK_AHEAD", "2")).await;
    let [runs, waits] = running_and_waiting(&world).await;
    world.broker().server().await.kill();
    world.operators_see("/readyz", SOON, away).await;
    let (fetched, unfetched) = (fetches(&world), world.push_one(job("unfetched", &["say here"])));
    tokio::time::sleep(LONG / 2).await;
    world.desk.open_gate("open");
    world.ends_as(runs, Status::Success, SOON).await;
    tokio::time::sleep(LONG / 2).await;
    assert_eq!((fetches(&world), world.gitea.state(unfetched).task), (fetched, None), "it was asked for a task");
    let gap = world.gitea.largest_gap(world.task_of(waits)).unwrap();
    assert!(gap < SILENT, "silent for {gap:?}");
    let (log, failed) = (world.log(), r#""backend lifecycle error","component":"lifecycle","backend":"local""#);
    assert_eq!(log.matches(failed).count(), 1, "a pass fails each second: {log}");
    world.broker().server().await.start_again().await.unwrap();
    world.operators_see("/readyz", SOON, ready).await;
    world.all_succeed(&[waits, unfetched], SOON).await;
    world.finish().await;
}

/// NEW-39, NEW-15, PUB-2, T43, F24: frozen while a task comes, so that what is sent to be stored is not answered, or later;
/// it is stored once and run once.
#[tokio::test]
async fn frozen_while_a_task_comes() {
    let world = on_stream(Plan::capacity(1).set("LOOK_AHEAD", "1")).await;
    let runs = world.push_one(job("runs", &["gate open"]));
    world.desk.arrived("open", 1, SOON).await;
    let before = stored(&world).await;
    world.broker().server().await.pause().unwrap();
    let comes = world.push_one(job("comes", &["say here"]));
    world.gitea_shows("it is fetched", |gitea| gitea.state(comes).task.is_some()).await;
    is_not_taken(&world, comes).await;
    world.broker().server().await.resume();
    lies_in_the_stream(&world, comes).await;
    world.operators_see("/readyz", SOON, ready).await;
    assert_eq!(stored(&world).await, before + 1);
    world.desk.open_gate("open");
    world.all_succeed(&[runs, comes], SOON).await;
    world.finish().await;
}

/// Waits until the controller has tried to store its task in vain.
async fn is_not_taken(world: &World, job: JobId) {
    let task = world.gitea.state(job).task.unwrap();
    let tried = |world: &World| {
        let told = world.log().contains(&format!("dispatch Gitea task {task}: the queue is unavailable"));
        if told { Ok(()) } else { Err("it was not tried".to_owned()) }
    };
    world.eventually("its task is not taken", SOON, tried).await;
}

/// How many messages were ever stored.
async fn stored(world: &World) -> u64 {
    let context = async_nats::jetstream::new(world.broker().client().await.unwrap());
    context.get_stream("CI_RUNNER").await.unwrap().cached_info().state.last_sequence
}
