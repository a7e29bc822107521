//! Workflows as people write them: conditions, permitted failures, files that steps write for later ones, long logs,
//! many steps, time-outs, groups, a second try.

use testkit::real::{CLONE_OWN_REPOSITORY, Gate, Run, Status, insert};

use crate::world::{JOB, SOON, World, assert_once_each};

async fn states(world: &World, run: &Run, job: &str) -> Vec<Status> {
    let job = world.job(run, job).await;
    world.task(&job).steps.iter().map(|step| step.status).collect()
}

/// NEW-168: a step that may fail contradicts no success, and one that runs in spite of a failure heals none.
#[tokio::test]
async fn conditions_and_permitted_failures() {
    const WORKFLOW: &str = "
on: push
jobs:
  tolerant:
    runs-on: LABEL
    steps:
      - continue-on-error: true
        run: exit 1
      - run: echo went on
  failing:
    runs-on: LABEL
    steps:
      - run: exit 1
      - run: echo not reached
      - if: failure()
        run: echo told somebody
      - if: always()
        run: echo cleaned up
  skipped:
    needs: failing
    runs-on: LABEL
    steps:
      - run: echo not reached
  last:
    needs: [tolerant, failing]
    if: always()
    runs-on: LABEL
    steps:
      - run: test \"${{ needs.failing.result }} ${{ needs.tolerant.result }}\" = 'failure success'
";
    let world = World::new(2).await;
    let run = world.push_one(WORKFLOW).await;
    world.job_ends(&run, "last", JOB, Status::Success).await;
    world.job_ends(&run, "tolerant", JOB, Status::Success).await;
    world.job_ends(&run, "skipped", JOB, Status::Skipped).await;
    let (failure, skipped, success) = (Status::Failure, Status::Skipped, Status::Success);
    assert_eq!(states(&world, &run, "failing").await, [failure, skipped, success, success]);
    let log = world.log(&world.job(&run, "failing").await).await;
    assert!(log.contains("told somebody") && log.contains("cleaned up") && !log.contains("not reached"), "{log}");
}

/// What a step writes for later ones: variables, PATH, outputs of 100 kB across `needs`; and an action that lies in the
/// repository itself.
#[tokio::test]
async fn steps_and_jobs_hand_things_on() {
    const ACTION: &str = "
name: greet
inputs:
  whom:
    required: true
outputs:
  greeting:
    value: ${{ steps.say.outputs.greeting }}
runs:
  using: composite
  steps:
    - id: say
      shell: bash
      run: echo \"greeting=hello ${{ inputs.whom }}\" >>\"$GITHUB_OUTPUT\"
";
    const WORKFLOW: &str = "
on: push
jobs:
  first:
    runs-on: LABEL
    outputs:
      large: ${{ steps.large.outputs.text }}
    steps:
      - run: |
          mkdir tools
          printf '#!/bin/sh\\necho tool of the path\\n' >tools/my-tool
          chmod +x tools/my-tool
          echo \"$PWD/tools\" >>\"$GITHUB_PATH\"
          echo COLOUR=green >>\"$GITHUB_ENV\"
          printf 'LINES<<END\\none\\ntwo\\nEND\\n' >>\"$GITHUB_ENV\"
      - run: |
          test \"$(my-tool)\" = 'tool of the path'
          test \"$COLOUR\" = green
          test \"$LINES\" = \"$(printf 'one\\ntwo')\"
      - id: large
        run: echo \"text=$(printf 'x%.0s' $(seq 100000))\" >>\"$GITHUB_OUTPUT\"
  second:
    needs: first
    runs-on: LABEL
    steps:
      - env:
          LARGE: ${{ needs.first.outputs.large }}
        run: test \"${#LARGE}\" = 100000
      - env:
          GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
        run: |
          CLONE
          cp -r copy/greet greet
      - id: greet
        uses: ./greet
        with:
          whom: world
      - run: test '${{ steps.greet.outputs.greeting }}' = 'hello world'
";
    let world = World::new(1).await;
    world.gitea.put_file(&world.repository, "greet/action.yml", ACTION).await.unwrap();
    let run = world.push_one(&insert(WORKFLOW, "CLONE", CLONE_OWN_REPOSITORY)).await;
    world.ends(&run, JOB, "success").await;
}

/// NEW-28, T6: a burst of rows, bytes that are no text, a row longer than Gitea keeps: nothing is lost or doubled, and
/// every row stands in its own step.
#[tokio::test]
async fn a_burst_of_odd_rows_arrives_once_and_in_its_step() {
    const WORKFLOW: &str = "
on: push
jobs:
  talks:
    runs-on: LABEL
    steps:
      - run: for i in $(seq 5000); do echo \"burst $i\"; done
      - run: |
          printf 'odd \\377\\376 \\001 \\033[31mred\\033[0m end\\n'
          printf 'carriage\\rreturn\\n'
          printf 'long %s\\n' \"$(head -c 100000 /dev/zero | tr '\\0' y)\"
          printf 'no newline at the end'
      - run: for i in $(seq 3); do echo \"third $i\"; done
";
    let world = World::new(1).await;
    let run = world.push_one(WORKFLOW).await;
    world.ends(&run, JOB, "success").await;
    let job = world.job(&run, "talks").await;
    let log = world.log(&job).await;
    let numbered = |word: &str, count: u32| (1..=count).map(|i| format!("{word} {i}")).collect::<Vec<_>>();
    assert_once_each(&log, &[numbered("burst", 5000), numbered("third", 3)].concat());
    let long = log.lines().find(|line| line.contains(" long yyy")).unwrap();
    assert!(long.len() > 60_000, "{} bytes", long.len());
    let page = world.page(&run, &job).await;
    let text = |part: usize| page.parts[part].rows.join("\n");
    // Part 0 is `Set up job`.
    assert!(text(1).contains("burst 5000") && !text(1).contains("odd"), "{page:?}");
    let second = text(2);
    assert!(
        second.contains(" end") && second.contains("return") && second.contains("no newline at the end"),
        "{page:?}"
    );
    assert!(text(3).contains("third 3") && !text(3).contains("burst"), "{page:?}");
}

/// Sixty steps: each has its own end and its own rows.
#[tokio::test]
async fn a_job_of_many_steps() {
    let steps: String = (1..=60).map(|i| format!("      - run: echo \"of step $(({i} * 1000))\"\n")).collect();
    let workflow = format!("\non: push\njobs:\n  many:\n    runs-on: LABEL\n    steps:\n{steps}");
    let world = World::new(1).await;
    let run = world.push_one(&workflow).await;
    world.ends(&run, JOB, "success").await;
    assert_eq!(states(&world, &run, "many").await, [Status::Success; 60]);
    let page = world.page(&run, &world.job(&run, "many").await).await;
    for (number, part) in (1..=60).zip(&page.parts[1..]) {
        let said: Vec<&String> = part.rows.iter().filter(|row| row.starts_with("of step ")).collect();
        assert_eq!(said, [&format!("of step {}", number * 1000)], "{part:?}");
    }
}

/// NEW-24: the group's newer run cancels the older one, whose executor goes.
#[tokio::test]
async fn a_newer_run_of_a_group_cancels_the_older() {
    const WORKFLOW: &str = "
on: push
concurrency:
  group: deploy
  cancel-in-progress: true
jobs:
  deploy:
    runs-on: LABEL
    steps:
      - run: |
          GATE
";
    let world = World::new(2).await;
    let gate = Gate::new().await.unwrap();
    let workflow = WORKFLOW.replace("GATE", &gate.wait_here());
    let older = world.push_one(&workflow).await;
    gate.arrived(1, JOB).await.unwrap();
    let newer = world.push_one(&format!("{workflow}      - run: echo newer\n")).await;
    world.ends(&older, JOB, "cancelled").await;
    gate.arrived(2, JOB).await.unwrap();
    world.only_executor_is_left(SOON).await;
    gate.open();
    world.ends(&newer, JOB, "success").await;
}

/// `timeout-minutes` of a step: the official runner ends it.
#[tokio::test]
async fn a_step_that_takes_too_long_fails() {
    const WORKFLOW: &str = "
on: push
jobs:
  slow:
    runs-on: LABEL
    steps:
      - timeout-minutes: 1
        run: exec sleep 600
      - run: echo not reached
";
    let world = World::new(1).await;
    let run = world.push_one(WORKFLOW).await;
    world.ends(&run, JOB + JOB, "failure").await;
    assert_eq!(states(&world, &run, "slow").await, [Status::Failure, Status::Skipped]);
    world.serves_another_job().await;
}

/// T71, F126: a second try of a run is a task of its own, with an executor of its own and an end of its own.
#[tokio::test]
async fn a_second_try_succeeds() {
    const WORKFLOW: &str = "
on: push
jobs:
  fine:
    runs-on: LABEL
    steps:
      - run: echo fine
  depends:
    runs-on: LABEL
    steps:
      - run: test '${{ vars.READY }}' = yes
";
    let world = World::new(2).await;
    let run = world.push_one(WORKFLOW).await;
    world.job_ends(&run, "fine", JOB, Status::Success).await;
    world.job_ends(&run, "depends", JOB, Status::Failure).await;
    let first = world.job(&run, "depends").await;
    world.gitea.create_variable(&world.repository, "READY", "yes").await.unwrap();
    world.gitea.rerun(&world.repository, run.id).await.unwrap();
    world.ends(&run, JOB, "success").await;
    let second = world.job(&run, "depends").await;
    assert_ne!(first.task_id, second.task_id);
}
