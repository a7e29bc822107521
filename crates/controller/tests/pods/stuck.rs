//! Objects that do not go.

use std::time::Duration;

use testkit::gitea::Status;
use testkit::kubernetes::{Fault, On, Resource, Verb};
use testkit::world::SOON;

use crate::{job, site};

/// NEW-74, POD-12, NEW-55, F76, T55: a Pod that cannot be deleted holds its slot and is tried again after pauses that grow;
/// the others run and go.
#[tokio::test]
async fn a_pod_that_cannot_be_deleted() {
    let site = site(2).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    let stuck = site.the_pod();
    site.kubernetes.fail(On::call(Verb::Delete, Resource::Pods).named(&stuck), Fault::internal().always());
    site.desk.open_gate("here");
    site.ends_as(one, Status::Success, SOON).await;
    for key in ["two", "three"] {
        let job = site.gitea.push_one(job(key, &["say it"]));
        site.ends_as(job, Status::Success, SOON).await;
    }
    site.eventually("the others are gone", SOON, |site| site.kubernetes.names(Resource::Pods) == [stuck.clone()]).await;
    let tries = |site: &crate::Site| -> Vec<_> {
        let calls = site.kubernetes.calls_of(Verb::Delete, Resource::Pods);
        calls.into_iter().filter(|call| call.name == stuck).map(|call| call.instant).collect()
    };
    site.eventually("three tries", Duration::from_secs(60), |site| tries(site).len() >= 3).await;
    let tries = tries(&site);
    // 2 s and 4 s, a fifth more or less.
    assert!(tries[2].duration_since(tries[0]) >= Duration::from_millis(4500), "{tries:?}");
    site.kubernetes.clear_faults();
    site.finish().await;
}
