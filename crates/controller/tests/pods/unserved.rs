//! Work for a backend that is not served any more.

use testkit::gitea::Status;
use testkit::kubernetes::{Fault, On, Resource, Verb};
use testkit::world::SOON;

use crate::site::Site;
use crate::{job, site};

/// A job whose Pod cannot be made, so that its message lies in the queue; then this host makes executors, and no Pods.
async fn pods_are_given_up(mut site: Site) {
    site.kubernetes.fail(On::call(Verb::Create, Resource::Pods), Fault::internal().always());
    let waits = site.gitea.push_one(job("waits", &["say here"]));
    site.eventually("a Pod was tried", SOON, |site| !site.kubernetes.calls_of(Verb::Create, Resource::Pods).is_empty())
        .await;
    site.kill9(0).await;
    let runner = site.dir.path().join("runner").display().to_string();
    site.set(&[
        ("COMPONENTS", "scheduler,local-worker"),
        ("DEFAULT_BACKEND", "local"),
        ("IDENTITY_ISSUER", "built-in"),
        ("LOCAL_ISOLATION", "none"),
        ("GITEA_RUNNER_BINARY", &runner),
    ]);
    site.restart();
    let state = site.ends_as(waits, Status::Failure, SOON).await;
    let said = state.rows().iter().any(|row| row.starts_with("##[error]backend_disabled: ") && row.contains("pod"));
    assert!(said, "{:?}", state.rows());
    assert_eq!((state.updates_after_end, state.archived), (0, true));
    site.finish().await;
}

/// NEW-49, T48, F54: what waits for a backend that was taken away ends with a reason, and does not rot.
#[tokio::test]
async fn in_a_file() {
    pods_are_given_up(site(1).await).await;
}

/// NEW-49, T48, F54: the same in NATS, where each backend has a subject and a consumer of its own.
#[tokio::test]
async fn in_nats() {
    pods_are_given_up(Site::with_nats(1, &[]).await).await;
}
