//! One leader follows another while jobs run and others wait: there is one at a time, no row is lost or there twice, and
//! there are never more Pods than slots.

mod creates;
mod shift;

use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::kubernetes::{Call, Resource, Verb};
use testkit::outcome::Rule;
use testkit::real::Signal;
use testkit::world::SOON;

use crate::site::{Site, text};
use shift::Shift;

/// NEW-59: the successor serves within this time after an orderly end.
const ORDERLY: Duration = Duration::from_secs(3);

/// NEW-59: after a kill.
const KILLED: Duration = Duration::from_secs(20);

/// A stolen Lease is first seen as another's, and then has to run out.
const STOLEN: Duration = Duration::from_secs(40);

/// Longer than a Lease, so that a standby would have taken it.
const LONG: Duration = Duration::from_secs(20);

/// Longer than that, and than a heartbeat waits for its answer.
const LONGER: Duration = Duration::from_secs(40);

/// T16, NEW-59, NEW-16, SCH-10, SCH-12, F48, F50: (a) the leader is asked to end.
#[tokio::test]
async fn an_orderly_end_under_load() {
    let mut shift = Shift::begin().await;
    assert!(shift.site.sigterm(0).await.success(), "{}", shift.site.log());
    shift.site.succeeded();
    shift.serves(1, ORDERLY).await;
    shift.ends(2).await;
    shift.finish().await;
}

/// T16, NEW-59, NEW-55, SCH-10, SCH-12, F48: (b) the leader is killed.
#[tokio::test]
async fn a_kill_under_load() {
    let mut shift = Shift::begin().await;
    shift.site.kill9(0).await;
    shift.site.succeeded();
    shift.serves(1, KILLED).await;
    shift.ends(2).await;
    shift.finish().await;
}

/// T16, NEW-59, NEW-13, F48: (d) the leader alone is cut off from Gitea, for longer than a lease: it leads on, since nobody could
/// say for another one that he does better, and every row comes when the wire is there again.
#[tokio::test]
async fn a_leader_without_gitea_leads_on() {
    let shift = Shift::begin().await;
    let leader = shift.site.leader();
    shift.wires[0].cut();
    tokio::time::sleep(LONGER).await;
    assert_eq!(shift.site.leader(), leader, "{}", shift.site.log());
    shift.wires[0].mend();
    shift.ends(1).await;
    // It could say nothing meanwhile.
    shift.finish_but_for(&[Rule::Silence]).await;
}

/// T16, NEW-59, NEW-47, F48: (e) the leader alone is cut off from NATS, for longer than a lease: its Lease lies elsewhere, so it
/// leads on, its jobs run on, and what waits is started when the wire is there again.
#[tokio::test]
async fn a_leader_without_nats_leads_on() {
    let shift = Shift::begin().await;
    let leader = shift.site.leader();
    shift.nats.cut();
    tokio::time::sleep(LONG).await;
    assert_eq!(shift.site.leader(), leader, "{}", shift.site.log());
    shift.nats.mend();
    shift.ends(1).await;
    shift.finish().await;
}

/// T16, NEW-59, NEW-60, SCH-11, F48, F49: (f) the leader is frozen until another one has brought everything to its end. Thawed it
/// fences itself before it says or writes anything, and ends with an error and its text.
#[tokio::test]
async fn a_frozen_leader_fences_itself() {
    let mut shift = Shift::begin().await;
    shift.site.signal(0, Signal::Stop);
    shift.site.succeeded();
    shift.serves(1, KILLED).await;
    shift.ends(2).await;
    let kubernetes = Arc::clone(&shift.site.kubernetes);
    let empty = |_: &Site| kubernetes.names(Resource::Pods).is_empty();
    shift.site.eventually("every Pod is gone", SOON, empty).await;
    let gitea = Arc::clone(&shift.site.gitea);
    // The other one only renews its Lease and asks Gitea for work.
    let said = || (gitea.counters().update_tasks, gitea.counters().update_logs);
    let (before, calls) = (said(), kubernetes.calls().len());
    shift.site.signal(0, Signal::Continue);
    loses(&mut shift.site).await;
    assert_eq!(said(), before, "the thawed one spoke of tasks that are over");
    assert_eq!(written(&kubernetes.calls()[calls..]), Vec::<String>::new(), "the thawed one wrote");
    shift.finish().await;
}

/// T16, NEW-59, NEW-60, SCH-11, F48, F49: (g) somebody else writes himself into the Lease and does nothing with it: the leader
/// ends with an error and its text, and the next one leads when the Lease has run out.
#[tokio::test]
async fn a_stolen_lease_under_load() {
    let mut shift = Shift::begin().await;
    let lease = shift.site.kubernetes.objects(Resource::Leases).remove(0);
    let name = text(&lease, "/metadata/name").to_owned();
    shift.site.kubernetes.edit(Resource::Leases, &name, |lease| lease["spec"]["holderIdentity"] = "thief".into());
    let stolen = Instant::now();
    loses(&mut shift.site).await;
    assert!(stolen.elapsed() < Duration::from_secs(10), "it went on for {:?}", stolen.elapsed());
    shift.site.succeeded();
    shift.serves(1, STOLEN).await;
    shift.ends(2).await;
    shift.finish().await;
}

/// The first ends by itself, with its text.
async fn loses(site: &mut Site) {
    let status = site.exits(0).await;
    assert!(!status.success(), "{status}");
    assert!(site.log().contains("scheduler leadership lost"), "{}", site.log());
}

/// What was written into the cluster, but for the Lease, and for Secrets of tasks that are claimed: they go by their UID, whoever
/// takes them away.
fn written(calls: &[Call]) -> Vec<String> {
    let reads = [Verb::Get, Verb::List, Verb::Watch];
    let cleans =
        |call: &&Call| call.is(Verb::Delete, Resource::Secrets) && !text(&call.body, "/preconditions/uid").is_empty();
    let writes = calls.iter().filter(|call| !reads.contains(&call.verb) && call.resource != Resource::Leases);
    let writes = writes.filter(|call| !cleans(call));
    writes.map(|call| format!("{} {:?} {}: {}", call.verb.name(), call.resource, call.name, call.body)).collect()
}
