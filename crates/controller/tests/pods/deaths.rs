//! The controller and executors end in every way.

use std::time::Duration;

use testkit::gitea::Status;
use testkit::kubernetes::{Resource, Verb};
use testkit::world::SOON;

use crate::site::Site;
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

/// POD-9, POD-10, NEW-65, F43, T20: a runner that goes on after the end of its job has its grace; then its Pod is deleted.
#[tokio::test]
async fn a_pod_that_outstays_its_grace() {
    let site = Site::start(1, &[("TERMINAL_GRACE", "4s")]).await;
    let sly = site.gitea.push_one(job("sly", &["on-cancel ignore\ntry success\nhang"]));
    site.ends_as(sly, Status::Success, SOON).await;
    let ended = std::time::Instant::now();
    let next = site.gitea.push_one(job("next", &["say here"]));
    site.ends_as(next, Status::Success, SOON).await;
    let deletes = site.kubernetes.calls_of(Verb::Delete, Resource::Pods);
    let first = deletes.first().unwrap().instant.saturating_duration_since(ended);
    // The double's own change is seen at once; the controller's clock began a moment earlier.
    assert!(first >= Duration::from_millis(3500), "deleted after {first:?}");
}

/// POD-9, POD-10, NEW-66, F60, T7: an executor that ends without a result is reported first, and deleted then.
#[tokio::test]
async fn a_pod_that_ends_without_a_result() {
    let site = site(1).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kubernetes.kubelet().exit(&site.the_pod(), 7);
    let state = site.ends_as(one, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_exited: ")), "{:?}", state.rows());
    let deleted = |site: &Site| !site.kubernetes.calls_of(Verb::Delete, Resource::Pods).is_empty();
    site.eventually("its Pod is deleted", SOON, deleted).await;
    let calls = site.gitea.calls_of(state.task.unwrap());
    let told = calls.iter().rfind(|call| call.told().is_some()).unwrap().instant;
    assert!(told < site.kubernetes.calls_of(Verb::Delete, Resource::Pods)[0].instant, "deleted before it was told");
    site.finish().await;
}
