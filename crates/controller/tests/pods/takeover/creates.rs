//! Creates of Pods of which nobody knows what became of them.

use std::time::Duration;

use testkit::gitea::{Latency, Status};
use testkit::kubernetes::{Fault, On, Resource, Verb};
use testkit::world::SOON;

use super::shift::Most;
use crate::job;
use crate::site::{Site, text};

/// A heartbeat of a task that waits, which brings the cancel, comes sooner.
const SLOW: Duration = Duration::from_secs(9);

/// NEW-55, NEW-62, F42, T45: a Pod is made, the answer is lost, and the watch is silent: the Pod is looked for before its slot
/// can be another's, although no list shows it.
#[tokio::test]
async fn a_create_whose_answer_is_lost_keeps_its_slot() {
    let site = Site::start(1, &[("LOOK_AHEAD", "2")]).await;
    let most = Most::of(&site.kubernetes);
    site.kubernetes.silence_watches(true);
    site.kubernetes.fail(On::call(Verb::Create, Resource::Pods), Fault::lost_answer());
    let jobs = ["one", "two"].map(|key| site.gitea.push_one(job(key, &["say here"])));
    let count = |site: &Site, verb| site.kubernetes.count(verb, Resource::Pods);
    let goes_on = |site: &Site| count(site, Verb::Get) > 0 || count(site, Verb::Create) > 1;
    site.eventually("it is looked for, or another one is made", SOON, goes_on).await;
    site.kubernetes.silence_watches(false);
    for job in jobs {
        site.ends_as(job, Status::Success, SOON).await;
    }
    assert_eq!(most.seen(), 1, "{}", site.log());
    site.finish().await;
}

/// NEW-55, NEW-62, F42, T45: a job is cancelled while the create of its Pod is under way: its slot is nobody else's before it is
/// known what became of the create.
#[tokio::test]
async fn a_create_under_way_keeps_its_slot() {
    let site = Site::start(1, &[("LOOK_AHEAD", "2")]).await;
    let most = Most::of(&site.kubernetes);
    site.kubernetes.set_latency(Latency::between(SLOW, SLOW + Duration::from_millis(1), 1));
    let cancelled = site.gitea.push_one(job("cancelled", &["say never"]));
    let creates = |site: &Site| site.kubernetes.count(Verb::Create, Resource::Pods);
    site.eventually("a create is under way", SOON, |site| creates(site) == 1).await;
    site.kubernetes.set_latency(Latency::default());
    let next = site.gitea.push_one(job("next", &["say here"]));
    site.gitea.cancel(cancelled);
    site.ends_as(next, Status::Success, SOON).await;
    assert_eq!(most.seen(), 1, "{}", site.log());
    site.finish().await;
}

/// NEW-55, NEW-63, NEW-148, T5, F42: the create of a process that was killed is carried out when the next one has listed and has no
/// slot for it. That it is there nobody could prevent; it counts from then on, so that nothing is started beside it, and it is
/// removed, while what runs runs on. Its task gets another Pod when there is a slot.
#[tokio::test]
async fn a_create_that_comes_late_is_counted_and_removed() {
    let mut site = Site::start(2, &[("LOOK_AHEAD", "2")]).await;
    let runs = site.gitea.push_one(job("runs", &["gate here", "say after"]));
    site.desk.arrived("here", 1, SOON).await;
    site.kubernetes.fail(On::call(Verb::Create, Resource::Pods), Fault::hang());
    let late = site.gitea.push_one(job("late", &["say late"]));
    let creates = |site: &Site| site.kubernetes.calls_of(Verb::Create, Resource::Pods);
    site.eventually("a create is under way", SOON, |site| creates(site).len() == 2).await;
    site.kill9(0).await;
    // What runs takes the only slot of the next one.
    site.set(&[("POD_CAPACITY", "1")]);
    let declared = site.gitea.counters().declares;
    site.restart();
    site.eventually("the next one works", SOON, |site| site.gitea.counters().declares > declared).await;
    let waits = site.gitea.push_one(job("waits", &["say waited"]));
    site.eventually("it holds them", SOON, |site| site.gitea.state(waits).task.is_some()).await;
    let call = creates(&site).remove(1);
    site.kubernetes.add(Resource::Pods, &call.namespace, call.body.clone());
    let uid = site.kubernetes.pod(&call.name)["metadata"]["uid"].clone();
    let gone = |site: &Site| {
        let pod = site.kubernetes.object(Resource::Pods, &call.name);
        pod.is_none_or(|pod| pod["metadata"]["uid"] != uid)
    };
    site.eventually("it is removed", SOON, gone).await;
    assert_eq!(creates(&site).len(), 2, "something was started beside what runs: {}", site.log());
    let most = Most::of(&site.kubernetes);
    site.desk.open_gate("here");
    for job in [runs, late, waits] {
        site.ends_as(job, Status::Success, SOON).await;
    }
    assert_eq!(most.seen(), 1, "{}", site.log());
    let again = creates(&site).iter().filter(|made| text(&made.body, "/metadata/name") == call.name).count();
    assert_eq!(again, 1, "the name of the late one was used again");
    site.finish().await;
}
