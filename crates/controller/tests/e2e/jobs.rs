//! What a workflow's author expects of any runner, and what ours adds: an identity, and a reason when it refuses.

use testkit::real::{Gate, Status};

use crate::world::{JOB, SOON, World};

/// FAC-8: output of both steps, step states of their own, outputs across `needs`, a failing step that ends its job.
#[tokio::test]
async fn steps_outputs_and_failures_are_what_the_author_wrote() {
    const WORKFLOW: &str = "
on: push
jobs:
  first:
    runs-on: LABEL
    outputs:
      word: ${{ steps.make.outputs.word }}
    steps:
      - run: echo \"one plus one is $((1 + 1))\"
      - id: make
        run: echo \"word=forty-two\" >>\"$GITHUB_OUTPUT\"
  second:
    needs: first
    runs-on: LABEL
    steps:
      - run: test \"${{ needs.first.outputs.word }}\" = forty-two
  third:
    needs: second
    runs-on: LABEL
    steps:
      - run: echo before
      - run: exit 3
      - run: echo never
";
    let world = World::new(2).await;
    let run = world.push_one(WORKFLOW).await;
    world.ends(&run, JOB, "failure").await;
    let first = world.job(&run, "first").await;
    assert_eq!(first.status, Status::Success);
    assert!(world.log(&first).await.contains("one plus one is 2"));
    assert_eq!(world.job(&run, "second").await.status, Status::Success);
    let third = world.job(&run, "third").await;
    assert_eq!(third.status, Status::Failure);
    let states: Vec<Status> = world.task(&third).steps.iter().map(|step| step.status).collect();
    assert_eq!(states, [Status::Success, Status::Failure, Status::Skipped]);
}

/// SCH-5, NEW-6: five jobs of one push with room for two. Never more than two are taken from Gitea, and the last runs
/// although nobody pushes again.
#[tokio::test]
async fn one_push_brings_five_jobs_through_two_slots() {
    const WORKFLOW: &str = "
on: push
jobs:
  shard:
    runs-on: LABEL
    strategy:
      matrix:
        part: [1, 2, 3, 4, 5]
    steps:
      - run: |
          GATE
";
    let world = World::new(2).await;
    let gate = Gate::new().await.unwrap();
    let run = world.push_one(&WORKFLOW.replace("GATE", &gate.wait_here())).await;
    gate.arrived(2, JOB).await.unwrap();
    let jobs = world.gitea.jobs(&world.repository, run.id).await.unwrap();
    let count = |status: Status| jobs.iter().filter(|job| job.status == status).count();
    assert_eq!((count(Status::Running), count(Status::Waiting)), (2, 3), "{jobs:?}");
    gate.open();
    world.ends(&run, JOB, "success").await;
    gate.arrived(5, SOON).await.unwrap();
}

/// A secret of the repository never stands in the log, whatever a step does with it.
#[tokio::test]
async fn a_secret_is_masked() {
    const WORKFLOW: &str = "
on: push
jobs:
  talks:
    runs-on: LABEL
    steps:
      - run: echo \"the password is ${{ secrets.PASSWORD }} today\"
";
    let world = World::new(1).await;
    world.gitea.set_secret(&world.repository, "PASSWORD", "correct-horse").await.unwrap();
    let run = world.push_one(WORKFLOW).await;
    world.ends(&run, JOB, "success").await;
    let log = world.log(&world.job(&run, "talks").await).await;
    assert!(log.contains("the password is *** today"), "{log}");
    assert!(!log.contains("correct-horse"), "{log}");
    assert!(!world.controller.log().contains("correct-horse"));
}

/// NEW-111, NEW-123: a step finds its own X.509-SVID behind `SPIFFE_ENDPOINT_SOCKET`.
#[tokio::test]
async fn a_step_reads_its_own_identity() {
    const WORKFLOW: &str = "
on: push
jobs:
  deploy_it:
    runs-on: LABEL
    steps:
      - run: |
          id=$('PROGRAM' svid)
          echo \"I am $id\"
";
    let world = World::new(1).await;
    let run = world.push_one(WORKFLOW).await;
    world.ends(&run, JOB, "success").await;
    let path = world.identity_said(&world.job(&run, "deploy_it").await).await;
    assert_eq!(path, format!("ci/{}/deploy_it", world.repository));
}

/// IDN, NEW-14, NEW-29: a job key that is no identity segment is refused on its own page, and nobody else waits for it.
#[tokio::test]
async fn a_job_key_with_a_dot_is_refused_with_a_reason() {
    const REFUSED: &str = "
on: push
jobs:
  a.b:
    runs-on: LABEL
    steps:
      - run: echo this must not run
";
    const BESIDE: &str = "
on: push
jobs:
  beside:
    runs-on: LABEL
    steps:
      - run: |
          GATE
";
    let world = World::new(1).await;
    let gate = Gate::new().await.unwrap();
    let beside = world.push(&[("beside.yml", &BESIDE.replace("GATE", &gate.wait_here()))]).await.remove(0);
    gate.arrived(1, JOB).await.unwrap();
    let refused = world.push(&[("refused.yml", REFUSED)]).await.remove(0);
    gate.open();
    world.ends(&refused, JOB, "failure").await;
    world.ends(&beside, JOB, "success").await;
    let job = world.job(&refused, "a.b").await;
    let page = world.page(&refused, &job).await;
    assert!(page.text().contains("invalid_job_key"), "{page:?}");
    assert!(page.text().contains("a.b"), "{page:?}");
    assert!(!page.text().contains("this must not run"), "{page:?}");
    crate::world::assert_steps_closed(&world.task(&job));
}
