//! The controller and executors end in every way.

use testkit::gitea::Status;
use testkit::world::SOON;

use crate::{job, site};

/// NEW-54, REG-4, POD-13, T6: a controller that is killed finds its Pods again, and the job notices nothing.
#[tokio::test]
async fn a_killed_controller_finds_its_pods() {
    let mut site = site(1).await;
    let one = site.gitea.push_one(job("one", &["say before", "gate here", "say after"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kill9(0).await;
    site.restart();
    site.desk.open_gate("here");
    let state = site.ends_as(one, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [vec!["before"], vec![], vec!["after"]]);
    site.finish().await;
}

/// NEW-65, F62, T7: somebody deletes the Pod of a running job: its page says so within 10 s, and the slot is free again.
#[tokio::test]
async fn a_pod_that_somebody_deletes() {
    let site = site(1).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kubernetes.force_delete(&site.the_pod());
    let state = site.ends_as(one, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.contains("executor_deleted")), "{:?}", state.rows());
    let two = site.gitea.push_one(job("two", &["say two"]));
    site.ends_as(two, Status::Success, SOON).await;
    site.finish().await;
}
