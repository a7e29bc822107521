//! What happens around a job while it runs: its repository goes, its run is to be deleted, our registration is switched
//! off or deleted, Gitea restarts.

use std::path::Path;
use std::time::Duration;

use testkit::real::{Error, Gate, GiteaServer, Runner, Seen, Status, eventually};

use crate::world::{JOB, SOON, World, assert_once_each, settings};

/// A job that says its lines around a gate.
const WORKFLOW: &str = "
on: push
jobs:
  amid:
    runs-on: LABEL
    steps:
      - run: |
          GATE
";

async fn job_at(gate: &Gate, world: &World) -> testkit::real::Run {
    let run = world.push(&[("amid.yml", &WORKFLOW.replace("GATE", &gate.wait_here()))]).await.remove(0);
    gate.arrived(1, JOB).await.unwrap();
    run
}

async fn registration(world: &mut World) -> Runner {
    world.controller.online(&world.gitea, &world.label, SOON).await.unwrap()
}

/// NEW-26, NEW-159: the repository of a running job is deleted: the executor goes, and the slot serves another
/// repository.
#[tokio::test]
async fn a_deleted_repository_takes_its_job_with_it() {
    let mut world = World::new(1).await;
    let gate = Gate::new().await.unwrap();
    job_at(&gate, &world).await;
    let other = format!("{}-other", world.repository);
    world.gitea.create_repository(&other).await.unwrap();
    let doomed = std::mem::replace(&mut world.repository, other);
    world.gitea.delete_repository(&doomed).await.unwrap();
    world.executors_are_left(0, SOON).await;
    world.serves_another_job().await;
}

/// Gitea deletes no run that has not ended, and the attempt disturbs nobody; one that has ended goes, and nobody misses
/// it.
#[tokio::test]
async fn a_run_is_deleted_once_it_has_ended() {
    let world = World::new(1).await;
    let gate = Gate::new().await.unwrap();
    let run = job_at(&gate, &world).await;
    let refused = world.gitea.delete_run(&world.repository, run.id).await.unwrap_err();
    assert!(matches!(refused, Error::Status { status: 400, .. }), "{refused}");
    gate.open();
    world.ends(&run, JOB, "success").await;
    world.gitea.delete_run(&world.repository, run.id).await.unwrap();
    world.serves_another_job().await;
}

/// NEW-12, F11: a runner that an administrator switched off gets no task, although it asks; its job ends well, and once
/// it is switched on again the next one runs.
#[tokio::test]
async fn a_runner_is_switched_off_and_on_again() {
    let mut world = World::new(2).await;
    let gate = Gate::new().await.unwrap();
    let running = job_at(&gate, &world).await;
    let id = registration(&mut world).await.id;
    world.gitea.disable_runner(id).await.unwrap();
    let waiting = world.push_one(&WORKFLOW.replace("GATE", "true")).await;
    // The first of these may have been under way before the push.
    let enough = fetches(&world).await + 2;
    let asked = eventually("Gitea is asked again", SOON, async || {
        let so_far = fetches(&world).await;
        Ok(if so_far >= enough { Seen::Done(()) } else { Seen::NotYet(format!("{so_far} of {enough} times")) })
    });
    asked.await.unwrap();
    assert_eq!(world.job(&waiting, "amid").await.status, Status::Waiting);
    gate.open();
    world.ends(&running, JOB, "success").await;
    world.gitea.enable_runner(id).await.unwrap();
    world.ends(&waiting, JOB, "success").await;
}

/// How often Gitea answered a FetchTask so far.
async fn fetches(world: &World) -> u64 {
    let metrics = world.controller.ask("/metrics").await.unwrap();
    let count = metrics.lines().find_map(|line| line.strip_prefix("gdr_fetch_duration_seconds_count "));
    count.unwrap_or("0").parse().unwrap()
}

/// NEW-12, F11, T32: the registration is deleted in Gitea: not ready with the reason, the log names the remedy, the job
/// is not touched; with the remedy the program serves jobs again.
#[tokio::test]
async fn a_deleted_registration_is_told_and_replaced() {
    let mut world = World::new(2).await;
    let gate = Gate::new().await.unwrap();
    job_at(&gate, &world).await;
    let id = registration(&mut world).await.id;
    world.gitea.delete_runner(id).await.unwrap();
    // A call that was under way at that moment may fail in another way first.
    let unready = eventually("not ready, with the reason", SOON, async || {
        Ok(match world.controller.ask("/readyz").await {
            Err(Error::Status { status: 503, body, .. }) if body.contains("unauthenticated") => Seen::Done(body),
            other => Seen::NotYet(format!("{other:?}")),
        })
    });
    let unready = unready.await.unwrap();
    assert!(unready.contains("no_good_fetch"), "{unready}");
    let log = world.controller.log();
    assert!(log.contains("delete registration.json in its state folder"), "{log}");
    assert_eq!(world.executors(), 1);
    assert_eq!(world.runner().program(), "gitea-runner", "the job goes on");

    world.controller.sigterm(SOON).await.unwrap();
    std::fs::remove_file(world.controller.state().join("registration.json")).unwrap();
    world.controller.restart().unwrap();
    let again = registration(&mut world).await;
    assert_ne!(again.id, id);
    world.serves_another_job().await;
    let log = world.controller.log();
    assert!(
        log.contains("an earlier registration") && log.contains("it is removed when its job is over, at "),
        "{log}"
    );
}

/// NEW-13, NEW-28, NEW-161, F03, F159, T3: a job without `runs-on` is served by the default backend. Gitea ends in
/// order and is killed while it runs, and comes back each time: SUCCESS, every line once. A server of its own: every
/// runner of a shared one would take such a job.
#[tokio::test]
async fn gitea_restarts_twice_around_a_job_without_a_label() {
    const UNLABELLED: &str = "
on: push
jobs:
  amid:
    steps:
      - run: |
          echo \"before $((1))\"
          FIRST
          echo \"between $((2))\"
          SECOND
          echo \"after $((3))\"
      - run: echo \"as $CI_RUNNER_BACKEND\"
";
    let mut server = GiteaServer::start_until_exit(Path::new(env!("CARGO_TARGET_TMPDIR")), &[]).await.unwrap();
    let world = World::on(server.client(), settings(1)).await;
    let (first, second) = (Gate::new().await.unwrap(), Gate::new().await.unwrap());
    let workflow = UNLABELLED.replace("FIRST", &first.wait_here()).replace("SECOND", &second.wait_here());
    let run = world.push_one(&workflow).await;
    first.arrived(1, JOB).await.unwrap();
    server.stop().await.unwrap();
    first.open();
    second.arrived(1, SOON).await.unwrap();
    server.start_again().await.unwrap();
    row_arrives(&world, &run, "between 2").await;
    server.kill();
    server.start_again().await.unwrap();
    second.open();
    world.ends(&run, JOB, "success").await;
    let job = world.job(&run, "amid").await;
    let lines = ["before 1", "between 2", "after 3", "as local"].map(str::to_owned);
    assert_once_each(&world.log(&job).await, &lines);
    let states: Vec<Status> = world.task(&job).steps.iter().map(|step| step.status).collect();
    assert_eq!(states, [Status::Success, Status::Success]);
    world.serves_another_job().await;
}

/// Waits until Gitea has a row of the only job.
async fn row_arrives(world: &World, run: &testkit::real::Run, row: &str) {
    let arrived = eventually(row, Duration::from_secs(60), async || {
        let log = world.log(&world.job(run, "amid").await).await;
        Ok(if log.contains(row) { Seen::Done(()) } else { Seen::NotYet(log) })
    });
    arrived.await.unwrap();
}
