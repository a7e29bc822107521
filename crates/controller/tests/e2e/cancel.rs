//! The cancel button at every moment of a job: the run is cancelled, nothing of the job is left, its log is closed, and
//! its slot serves the next one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use testkit::real::{Cache, Gate, Program, Run, Seen, Settings, Status, eventually, workplace};

use crate::world::{JOB, SOON, World, assert_steps_closed, settings};

/// NEW-152: from the cancel until nothing of the job is left.
const GONE: Duration = Duration::from_secs(15);

const WORKFLOW: &str = "
on: push
jobs:
  doomed:
    runs-on: LABEL
    steps:
      - run: |
          echo \"the first step\"
          GATE
      - run: echo not reached
";

/// Gitea says cancelled, and by now nothing is missing: log, steps.
async fn assert_cancelled(world: &World, run: &Run) {
    world.ends(run, GONE, "cancelled").await;
    let job = world.job(run, "doomed").await;
    let task = world.log_is_closed(&job, GONE).await;
    assert_eq!(task.status, Status::Cancelled);
    assert_steps_closed(&task);
}

/// NEW-22, NEW-166, T12: one job runs, one is held behind it by us, one waits in Gitea. The last two are cancelled: no
/// executor is made for them, and the first notices nothing.
#[tokio::test]
async fn while_it_waits_behind_a_full_slot() {
    let ahead = [("LOOK_AHEAD".to_owned(), "1".to_owned())].into();
    let world = World::of(Settings { environment: ahead, ..settings(1) }).await;
    let (first, never) = (Gate::new().await.unwrap(), Gate::new().await.unwrap());
    let workflow = |gate: &Gate| WORKFLOW.replace("GATE", &gate.wait_here());
    let runs = world.push(&[("1.yml", &workflow(&first))]).await.remove(0);
    first.arrived(1, JOB).await.unwrap();
    let held = world.push(&[("2.yml", &workflow(&never))]).await.remove(0);
    is_taken(&world, &held).await;
    let queued = world.push(&[("3.yml", &workflow(&never))]).await.remove(0);
    assert_eq!(world.job(&queued, "doomed").await.status, Status::Waiting);
    for run in [&queued, &held] {
        world.gitea.cancel(&world.repository, run.id).await.unwrap();
    }
    world.ends(&queued, GONE, "cancelled").await;
    assert_eq!(world.job(&queued, "doomed").await.task_id, 0, "a task was made of a cancelled job");
    assert_cancelled(&world, &held).await;
    assert_eq!(world.executors(), 1);
    first.open();
    world.ends(&runs, JOB, "success").await;
    world.serves_another_job().await;
    never.arrived(1, Duration::ZERO).await.unwrap_err();
}

/// NEW-22, NEW-23, T12d: the executor is up and its runner has not asked for the task yet.
#[tokio::test]
async fn between_the_fetch_and_the_claim() {
    let (start, never) = (Gate::new().await.unwrap(), Gate::new().await.unwrap());
    let dir = workplace(&std::env::temp_dir()).unwrap();
    let runner = runner_behind(&start, dir.path());
    let environment = [("GITEA_RUNNER_BINARY".to_owned(), runner)].into();
    // Behind its walls, a job sees of its runner's folder the runner alone, and not what that starts.
    let arguments = ["--isolation", "none"].map(str::to_owned).into();
    let world = World::of(Settings { environment, arguments, ..settings(1) }).await;
    let run = world.push_one(&WORKFLOW.replace("GATE", &never.wait_here())).await;
    start.arrived(1, JOB).await.unwrap();
    assert_eq!(world.executors(), 1);
    world.gitea.cancel(&world.repository, run.id).await.unwrap();
    assert_cancelled(&world, &run).await;
    world.executors_are_left(0, GONE).await;
    start.open();
    world.serves_another_job().await;
    let log = world.log(&world.job(&run, "doomed").await).await;
    assert!(!log.contains("the first step"), "{log}");
}

/// NEW-24, NEW-159, NEW-166, T29: in the middle of a step; what it had said is kept.
#[tokio::test]
async fn in_the_middle_of_a_step() {
    let world = World::new(1).await;
    let gate = Gate::new().await.unwrap();
    let run = world.push_one(&WORKFLOW.replace("GATE", &gate.wait_here())).await;
    gate.arrived(1, JOB).await.unwrap();
    world.gitea.cancel(&world.repository, run.id).await.unwrap();
    world.executors_are_left(0, GONE).await;
    assert_cancelled(&world, &run).await;
    world.serves_another_job().await;
    let log = world.log(&world.job(&run, "doomed").await).await;
    assert!(log.contains("the first step") && !log.contains("not reached"), "{log}");
}

/// Waits until a job was handed out to us.
async fn is_taken(world: &World, run: &Run) {
    let taken = eventually("the job is taken from Gitea", SOON, async || {
        let job = world.job(run, "doomed").await;
        Ok(if job.task_id == 0 { Seen::NotYet(format!("{:?}", job.status)) } else { Seen::Done(()) })
    });
    taken.await.unwrap();
}

/// The official runner, which waits at a gate before it asks for its task.
fn runner_behind(gate: &Gate, dir: &Path) -> String {
    let runner = Cache::locate().unwrap().program(Program::Runner).unwrap();
    let file = dir.join("gitea-runner");
    let daemon = format!("case \" $* \" in *\" --once \"*) {} ;; esac", gate.wait_here());
    std::fs::write(&file, format!("#!/bin/bash\n{daemon}\nexec '{}' \"$@\"\n", runner.display())).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.display().to_string()
}
