//! What a cluster says when it cannot run a Pod, on the job's own page.

use testkit::gitea::Status;
use testkit::kubernetes::{Plan, Resource, Verb};
use testkit::world::SOON;

use crate::{Site, job, site};

/// Of the controller's executors.
const NAMESPACE: &str = "gitea-actions";

/// POD-10, NEW-66, F60, T7: an image whose name is none ends the job at once, with the reason.
#[tokio::test]
async fn an_image_without_a_name() {
    let site = site(1).await;
    site.kubernetes.kubelet().next(Plan::InvalidImageName);
    let one = site.gitea.push_one(job("one", &["say never"]));
    let state = site.ends_as(one, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.contains("image_invalid")), "{:?}", state.rows());
    site.finish().await;
}

/// POD-10, NEW-66, F62, T7: a job that ran out of memory is told so.
#[tokio::test]
async fn out_of_memory() {
    let site = site(1).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kubernetes.kubelet().out_of_memory(&site.the_pod(), 137);
    let state = site.ends_as(one, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.contains("executor_oom")), "{:?}", state.rows());
    site.finish().await;
}

/// PRC-6, PRC-7, CON-5, NEW-66, F42, F53, T45: the right to write identities is missing. The Pod keeps its slot, so that there
/// are never more Pods than slots, what is wrong is logged once, and with the right back the job runs.
#[tokio::test]
async fn no_right_to_write_identities() {
    let site = site(1).await;
    site.kubernetes.forbid(Verb::Create, Resource::ClusterStaticEntries);
    let jobs = ["one", "two"].map(|key| site.gitea.push_one(job(key, &["say here"])));
    let tries = |site: &crate::Site| site.kubernetes.calls_of(Verb::Create, Resource::ClusterStaticEntries).len();
    site.eventually("three tries", SOON, |site| tries(site) >= 3).await;
    assert_eq!(site.kubernetes.calls_of(Verb::Create, Resource::Pods).len(), 1);
    let started = jobs.iter().filter(|job| site.gitea.state(**job).task.is_some()).count();
    assert_eq!(started, 1, "the slot is taken");
    let why = "cannot create";
    site.eventually("the log says why", SOON, |site| site.log().contains(why)).await;
    site.eventually("one more try", SOON, |site| tries(site) >= 4).await;
    let log = site.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains(why)).collect();
    assert!(matches!(&told[..], [once] if once.contains("gitea-task-") && once.contains("\"pod\"")), "{told:#?}");
    site.kubernetes.allow(Verb::Create, Resource::ClusterStaticEntries);
    for job in jobs {
        site.ends_as(job, Status::Success, SOON).await;
    }
    site.finish().await;
}

/// T77, NEW-28, F154: a job whose Pod may not be made waits, its page names the right and what to do, and it runs when the
/// right is there.
#[tokio::test]
async fn a_right_that_is_missing() {
    let site = site(1).await;
    site.kubernetes.forbid(Verb::Create, Resource::Pods);
    let one = site.gitea.push_one(job("one", &["say it"]));
    let named = |row: &&str| row.contains("cannot create resource \"pods\"") && row.contains("Role and ClusterRole");
    site.eventually("the page names it", SOON, |site| site.gitea.state(one).rows().iter().any(named)).await;
    site.kubernetes.allow(Verb::Create, Resource::Pods);
    site.ends_as(one, Status::Success, SOON).await;
    site.finish().await;
}

/// NEW-66, PRC-5, F60, T7: a used-up quota of the namespace stands on the page with its numbers; who waits for it too long is
/// told that it was the quota, and who waits when there is room again runs.
#[tokio::test]
async fn a_quota_that_is_used_up() {
    let mut site = Site::start(1, &[("QUEUE_WAIT_LIMIT", "8s")]).await;
    site.kubernetes.set_quota(NAMESPACE, 0);
    let given_up = site.gitea.push_one(job("given-up", &["say never"]));
    let state = site.ends_as(given_up, Status::Failure, SOON).await;
    let numbers = "exceeded quota: executors, requested: pods=1, used: pods=0, limited: pods=0";
    let rows = state.rows();
    let reason =
        rows.iter().find(|row| row.contains("##[error]backend_quota: waited ")).unwrap_or_else(|| panic!("{rows:?}"));
    assert!(reason.contains(numbers), "{rows:?}");

    // A controller that ends before its message is out would have the next one ask once more (NEW-163).
    let task = format!("\"assignment\":\"gitea-task-{}\"", state.task.unwrap());
    let acked = |line: &str| line.contains("\"event\":\"acked\"") && line.contains(&task);
    site.eventually("its message is gone", SOON, |site| site.log().lines().any(acked)).await;
    site.set(&[("QUEUE_WAIT_LIMIT", "1h")]);
    site.sigterm(0).await;
    site.restart();
    let waits = site.gitea.push_one(job("waits", &["say here"]));
    let told = |site: &Site| site.gitea.state(waits).rows().iter().any(|row| row.contains(numbers));
    site.eventually("its page has the numbers", SOON, told).await;
    site.kubernetes.set_quota(NAMESPACE, 1);
    site.ends_as(waits, Status::Success, SOON).await;
    site.finish().await;
}
