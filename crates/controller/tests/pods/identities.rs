//! What becomes of jobs whose identity entry is refused, ignored or late, and whose agent gives it to them.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::gitea::Status;
use testkit::kubernetes::{Plan, Resource, Timing, Verb};
use testkit::world::SOON;

use crate::site::text;
use crate::{Site, job, site};

const ENTRIES: Resource = Resource::ClusterStaticEntries;
/// Of the settings.
const CLASS: &str = "spire-mgmt-spire";
/// What an executor ends with that has waited for its identity in vain.
const NO_IDENTITY: i32 = 10;

/// T18, NEW-76, F73: nobody takes the entries, because their class is another one or their manager is away; or the manager took
/// one that SPIRE's server refuses. Each job ends with `identity_timeout` when its executors have waited for as long as they may,
/// no entry and no Pod is left, and the slots serve other jobs.
#[tokio::test]
async fn an_identity_that_nobody_gives() {
    let site = site(2).await;
    site.kubernetes.kubelet().entry_manager(Some("another"));
    site.kubernetes.kubelet().usually(Plan::End { code: NO_IDENTITY, after: Duration::from_millis(300) });
    let jobs = ["ignored", "refused"].map(|key| site.gitea.push_one(job(key, &["say never"])));
    let refused = |site: &Site| {
        let entries = site.kubernetes.objects(ENTRIES);
        let entry = entries.iter().find(|entry| text(entry, "/spec/spiffeID").ends_with("/refused"))?;
        Some(text(entry, "/metadata/name").to_owned())
    };
    site.eventually("its entry is there", SOON, |site| refused(site).is_some()).await;
    let status = json!({"rendered": true, "masked": false, "set": false});
    site.kubernetes.edit(ENTRIES, &refused(&site).unwrap(), |entry| entry["status"] = status);
    for job in jobs {
        let state = site.ends_as(job, Status::Failure, 2 * SOON).await;
        let told = |row: &&str| row.starts_with("##[error]identity_timeout: ");
        assert!(state.rows().iter().any(told), "{:?}", state.rows());
    }
    site.eventually("no entry is left", SOON, |site| site.kubernetes.names(ENTRIES).is_empty()).await;
    site.kubernetes.kubelet().usually(Plan::Run);
    site.kubernetes.kubelet().entry_manager(Some(CLASS));
    let next = site.gitea.push_one(job("next", &["say here"]));
    site.ends_as(next, Status::Success, SOON).await;
    site.finish().await;
}

/// T18, NEW-76, F73: an entry that is masked by somebody's older one ends its job at once, and the page names the entry.
#[tokio::test]
async fn a_masked_identity() {
    let site = site(1).await;
    site.kubernetes.kubelet().entry_manager(None);
    let one = site.gitea.push_one(job("one", &["say never"]));
    site.eventually("its entry is there", SOON, |site| !site.kubernetes.names(ENTRIES).is_empty()).await;
    let name = site.kubernetes.names(ENTRIES).remove(0);
    let status = json!({"rendered": true, "masked": true, "set": false});
    site.kubernetes.edit(ENTRIES, &name, |entry| entry["status"] = status);
    let state = site.ends_as(one, Status::Failure, SOON).await;
    let told = |row: &&str| row.starts_with("##[error]identity_rejected: ") && row.contains(&name);
    assert!(state.rows().iter().any(told), "{:?}", state.rows());
    site.finish().await;
}

/// T18, NEW-76, F73: an entry that is taken late runs its job, and its manager's later passes, which clear `set` again, change
/// nothing.
#[tokio::test]
async fn an_identity_that_comes_late() {
    let site = site(1).await;
    site.kubernetes.kubelet().entry_manager(None);
    let one = site.gitea.push_one(job("one", &["gate here"]));
    let told = |row: &&str| row.contains("identity");
    site.eventually("its page says what it waits for", 2 * SOON, |site| site.gitea.state(one).rows().iter().any(told))
        .await;
    let name = site.kubernetes.names(ENTRIES).remove(0);
    let status = |set: bool| json!({"rendered": true, "masked": false, "set": set});
    site.kubernetes.edit(ENTRIES, &name, |entry| entry["status"] = status(true));
    site.desk.arrived("here", 1, SOON).await;
    site.kubernetes.edit(ENTRIES, &name, |entry| entry["status"] = status(false));
    site.desk.open_gate("here");
    site.ends_as(one, Status::Success, SOON).await;
    site.finish().await;
}

/// T18, NEW-76, F73: a hundred launches at once, whose entries are taken 20 s later, all run.
#[tokio::test]
async fn a_hundred_identities_that_take_their_time() {
    let keys: Vec<String> = (1..=100).map(|n| format!("job{n}")).collect();
    let site = site(100).await;
    site.kubernetes.kubelet().timing(Timing { others: Duration::from_secs(20), ..Timing::default() });
    let jobs = site.gitea.push(keys.iter().map(|key| job(key, &["say here"])).collect());
    for job in jobs {
        site.ends_as(job, Status::Success, 4 * SOON).await;
    }
    site.finish().await;
}

/// T49, NEW-67, F63: each entry has the agent of its Pod's own node for a parent, also on a node that was replaced under its
/// name.
#[tokio::test]
async fn each_node_has_its_own_agent() {
    let site = site(3).await;
    let first = text(&site.kubernetes.objects(Resource::Nodes)[0], "/metadata/name").to_owned();
    let nodes = [first.as_str(), "node-b", "node-c"];
    nodes[1..].iter().for_each(|node| site.kubernetes.kubelet().add_node(node));
    let jobs = ["a", "b", "c"].map(|key| site.gitea.push_one(job(key, &["gate here"])));
    site.desk.arrived("here", 3, SOON).await;
    let replaced = site.kubernetes.object(Resource::Nodes, "node-b");
    assert_eq!(agents(&site), expected(&site, &nodes));

    // A machine is lost, and another one comes with its name.
    site.kubernetes.kubelet().delete_node("node-b");
    site.eventually("one job has ended", SOON, |site| {
        jobs.iter().any(|job| site.gitea.state(*job).status == Status::Failure)
    })
    .await;
    let since = |site: &Site| site.kubernetes.calls_of(Verb::Get, Resource::Nodes).last().unwrap().instant.elapsed();
    site.eventually("a machine takes its time to come", SOON, |site| since(site) >= Duration::from_secs(1)).await;
    site.kubernetes.kubelet().add_node("node-b");
    assert_ne!(site.kubernetes.object(Resource::Nodes, "node-b"), replaced);
    let next = site.gitea.push_one(job("next", &["gate next"]));
    site.desk.arrived("next", 1, SOON).await;
    assert_eq!(agents(&site), expected(&site, &nodes));
    ["here", "next"].iter().for_each(|gate| site.desk.open_gate(gate));
    site.ends_as(next, Status::Success, SOON).await;
    let lost = jobs.iter().filter(|job| site.gitea.state(**job).status == Status::Failure).count();
    assert_eq!(lost, 1);
    site.finish().await;
}

/// The parent of the entry of each Pod, by node.
fn agents(site: &Site) -> Vec<(String, String)> {
    let entries = site.kubernetes.objects(ENTRIES);
    let of = |pod: &Value| {
        let selector = json!(format!("k8s:pod-uid:{}", text(pod, "/metadata/uid")));
        let entry = entries.iter().find(|entry| entry["spec"]["selectors"].as_array().unwrap().contains(&selector));
        let parent = entry.map(|entry| text(entry, "/spec/parentID")).unwrap_or_default();
        (text(pod, "/spec/nodeName").to_owned(), parent.to_owned())
    };
    let mut all: Vec<_> = site.kubernetes.objects(Resource::Pods).iter().map(of).collect();
    all.sort();
    all
}

/// What the agents of these nodes are called.
fn expected(site: &Site, nodes: &[&str]) -> Vec<(String, String)> {
    let of = |node: &&str| {
        let object = site.kubernetes.object(Resource::Nodes, node).unwrap();
        let agent = format!("/spire/agent/k8s_psat/ci-nodes/{}", text(&object, "/metadata/uid"));
        ((*node).to_owned(), format!("spiffe://{}{agent}", testkit::cluster::settings::TRUST_DOMAIN))
    };
    let mut all: Vec<_> = nodes.iter().map(of).collect();
    all.sort();
    all
}
