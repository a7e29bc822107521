//! Tasks wait in a stream of NATS, and NATS dies, freezes, is full, lets nobody in, or holds what is not ours. What does
//! not depend on the kind of queue is shown by the other modules, on either.

mod foreign;
mod forged;
mod logins;
mod migration;
mod outages;
mod pins;
mod replicas;
mod room;
mod waiting;

use testkit::gitea::{JobId, Method};
use testkit::world::{Plan, SOON, World, job};

use crate::planned;

/// A world on a server of its own.
async fn on_stream(plan: Plan) -> World {
    planned(plan.jetstream()).await
}

/// One job that runs until gate `open`, and one that waits in the stream behind it.
async fn running_and_waiting(world: &World) -> [JobId; 2] {
    let runs = world.push_one(job("runs", &["say before\ngate open\nsay after"]));
    world.desk.arrived("open", 1, SOON).await;
    let waits = world.push_one(job("waits", &["say here"]));
    lies_in_the_stream(world, waits).await;
    [runs, waits]
}

async fn lies_in_the_stream(world: &World, job: JobId) {
    let lies = |world: &World| {
        let (task, tasks) = (world.gitea.state(job).task, world.queue().tasks()?);
        task.filter(|task| tasks.contains(task)).map(drop).ok_or_else(|| format!("task {task:?} in {tasks:?}"))
    };
    world.eventually("it lies in the stream", SOON, lies).await;
}

/// Whether `/readyz` says that the queue is away.
fn away(status: u16, body: &str) -> bool {
    status == 503 && body.contains("queue_away")
}

fn ready(status: u16, _: &str) -> bool {
    status == 200
}

fn fetches(world: &World) -> usize {
    world.gitea.calls().iter().filter(|call| call.method == Method::FetchTask).count()
}
