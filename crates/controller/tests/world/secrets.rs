//! Where secrets must not be (I5). Every world is searched at its end; here one is searched in the middle of everything.

use testkit::gitea::{FaultSpec, Method, Status};
use testkit::world::{Plan, SOON, job};

use crate::caller::Caller;
use crate::planned;

/// T40, WRK-6, EXE-8, SCH-13, F28, F69: while a job runs, one waits and one was refused, and Gitea quotes our token in
/// an error: no secret of a task, no token, key or capability is in the log, in the metrics, in `status`, in the queue
/// or in the folder of an executor.
#[tokio::test]
async fn nothing_is_exposed() {
    let world = planned(Plan::capacity(1).set("LOOK_AHEAD", "1").set("LOG_LEVEL", "trace")).await;
    let runs = world.push_one(job("runs", &["say here\ngate open"]));
    world.desk.arrived("open", 1, SOON).await;
    let caller = Caller::of(&world, world.task_of(runs)).await;
    let capability = caller.credentials.trim().rsplit(' ').next().unwrap().to_owned();
    let mut secrets = world.secrets();
    let token = secrets.iter().find(|(what, _)| what.contains("of the registration")).unwrap().1.clone();
    for method in [Method::FetchTask, Method::UpdateTask, Method::UpdateLog] {
        world.gitea.fail_next(
            method,
            FaultSpec::answer(500, "application/json", format!("{{\"code\":\"unknown\",\"message\":\"{token}\"}}")),
        );
    }
    let waits = world.push_one(job("waits", &["say here"]));
    let refused = world.push_one(job("a.b", &["say never"]));
    world.gitea_shows("it is held", |gitea| gitea.state(waits).task.is_some()).await;
    secrets.extend(world.secrets());
    secrets.push(("a capability", capability));
    assert!(secrets.len() > 8, "{}", secrets.len());
    assert_eq!(world.exposed(&secrets), [""; 0]);
    let (_, status) = world.status().await;
    let said = status + &world.metrics().await;
    for (what, secret) in &secrets {
        assert!(!said.contains(secret.as_str()), "{what} is in {said}");
    }
    world.desk.open_gate("open");
    world.all_succeed(&[runs, waits], SOON).await;
    world.ends_as(refused, Status::Failure, SOON).await;
    assert_eq!(world.exposed(&secrets), [""; 0]);
    world.finish().await;
}
