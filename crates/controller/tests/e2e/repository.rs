//! What a job does with its repository goes through the loopback proxy, with the job's own tokens.

use testkit::real::{CLONE_OWN_REPOSITORY, insert};

use crate::world::{JOB, World};

/// FAC-11, NEW-95: `git clone` with the job token.
#[tokio::test]
async fn a_job_clones_its_repository() {
    const WORKFLOW: &str = "
on: push
jobs:
  clone:
    runs-on: LABEL
    steps:
      - env:
          GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
        run: |
          CLONE
          case $GITHUB_SERVER_URL in http://127.0.0.1:*) echo \"by $GITHUB_SERVER_URL\" ;; *) exit 1 ;; esac
";
    let world = World::new(1).await;
    let run = world.push_one(&insert(WORKFLOW, "CLONE", CLONE_OWN_REPOSITORY)).await;
    world.ends(&run, JOB, "success").await;
    let log = world.log(&world.job(&run, "clone").await).await;
    assert!(log.contains(&format!("cloned {}", run.head_sha)), "{log}");
    // The proxy's address, not Gitea's.
    assert!(log.contains("by http://127.0.0.1:"), "{log}");
    assert!(!log.contains(&format!("by {}", world.gitea.access().url)), "{log}");
}
