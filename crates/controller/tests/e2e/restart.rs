//! A controller that ends in the middle of a job takes nothing with it: the next one adopts what runs.

use testkit::real::{Gate, Seen, Status, eventually};

use crate::world::{JOB, SOON, World, assert_once_each, assert_steps_closed};

const WORKFLOW: &str = "
on: push
jobs:
  long:
    runs-on: LABEL
    steps:
      - run: |
          for i in $(seq 20); do echo \"before $i\"; done
          GATE
          for i in $(seq 20); do echo \"after $i\"; done
      - run: for i in $(seq 3); do echo \"second step $i\"; done
";

/// A job that waits in the middle of its first step.
async fn job_in_the_middle(world: &World) -> (testkit::real::Run, Gate) {
    let gate = Gate::new().await.unwrap();
    let run = world.push_one(&WORKFLOW.replace("GATE", &gate.wait_here())).await;
    gate.arrived(1, JOB).await.unwrap();
    (run, gate)
}

/// SUCCESS, every line once and in order, both steps right.
async fn assert_nothing_was_lost(world: &World, run: &testkit::real::Run) {
    world.ends(run, JOB, "success").await;
    let job = world.job(run, "long").await;
    let lines = |word: &str, count: u32| (1..=count).map(|i| format!("{word} {i}")).collect::<Vec<_>>();
    let expected = [lines("before", 20), lines("after", 20), lines("second step", 3)].concat();
    assert_once_each(&world.log(&job).await, &expected);
    let states: Vec<Status> = world.task(&job).steps.iter().map(|step| step.status).collect();
    assert_eq!(states, [Status::Success, Status::Success]);
}

/// NEW-28, F90: `kill -9` in mid-job and a new start.
#[tokio::test]
async fn a_killed_controller_adopts_its_job() {
    let mut world = World::new(1).await;
    let (run, gate) = job_in_the_middle(&world).await;
    world.controller.kill9();
    world.controller.restart().unwrap();
    gate.open();
    assert_nothing_was_lost(&world, &run).await;
    world.serves_another_job().await;
}

/// The same after an end in order, which leaves the job alone and says success itself.
#[tokio::test]
async fn a_controller_ended_in_order_adopts_its_job() {
    let mut world = World::new(1).await;
    let (run, gate) = job_in_the_middle(&world).await;
    let status = world.controller.sigterm(SOON).await.unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(world.runner().program(), "gitea-runner", "the job lives on");
    world.controller.restart().unwrap();
    gate.open();
    assert_nothing_was_lost(&world, &run).await;
}

/// T9, NEW-112, F110: the job ends while no controller is there; its last report waits in the executor.
#[tokio::test]
async fn a_job_that_ends_while_the_controller_is_away_is_reported() {
    let mut world = World::new(1).await;
    let (run, gate) = job_in_the_middle(&world).await;
    world.controller.kill9();
    gate.open();
    let gone = eventually("the runner has ended", SOON, async || {
        let left = world.controller.processes();
        let runner = left.iter().find(|process| process.program() == "gitea-runner" && process.has_word("daemon"));
        Ok(runner.map_or(Seen::Done(()), |runner| Seen::NotYet(format!("{:?}", runner.arguments))))
    });
    gone.await.unwrap();
    world.controller.restart().unwrap();
    assert_nothing_was_lost(&world, &run).await;
}

/// T7, F62, NEW-26: `kill -9` of the executor: FAILURE within 30 s, the cause on the page, steps closed, slot free.
#[tokio::test]
async fn a_killed_executor_fails_its_job_with_a_reason() {
    let world = World::new(1).await;
    let (run, _gate) = job_in_the_middle(&world).await;
    world.executor().signal(testkit::real::Signal::Kill);
    assert_lost(&world, &run).await;
}

/// T7, F62, NEW-26: the same for the runner.
#[tokio::test]
async fn a_killed_runner_fails_its_job_with_a_reason() {
    let world = World::new(1).await;
    let (run, _gate) = job_in_the_middle(&world).await;
    world.runner().signal(testkit::real::Signal::Kill);
    assert_lost(&world, &run).await;
}

async fn assert_lost(world: &World, run: &testkit::real::Run) {
    world.ends(run, SOON, "failure").await;
    let job = world.job(run, "long").await;
    let page = world.page(run, &job).await;
    assert!(page.text().contains("executor_"), "no reason on the page: {page:?}");
    assert_steps_closed(&world.task(&job));
    world.serves_another_job().await;
}
