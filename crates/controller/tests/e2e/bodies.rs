//! Large and old-fashioned bodies between a job and Gitea: they arrive whole, and nobody on the way keeps them.

use testkit::real::{ARTIFACT_ROUND_TRIP, ARTIFACT_V3_ROUND_TRIP, CLONE_OWN_REPOSITORY, Gate, insert};

use crate::world::{JOB, World};

const MIB: u64 = 1 << 20;

/// FAC-11, NEW-95: `git push` with the job token: a new branch with a commit of 3 MB, which git sends in chunks.
#[tokio::test]
async fn a_job_pushes_a_branch() {
    const WORKFLOW: &str = "
on: push
jobs:
  push:
    runs-on: LABEL
    steps:
      - env:
          GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
        run: |
          CLONE
          cd copy
          git checkout -q -b made-by-a-job
          head -c 3000000 /dev/urandom >parcel
          git add parcel
          git -c user.name=job -c user.email=job@example.org commit -q -m 'made by a job'
          git -c http.extraheader=\"Authorization: basic $basic\" push -q origin made-by-a-job
          echo \"pushed $(git rev-parse HEAD)\"
";
    let world = World::new(1).await;
    let run = world.push_one(&insert(WORKFLOW, "CLONE", CLONE_OWN_REPOSITORY)).await;
    world.ends(&run, JOB, "success").await;
    let head = world.gitea.branch(&world.repository, "made-by-a-job").await.unwrap();
    let log = world.log(&world.job(&run, "push").await).await;
    assert!(log.contains(&format!("pushed {head}")), "{head} is not in:\n{log}");
}

/// NEW-106, NEW-110, F105: an artifact of 200 MiB up and down arrives whole, and neither the controller nor the
/// executor keeps more than a few buffers of it.
#[tokio::test]
async fn a_large_artifact_passes_without_being_kept() {
    const WORKFLOW: &str = "
on: push
jobs:
  large:
    runs-on: LABEL
    steps:
      - run: |
          python3 - <<'END'
          SCRIPT
          END
          BEFORE
      - env:
          ARTIFACT_NAME: large
          ARTIFACT_BYTES: 209715200
        run: |
          python3 - <<'END'
          SCRIPT
          END
          AFTER
";
    let (before, after) = (Gate::new().await.unwrap(), Gate::new().await.unwrap());
    let world = World::new(1).await;
    let workflow = WORKFLOW.replace("BEFORE", &before.wait_here()).replace("AFTER", &after.wait_here());
    let run = world.push_one(&insert(&workflow, "SCRIPT", ARTIFACT_ROUND_TRIP)).await;
    let memory = || [world.controller.peak_memory(), world.executor().peak_memory()];
    before.arrived(1, JOB).await.unwrap();
    let small = memory();
    before.open();
    after.arrived(1, JOB).await.unwrap();
    let large = memory();
    after.open();
    world.ends(&run, JOB, "success").await;
    assert!(small.iter().all(|peak| *peak > MIB), "{small:?}");
    for (small, large) in small.into_iter().zip(large) {
        assert!(large - small < 8 * MIB, "the peak grew from {small} to {large} bytes");
    }
    let log = world.log(&world.job(&run, "large").await).await;
    assert!(log.contains("artifact round trip of 209715200 bytes"), "{log}");
}

/// A job that runs this Python says this in its log.
async fn assert_says(script: &str, said: &str) {
    const WORKFLOW: &str = "
on: push
jobs:
  artifact:
    runs-on: LABEL
    steps:
      - run: |
          python3 - <<'END'
          SCRIPT
          END
";
    let world = World::new(1).await;
    let run = world.push_one(&insert(WORKFLOW, "SCRIPT", script)).await;
    world.ends(&run, JOB, "success").await;
    let log = world.log(&world.job(&run, "artifact").await).await;
    assert!(log.contains(said), "{log}");
}

/// T59, NEW-110: an artifact is created, uploaded, finalized, listed and downloaded; bodies too go by the proxy's
/// address.
#[tokio::test]
async fn a_job_sends_an_artifact_up_and_down() {
    assert_says(ARTIFACT_ROUND_TRIP, "artifact round trip of 300000 bytes").await;
}

/// T59, NEW-110: the artifact protocol of version 3.
#[tokio::test]
async fn a_job_sends_an_artifact_as_older_actions_do() {
    assert_says(ARTIFACT_V3_ROUND_TRIP, "artifact v3 round trip of 300001 bytes").await;
}
