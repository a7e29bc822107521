//! An API that is away, silent or refuses, and an object that others write.

use testkit::kubernetes::{Away, Fault, On};

use super::*;

/// Long, but a call is given up after 1 s.
const PATIENT: Times = times(60_000, 3_000, 100);

/// SCH-11, F49, T16: somebody overwrites the object, or deletes it: lost with the next renewal, long before the deadline.
#[tokio::test]
async fn a_stolen_lease_is_lost_at_once() {
    let double = Kubernetes::start().await;
    let held = leads(&replica(&double, "a", LONG)).await;
    steal(&double, "thief");
    assert_eq!(lost(&held).await, Lost::Taken { by: "thief".to_owned() });
    // What the thief wrote stays.
    held.release().await;
    assert_eq!(spec(&double)["holderIdentity"], json!("thief"));

    steal(&double, "");
    let held = leads(&replica(&double, "a", LONG)).await;
    steal(&double, "");
    assert_eq!(lost(&held).await, Lost::Removed);

    let held = leads(&replica(&double, "a", LONG)).await;
    double.delete(Resource::Leases, NAME);
    assert_eq!(lost(&held).await, Lost::Removed);
}

/// NEW-59, T16: what was deleted by hand may be led by its holder for another moment: nobody who saw it held takes it
/// before a lease is over.
#[tokio::test]
async fn what_is_deleted_is_waited_for() {
    let double = Kubernetes::start().await;
    let held = leads(&replica(&double, "a", SHORT)).await;
    let b = replica(&double, "b", SHORT);
    let next = tokio::spawn(async move { leads(&b).await });
    calls(&double, Verb::Get, 2).await;
    let began = BootTime::now();
    double.delete(Resource::Leases, NAME);
    assert_eq!(lost(&held).await, Lost::Removed);
    next.await.unwrap();
    assert!(BootTime::now().after(began) >= SHORT.lease);
}

/// NEW-59, NEW-60: an API server that is back before the renew deadline is no reason to stop, whatever it did meanwhile.
#[tokio::test]
async fn a_short_outage_costs_nothing() {
    let double = Kubernetes::start().await;
    let held = leads(&replica(&double, "a", LONG)).await;
    for fault in [Fault::cut(), Fault::internal(), Fault::unavailable(None), Fault::page(502, "<html>")] {
        double.fail(On::resource(Resource::Leases), fault.times(3));
        renewals(&double, 2).await;
    }
    still_leads(&held.tenure());
    held.release().await;
}

/// SCH-10, SCH-11, F49, T16: while an API server stays away, or hangs, its holder decides nothing, and nobody else leads;
/// when it is back, one of them does, and the other one knows.
#[tokio::test]
async fn in_a_long_outage_nobody_decides() {
    for away in [Away::Refusing, Away::Hanging] {
        let double = Kubernetes::start().await;
        let held = leads(&replica(&double, "a", SHORT)).await;
        let b = replica(&double, "b", SHORT);
        let next = tokio::spawn(async move { leads(&b).await });
        calls(&double, Verb::Get, 1).await;
        double.set_away(away);
        rests(&held).await;
        assert!(!next.is_finished());
        double.set_away(Away::No);
        let decides = || held.tenure().permits(Act::Decide).is_ok();
        comes_true(|| decides() || next.is_finished()).await;
        if !decides() {
            let next = next.await.unwrap();
            assert!(matches!(lost(&held).await, Lost::Taken { .. }));
            still_leads(&next.tenure());
        }
    }
}

/// NEW-59, F49: renewals that are stored, but whose answers never arrive, are recognised, and nobody else led meanwhile.
#[tokio::test]
async fn lost_answers_are_resolved() {
    let double = Kubernetes::start().await;
    let held = leads(&replica(&double, "a", PATIENT)).await;
    for fault in [Fault::lost_answer(), Fault::timeout().after_commit(), Fault::hang().after_commit()] {
        double.fail(On::verb(Verb::Update), fault);
        renewals(&double, 3).await;
        still_leads(&held.tenure());
    }
    // The release finds what it must replace, and finds that it has been replaced.
    double.fail(On::verb(Verb::Update), Fault::lost_answer().times(2));
    held.release().await;
    leads(&replica(&double, "b", LONG)).await;
}

/// NEW-59, SCH-10: who wrote itself in and did not hear of it, finds itself there and leads.
#[tokio::test]
async fn a_lost_first_answer_is_resolved() {
    let double = Kubernetes::start().await;
    double.fail(On::verb(Verb::Create), Fault::lost_answer());
    let held = leads(&replica(&double, "a", LONG)).await;
    assert_eq!((double.count(Verb::Create, Resource::Leases), &spec(&double)["leaseTransitions"]), (1, &json!(0)));
    held.release().await;
    double.fail(On::verb(Verb::Update), Fault::lost_answer());
    still_leads(&leads(&replica(&double, "b", LONG)).await.tenure());
}

/// SCH-10, F50: a release is bounded when nobody answers it.
#[tokio::test]
async fn a_release_is_bounded() {
    let double = Kubernetes::start().await;
    let held = leads(&replica(&double, "a", SHORT)).await;
    double.set_away(Away::Hanging);
    timeout(SOON, held.release()).await.unwrap();
}

/// SCH-11, NEW-60: a right that is taken away while it leads is like silence: it decides nothing from the deadline on.
#[tokio::test]
async fn a_right_that_is_taken_away_is_noticed() {
    let double = Kubernetes::start().await;
    let held = leads(&replica(&double, "a", SHORT)).await;
    double.forbid(Verb::Update, Resource::Leases);
    rests(&held).await;
}

/// NEW-59: missing rights are named after a while, since a Pod may start before its role; a server that is away is waited
/// for.
#[tokio::test]
async fn missing_rights_are_named() {
    const QUICK: Times = times(1_000, 600, 100);
    for verb in [Verb::Get, Verb::Create] {
        let double = Kubernetes::start().await;
        double.forbid(verb, Resource::Leases);
        let refusal = timeout(SOON, replica(&double, "a", QUICK).acquire()).await.unwrap().err().unwrap().to_string();
        assert!(refusal.contains(NAME) && refusal.contains(NAMESPACE) && refusal.contains(verb.name()), "{refusal}");
        double.allow(verb, Resource::Leases);
        leads(&replica(&double, "a", QUICK)).await;
    }
    let double = Kubernetes::start().await;
    let nowhere = KubernetesLease::new(connect(&double, "nowhere"), &"one".parse().unwrap(), "a").with_times(QUICK);
    let refusal = timeout(SOON, nowhere.acquire()).await.unwrap().err().unwrap().to_string();
    assert!(refusal.contains("namespace nowhere") && refusal.contains("must exist"), "{refusal}");

    double.set_away(Away::Refusing);
    let a = replica(&double, "a", QUICK);
    let waiting = tokio::spawn(async move { leads(&a).await });
    tokio::time::sleep(2 * QUICK.lease).await;
    assert!(!waiting.is_finished());
    double.set_away(Away::No);
    waiting.await.unwrap();
}
