//! A job that a signal cut off is never a success, whatever its runner says.

use testkit::real::{Gate, Signal};

use crate::world::{JOB, World, assert_steps_closed};

/// T57, NEW-158, NEW-113: SIGTERM to the executor.
#[tokio::test]
async fn sigterm_to_an_executor_is_never_a_success() {
    const WORKFLOW: &str = "
on: push
jobs:
  cut:
    runs-on: LABEL
    steps:
      - run: |
          GATE
      - run: echo the next step
";
    let world = World::new(1).await;
    let gate = Gate::new().await.unwrap();
    let run = world.push_one(&WORKFLOW.replace("GATE", &gate.wait_here())).await;
    gate.arrived(1, JOB).await.unwrap();
    world.executor().signal(Signal::Terminate);
    assert_interrupted(&world, &run).await;
}

/// NEW-168: SIGTERM that reaches the runner alone, past its executor, from one of its own steps.
#[tokio::test]
async fn sigterm_to_the_runner_alone_is_never_a_success() {
    // Only the step's own ancestors are looked at, so that no other runner of this machine is hit.
    const WORKFLOW: &str = "
on: push
jobs:
  cut:
    runs-on: LABEL
    steps:
      - run: |
          ancestor=$$
          while [ \"$ancestor\" -gt 0 ]; do
            if tr '\\0' ' ' <\"/proc/$ancestor/cmdline\" | grep -q '[g]itea-runner .*daemon'; then
              kill -TERM \"$ancestor\" && echo \"signalled\" && break
            fi
            ancestor=$(sed -E 's/.*\\) [A-Za-z] ([0-9]+) .*/\\1/' \"/proc/$ancestor/stat\")
          done
          test \"$ancestor\" -gt 0
          exec sleep 300
      - run: echo the next step
";
    let world = World::new(1).await;
    let run = world.push_one(WORKFLOW).await;
    assert_interrupted(&world, &run).await;
}

async fn assert_interrupted(world: &World, run: &testkit::real::Run) {
    world.ends(run, JOB, "failure").await;
    let job = world.job(run, "cut").await;
    let page = world.page(run, &job).await;
    assert!(page.text().contains("interrupted"), "no reason on the page: {page:?}");
    assert_steps_closed(&world.task(&job));
    world.serves_another_job().await;
}
