//! The controller and executors end in every way.

use std::time::Duration;

use testkit::gitea::{Method, Status};
use testkit::kubernetes::{Fault, On, Resource, Verb};
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
    let state = site.ends_as(one, Status::Failure, Duration::from_secs(10)).await;
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

/// T46, WRK-8, NEW-54, NEW-55, F44: twenty Pods that ended while no controller was there, half of them of jobs that Gitea has ended
/// meanwhile: those that run for Gitea are reported with a reason, also where the Pod says that it succeeded; all are removed, and
/// their slots serve other jobs.
#[tokio::test]
async fn pods_that_ended_meanwhile() {
    let mut site = Site::start(20, &[("TERMINAL_GRACE", "5m")]).await;
    let keys: Vec<String> = (1..=20).map(|n| format!("job{n}")).collect();
    // A cancel is for all jobs of a push.
    let jobs: Vec<_> = keys.iter().map(|key| site.gitea.push_one(job(key, &["gate here"]))).collect();
    site.desk.arrived("here", jobs.len(), 2 * SOON).await;
    site.kill9(0).await;
    for (nth, pod) in site.kubernetes.names(Resource::Pods).iter().enumerate() {
        site.kubernetes.kubelet().exit(pod, if nth % 2 == 0 { 0 } else { 7 });
    }
    let (lost, cancelled) = jobs.split_at(10);
    cancelled.iter().for_each(|job| site.gitea.cancel(*job));
    site.restart();
    for job in lost {
        let state = site.ends_as(*job, Status::Failure, SOON).await;
        assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_exited: ")), "{:?}", state.rows());
    }
    let next = site.gitea.push(keys.iter().map(|key| job(key, &["gate next"])).collect());
    site.desk.arrived("next", next.len(), 2 * SOON).await;
    site.desk.open_gate("next");
    for job in next {
        site.ends_as(job, Status::Success, SOON).await;
    }
    for job in cancelled {
        assert_eq!(site.gitea.state(*job).status, Status::Cancelled);
    }
    site.finish().await;
}

/// T35, NEW-71, F17, F68: no controller is there when a job has outlived its deadline: the node ends its Pod, and the next
/// controller says so.
#[tokio::test]
async fn a_deadline_that_only_the_node_keeps() {
    let mut site = site(1).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kill9(0).await;
    site.kubernetes.kubelet().deadline(&site.the_pod());
    site.restart();
    let state = site.ends_as(one, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]deadline: ")), "{:?}", state.rows());
    site.finish().await;
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

/// NEW-163, NEW-101, NEW-26: neither mark nor removal was taken by the API; an end in order that comes then tries the mark once
/// more, so that the next process knows the end and asks nobody for it.
#[tokio::test]
async fn an_end_in_order_marks_what_nobody_removed() {
    let mut site = site(1).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    for verb in [Verb::Patch, Verb::Delete] {
        site.kubernetes.fail(On::call(verb, Resource::Pods), Fault::internal().always());
    }
    site.desk.open_gate("here");
    let state = site.ends_as(one, Status::Success, SOON).await;
    let refused = |site: &Site| !site.kubernetes.calls_of(Verb::Delete, Resource::Pods).is_empty();
    site.eventually("its removal is refused", SOON, refused).await;
    site.kubernetes.clear_faults();
    assert!(site.sigterm(0).await.success());
    let asked = |site: &Site| {
        let calls = site.gitea.calls_of(state.task.unwrap());
        calls.iter().filter(|call| call.method == Method::UpdateTask).count()
    };
    let before = asked(&site);
    site.restart();
    site.eventually("its Pod is gone", SOON, |site| site.kubernetes.names(Resource::Pods).is_empty()).await;
    assert_eq!(asked(&site), before, "{}", site.log());
    site.finish().await;
}
