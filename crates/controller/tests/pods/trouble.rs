//! What a cluster says when it cannot run a Pod, on the job's own page.

use testkit::gitea::Status;
use testkit::kubernetes::Plan;
use testkit::world::SOON;

use crate::{job, site};

/// NEW-66, F60, T7: an image whose name is none ends the job at once, with the reason.
#[tokio::test]
async fn an_image_without_a_name() {
    let site = site(1).await;
    site.kubernetes.kubelet().next(Plan::InvalidImageName);
    let one = site.gitea.push_one(job("one", &["say never"]));
    let state = site.ends_as(one, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.contains("image_invalid")), "{:?}", state.rows());
    site.finish().await;
}

/// NEW-66, F62, T7: a job that ran out of memory is told so.
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
