//! What a workflow's author expects, in Pods.

use testkit::gitea::Status;
use testkit::kubernetes::{Resource, Verb};
use testkit::world::SOON;

use crate::site::text;
use crate::{job, site};

/// POD-2, POD-4, POD-7, NEW-72, NEW-126: a job runs in a Pod of its own under its own identity; nothing of it is left, and
/// its entry went before its Pod.
#[tokio::test]
async fn a_job_in_a_pod() {
    let site = site(1).await;
    let one = site.gitea.push_one(job("one", &["say one", "say two"]));
    let state = site.ends_as(one, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [vec!["one"], vec!["two"]]);
    let kubernetes = std::sync::Arc::clone(&site.kubernetes);
    site.finish().await;
    let deleted = |resource| {
        let calls = kubernetes.calls_of(Verb::Delete, resource);
        calls.first().map(|call| call.instant).unwrap_or_else(|| panic!("{resource:?} was not deleted"))
    };
    assert!(deleted(Resource::ClusterStaticEntries) < deleted(Resource::Pods));
}

/// NEW-72, WRK-6, T52: the capability is in a Secret that goes with the claim, and nowhere in the Pod.
#[tokio::test]
async fn the_capability_goes_with_the_claim() {
    let site = site(1).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    let gone = |site: &crate::Site| site.kubernetes.names(Resource::Secrets).is_empty();
    site.eventually("the Secret is gone while the job runs", SOON, gone).await;
    let pod = site.kubernetes.pod(&site.the_pod());
    let variables = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    assert!(variables.iter().any(|each| text(each, "/name") == "CI_RUNNER_CAPABILITY_FILE"));
    assert!(variables.iter().all(|each| text(each, "/name") != "CI_RUNNER_CAPABILITY"));
    site.desk.open_gate("here");
    site.ends_as(one, Status::Success, SOON).await;
    site.finish().await;
}

/// NEW-75, F72, T53: somebody deletes the identity entry of a job that runs: it is there again after the next look at all of
/// them, which comes every 30 s, before the SVID runs out.
#[tokio::test]
async fn an_entry_that_somebody_deletes_comes_back() {
    let site = site(1).await;
    let one = site.gitea.push_one(job("one", &["gate here"]));
    site.desk.arrived("here", 1, SOON).await;
    let entries = site.kubernetes.objects(Resource::ClusterStaticEntries);
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    site.kubernetes.delete(Resource::ClusterStaticEntries, text(entry, "/metadata/name"));
    let is_back = |site: &crate::Site| {
        let entries = site.kubernetes.objects(Resource::ClusterStaticEntries);
        entries.iter().any(|new| new["spec"] == entry["spec"] && new["metadata"]["uid"] != entry["metadata"]["uid"])
    };
    site.eventually("its entry is back", 2 * SOON, is_back).await;
    site.desk.open_gate("here");
    site.ends_as(one, Status::Success, SOON).await;
    site.finish().await;
}

/// NEW-5, SCH-5, NEW-55: never more Pods than slots, and the last of five jobs runs although nobody pushes again.
#[tokio::test]
async fn five_jobs_through_two_slots() {
    let site = site(2).await;
    let jobs = site.gitea.push(["a", "b", "c", "d", "e"].map(|key| job(key, &["gate here"])).into_iter().collect());
    site.desk.arrived("here", 2, SOON).await;
    assert_eq!(site.kubernetes.names(Resource::Pods).len(), 2);
    site.desk.open_gate("here");
    for job in jobs {
        site.ends_as(job, Status::Success, SOON).await;
    }
    site.finish().await;
}
