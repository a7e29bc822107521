//! Who leads when everything answers.

use std::io::Write as _;
use std::sync::Arc;

use super::*;
use crate::lease::contract;

/// NEW-59, NEW-60, SCH-10, F48, F50: what every leadership keeps.
#[tokio::test]
async fn keeps_the_contract() {
    let double = Kubernetes::start().await;
    contract::all(async |name: &str| {
        let cluster = connect(&double, NAMESPACE);
        let lease = KubernetesLease::new(cluster, &name.parse().unwrap(), "same").with_times(LONG);
        Arc::new(lease) as Arc<dyn Leadership>
    })
    .await;
}

/// NEW-59, NEW-60, SCH-10, T16: what a holder of the same place left is taken at once, and nothing else is.
#[tokio::test]
async fn keeps_the_contract_of_places() {
    let double = Kubernetes::start().await;
    contract::places(async |name: &str, place: Option<&str>| {
        let cluster = connect(&double, NAMESPACE);
        let lease = KubernetesLease::new(cluster, &name.parse().unwrap(), "same").at(place).with_times(LONG);
        Arc::new(lease) as Arc<dyn Leadership>
    })
    .await;
}

/// SCH-10, NEW-59, F50, T16: with the real times, a standby that has waited leads right after the release.
#[tokio::test]
async fn an_orderly_end_is_followed_at_once() {
    let double = Kubernetes::start().await;
    let (a, b) = (replica(&double, "a", Times::default()), replica(&double, "b", Times::default()));
    let held = leads(&a).await;
    let tenure = held.tenure();
    let next = tokio::spawn(async move { leads(&b).await });
    calls(&double, Verb::Get, 2).await;
    assert!(!next.is_finished());
    let began = Instant::now();
    held.release().await;
    assert_eq!(tenure.over(), Some(Lost::Released));
    let next = next.await.unwrap();
    let took = began.elapsed();
    // Meant is 3 s (NEW-59); a machine that is busy enough misses that, but never the order of it.
    writeln!(std::io::stdout(), "led again {took:?} after the end").unwrap();
    assert!(took < Times::default().lease, "{took:?}");
    still_leads(&next.tenure());
}

/// SCH-10, NEW-59: the object is what client-go writes, and every tool shows who leads; a release leaves it to anybody.
#[tokio::test]
async fn the_object_says_who_leads() {
    let double = Kubernetes::start().await;
    let held = leads(&replica(&double, "pod-a", LONG)).await;
    let first = spec(&double);
    assert!(first["holderIdentity"].as_str().unwrap().starts_with("pod-a_"), "{first}");
    assert_eq!((&first["leaseDurationSeconds"], &first["leaseTransitions"]), (&json!(60), &json!(0)));
    renewals(&double, 1).await;
    let renewed = spec(&double);
    assert_eq!(renewed["acquireTime"], first["acquireTime"]);
    assert_ne!(renewed["renewTime"], first["renewTime"]);
    held.release().await;
    let free = spec(&double);
    assert_eq!((&free["holderIdentity"], &free["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    let _next = leads(&replica(&double, "pod-b", LONG)).await;
    assert_eq!(spec(&double)["leaseTransitions"], json!(1));
}

/// NEW-143, SCH-10: whoever looks at the Lease sees who began and who stopped to lead; where that may not be written, or is not
/// answered, everybody leads all the same.
#[tokio::test]
async fn who_leads_is_an_event() {
    let double = Kubernetes::start().await;
    leads(&replica(&double, "pod-a", LONG)).await.release().await;
    let _next = leads(&replica(&double, "pod-b", LONG)).await;
    let events = double.events(NAME);
    let told: Vec<_> = events.iter().map(|(reason, message)| (reason.as_str(), short(message))).collect();
    let expected = ["pod-a became leader", "pod-a stopped leading", "pod-b became leader"];
    assert_eq!(told, expected.map(|message| ("LeaderElection", message.to_owned())));
    let uid = &double.object(Resource::Leases, NAME).unwrap()["metadata"]["uid"];
    assert!(double.objects(Resource::Events).iter().all(|event| event["involvedObject"]["uid"] == *uid));

    let double = Kubernetes::start().await;
    double.forbid(Verb::Create, Resource::Events);
    leads(&replica(&double, "pod-a", LONG)).await.release().await;
    double.allow(Verb::Create, Resource::Events);
    double.fail(On::call(Verb::Create, Resource::Events), Fault::hang());
    leads(&replica(&double, "pod-b", LONG)).await.release().await;
}

/// Without the session.
fn short(message: &str) -> String {
    let (identity, what) = message.split_once(' ').unwrap();
    format!("{} {what}", identity.rsplit_once('_').unwrap().0)
}

/// SCH-10, NEW-59, T16: a holder that is gone without a word is replaced when its lease has run out, and not before.
#[test]
fn a_killed_holder_is_replaced_after_its_lease() {
    let here = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let there = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let double = here.block_on(Kubernetes::start());
    let held = there.block_on(async { leads(&replica(&double, "a", SHORT)).await });
    let tenure = held.tenure();
    let began = Instant::now();
    there.shutdown_background();
    here.block_on(async {
        let next = leads(&replica(&double, "b", SHORT)).await;
        assert!(tenure.over().is_some());
        assert!(began.elapsed() >= SHORT.lease, "{:?}", began.elapsed());
        next.release().await;
    });
}

/// NEW-59, SCH-10: it is the holder who says how long it leads without writing, also to one who would wait for less.
#[tokio::test]
async fn a_holder_says_how_long_it_leads() {
    let double = Kubernetes::start().await;
    let hasty = replica(&double, "b", times(200, 150, 50));
    leads(&hasty).await.release().await;
    double.edit(Resource::Leases, NAME, |lease| {
        lease["spec"]["holderIdentity"] = json!("somebody");
        lease["spec"]["leaseDurationSeconds"] = json!(2);
    });
    let began = Instant::now();
    leads(&hasty).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

/// T15, NEW-1, F153: two instances share a namespace and nothing else.
#[tokio::test]
async fn two_instances_do_not_touch_each_other() {
    let double = Kubernetes::start().await;
    let of = |instance: &str| {
        KubernetesLease::new(connect(&double, NAMESPACE), &instance.parse().unwrap(), "same").with_times(LONG)
    };
    let (held, other) = (leads(&of("one")).await, leads(&of("one-1")).await);
    assert_eq!(double.names(Resource::Leases), [NAME, "dynamic-runner-scheduler-one-1"]);
    held.release().await;
    still_leads(&other.tenure());
}
