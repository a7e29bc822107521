//! Admission webhooks between the controller and its Pods: away, and of another opinion.

use serde_json::json;
use testkit::gitea::Status;
use testkit::kubernetes::{Fault, On, Resource, Verb};
use testkit::world::SOON;

use crate::{job, site};

/// NEW-66, NEW-28, NEW-71, F62, T7: a webhook that must be asked does not answer: the job waits, its page says which webhook and
/// what is wrong with it, and it runs in one Pod once the webhook is back.
#[tokio::test]
async fn a_webhook_that_is_away() {
    let site = site(1).await;
    site.kubernetes.fail(On::call(Verb::Create, Resource::Pods), Fault::webhook_away("policy.test").always());
    let one = site.gitea.push_one(job("one", &["say here"]));
    let named =
        |row: &&str| row.contains("failed calling webhook \"policy.test\"") && row.contains("deadline exceeded");
    site.eventually("the page names it", SOON, |site| site.gitea.state(one).rows().iter().any(named)).await;
    let tries = |site: &crate::Site| site.kubernetes.calls_of(Verb::Create, Resource::Pods).len();
    site.eventually("another try", SOON, |site| tries(site) >= 2).await;
    assert!(site.kubernetes.names(Resource::Pods).is_empty());
    assert!(!site.gitea.state(one).status.is_end());
    site.kubernetes.clear_faults();
    let state = site.ends_as(one, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [vec!["here"]]);
    site.finish().await;
}

/// NEW-66, F62, T7: a webhook that denies the Pod ends the job at the first try, with the webhook's own words, whichever code it
/// answers with, and also where it speaks of users as the API server does of missing rights.
#[tokio::test]
async fn a_webhook_that_denies() {
    let site = site(1).await;
    let bare = "admission webhook \"bare.test\" denied the request: User ci cannot have Pods on Mondays";
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 400, "message": bare});
    for (key, fault, words) in [
        ("forbidden", Fault::denied_by("policy.test", "no Pods on Mondays"), "denied the request: no Pods on Mondays"),
        ("bad", Fault::page(400, status.to_string()), "denied the request: User ci cannot have Pods on Mondays"),
        ("right", Fault::denied_by("policy.test", "User ci cannot do that"), "denied the request: User ci cannot"),
    ] {
        let before = site.kubernetes.calls_of(Verb::Create, Resource::Pods).len();
        site.kubernetes.fail(On::call(Verb::Create, Resource::Pods), fault.always());
        let denied = site.gitea.push_one(job(key, &["say never"]));
        let state = site.ends_as(denied, Status::Failure, SOON).await;
        let told = |row: &&str| row.starts_with("##[error]config_error: Pod gitea-task-") && row.contains(words);
        assert!(state.rows().iter().any(told), "{key}: {:?}", state.rows());
        assert!(!state.rows().iter().any(|row| row.contains("Role and ClusterRole")), "{key}: {:?}", state.rows());
        assert_eq!(site.kubernetes.calls_of(Verb::Create, Resource::Pods).len(), before + 1, "{key}");
        site.kubernetes.clear_faults();
    }
    site.finish().await;
}
