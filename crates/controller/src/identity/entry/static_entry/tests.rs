//! Objects on the double of the Kubernetes API.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use domain::identity::Segment;
use serde_json::{Value, json};
use testkit::kubernetes::{Away, Fault, Kubernetes, On, Resource, Verb};

use super::super::contract::{self, Site};
use super::super::tests::{alias, pod, rules};
use super::*;
use crate::config::EntryParent;
use crate::kubernetes::testing::connect;

const ENTRIES: Resource = Resource::ClusterStaticEntries;
const CLASS: &str = "spire-mgmt-spire";
const SOON: Duration = Duration::from_secs(20);

struct Double(Kubernetes);

impl Double {
    async fn start() -> Self {
        let double = Kubernetes::start().await;
        double.kubelet().entry_manager(Some(CLASS));
        Self(double)
    }

    /// Nobody else writes: its status would come between our look and our write now and then.
    async fn without_manager() -> Self {
        let double = Kubernetes::start().await;
        double.kubelet().entry_manager(None);
        Self(double)
    }

    fn of(&self, instance: &str) -> StaticEntries {
        let cluster = connect(&self.0, "gitea-actions");
        StaticEntries::new(cluster, &instance.parse().unwrap(), CLASS, rules(), alias())
    }
}

impl Site for Double {
    fn issuer(&self, instance: &str) -> Arc<dyn IdentityIssuer> {
        Arc::new(self.of(instance))
    }

    fn entries(&self) -> BoxFuture<'_, BTreeMap<String, String>> {
        let said = |entry: Value| {
            let spec = &entry["spec"];
            let selectors: Vec<&str> = spec["selectors"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
            let [id, parent, ttl] = ["spiffeID", "parentID", "x509SVIDTTL"].map(|key| spec[key].as_str().unwrap());
            let seconds = humantime::parse_duration(ttl).unwrap().as_secs();
            let name = entry["metadata"]["name"].as_str().unwrap();
            let uid = name[name.len().saturating_sub(36)..].to_owned();
            (uid, format!("{id} {parent} {} {seconds}", selectors.join(" ")))
        };
        async move { self.0.objects(ENTRIES).into_iter().map(said).collect() }.boxed()
    }

    fn edit(&self, pod: PodKey) -> BoxFuture<'_, ()> {
        self.0.edit(ENTRIES, &object::name(&pod), |entry| {
            entry["spec"]["spiffeID"] = json!("spiffe://td.test/ci/acme/app/other");
            entry["spec"]["x509SVIDTTL"] = json!("24h");
        });
        async {}.boxed()
    }

    fn lose(&self, pod: PodKey) -> BoxFuture<'_, ()> {
        self.0.delete(ENTRIES, &object::name(&pod));
        async {}.boxed()
    }

    #[expect(clippy::async_yields_async, reason = "what clears the way is called later")]
    fn obstruct(&self, pod: BoundPod) -> BoxFuture<'_, BoxFuture<'_, ()>> {
        let name = object::name(&pod.key);
        let spec = json!({"spiffeID": "spiffe://td.test/else", "parentID": "spiffe://td.test/x", "selectors": ["k8s:ns:x"],
            "x509SVIDTTL": "60s"});
        self.0.add(ENTRIES, "", json!({"metadata": {"name": name}, "spec": spec}));
        async move { async move { self.0.delete(ENTRIES, &name) }.boxed() }.boxed()
    }
}

/// POD-4, POD-6, POD-7, NEW-2, NEW-75, NEW-128, NEW-129, F70, F71, F72, T15, T53: what every issuer keeps.
#[tokio::test]
async fn keeps_the_contract() {
    contract::all(&Double::start().await).await;
}

/// NEW-76, F73, T18: bound when the manager has taken it, whatever its later passes say; rejected when it is masked; else
/// waited for.
#[tokio::test]
async fn the_managers_word_is_followed() {
    let double = Double::start().await;
    let issuer = double.of("one");
    assert_eq!(issuer.bind(pod("1")).await.unwrap(), Standing::Pending);
    let taken = |double: &Kubernetes| double.objects(ENTRIES)[0]["status"]["rendered"] == true;
    double.0.wait_for("it is taken", taken, SOON).await.unwrap();
    assert_eq!(issuer.bind(pod("1")).await.unwrap(), Standing::Bound);
    let name = object::name(&pod("1").key);
    double.0.kubelet().entry_manager(None);
    let mut status = json!({"rendered": true, "masked": false, "set": false});
    double.0.edit(ENTRIES, &name, |entry| entry["status"] = status.clone());
    assert_eq!(issuer.bind(pod("1")).await.unwrap(), Standing::Bound);
    status["masked"] = json!(true);
    double.0.edit(ENTRIES, &name, |entry| entry["status"] = status.clone());
    let standing = issuer.bind(pod("1")).await.unwrap();
    assert!(matches!(&standing, Standing::Rejected { cause } if cause.contains("older")), "{standing:?}");
    // Nobody comes to it.
    assert_eq!(issuer.bind(pod("2")).await.unwrap(), Standing::Pending);
    assert_eq!(issuer.bind(pod("2")).await.unwrap(), Standing::Pending);
}

/// NEW-67, F63, T49: the parent is the agent of the Pod's own node, by the UID that the node has now; a node that is gone is
/// waited for.
#[tokio::test]
async fn the_parent_is_the_agent_of_the_node() {
    let double = Double::without_manager().await;
    for node in ["node-a", "node-b"] {
        double.0.kubelet().add_node(node);
    }
    let cluster = connect(&double.0, "gitea-actions");
    let parent = EntryParent::OfNode { cluster: "prod".parse::<Segment>().unwrap() };
    let parents = Parents::new(&parent, &rules().identity, &cluster).unwrap();
    let issuer = StaticEntries::new(cluster, &"one".parse().unwrap(), CLASS, rules(), parents);
    let expected = |node: &str| {
        let uid = double.0.object(Resource::Nodes, node).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        format!("spiffe://td.test/spire/agent/k8s_psat/prod/{uid}")
    };
    let parent_of = async |number: &str, node: &str| {
        issuer.bind(BoundPod { node: node.to_owned(), ..pod(number) }).await.unwrap();
        double.entries().await[&pod(number).key.uid].split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(parent_of("1", "node-a").await, expected("node-a"));
    assert_eq!(parent_of("2", "node-b").await, expected("node-b"));
    assert_eq!(parent_of("3", "node-b").await, expected("node-b"));
    // A burst asks once for each node.
    assert_eq!(double.0.count(Verb::Get, Resource::Nodes), 2);

    let before = expected("node-b");
    double.0.kubelet().delete_node("node-b");
    // Paused for the step alone: whoever waits for a socket would have its time limits run out at once.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let gone = issuer.bind(BoundPod { node: "node-b".to_owned(), ..pod("4") }).await;
    assert!(matches!(&gone, Err(IssueError::Later { cause }) if cause.contains("node-b")), "{gone:?}");
    double.0.kubelet().add_node("node-b");
    assert_ne!(expected("node-b"), before);
    assert_eq!(parent_of("4", "node-b").await, expected("node-b"));
    // An entry with the former parent is put right.
    assert_eq!(parent_of("3", "node-b").await, expected("node-b"));
}

/// NEW-67, F63: a parent of another trust domain is refused before anything starts.
#[tokio::test]
async fn a_foreign_parent_is_refused() {
    let double = Double::start().await;
    let parent = EntryParent::Fixed("spiffe://other.test/ci-nodes".parse().unwrap());
    let refused = Parents::new(&parent, &rules().identity, &connect(&double.0, "x")).err().unwrap().to_string();
    assert!(refused.contains("SPIRE_AGENT_ID") && refused.contains("TRUST_DOMAIN"), "{refused}");
}

/// POD-6, POD-7, NEW-74, F72: an answer that was lost is made good by the next call, and nothing is done twice.
#[tokio::test]
async fn lost_answers_are_made_good() {
    let double = Double::without_manager().await;
    let issuer = double.of("one");
    double.0.fail(On::call(Verb::Create, ENTRIES), Fault::lost_answer());
    assert!(matches!(issuer.bind(pod("1")).await, Err(IssueError::Later { .. })));
    issuer.bind(pod("1")).await.unwrap();
    double.edit(pod("1").key).await;
    double.0.fail(On::call(Verb::Update, ENTRIES), Fault::lost_answer());
    assert!(matches!(issuer.bind(pod("1")).await, Err(IssueError::Later { .. })));
    issuer.bind(pod("1")).await.unwrap();
    assert_eq!(double.0.count(Verb::Update, ENTRIES), 1);
    double.0.fail(On::call(Verb::Delete, ENTRIES), Fault::lost_answer());
    assert!(matches!(issuer.release(pod("1").key).await, Err(IssueError::Later { .. })));
    issuer.release(pod("1").key).await.unwrap();
    assert!(double.entries().await.is_empty());
}

/// POD-7, NEW-2, F70: what is deleted is named by its UID: an object that took the name of ours meanwhile stays.
#[tokio::test]
async fn a_delete_names_the_object() {
    let double = Double::start().await;
    let issuer = double.of("one");
    issuer.bind(pod("1")).await.unwrap();
    let name = object::name(&pod("1").key);
    double.0.delete(ENTRIES, &name);
    drop(double.obstruct(pod("1")).await);
    issuer.release(pod("1").key).await.unwrap();
    assert_eq!(double.0.names(ENTRIES), [name]);
}

/// NEW-75, NEW-129, F71, F133, T53: a list that fails, or whose end cannot be read, is evidence of nothing.
#[tokio::test]
async fn a_list_that_fails_deletes_nothing() {
    let double = Double::start().await;
    let issuer = double.of("one");
    for number in 1..=3 {
        issuer.bind(pod(&number.to_string())).await.unwrap();
    }
    assert_eq!(issuer.sweep(Vec::new()).await.unwrap().removed, 0);
    for fault in [Fault::internal(), Fault::expired(), Fault::page(200, "{\"items\": [")] {
        double.0.fail(On::call(Verb::List, ENTRIES), fault);
        assert!(matches!(issuer.sweep(Vec::new()).await, Err(IssueError::Later { .. })));
    }
    double.0.set_away(Away::Refusing);
    assert!(issuer.sweep(Vec::new()).await.is_err());
    double.0.set_away(Away::No);
    assert_eq!(double.0.count(Verb::Delete, ENTRIES), 0);
    assert_eq!(issuer.sweep(Vec::new()).await.unwrap().removed, 3);
}

/// NEW-74, NEW-128, F130, T53: one entry that cannot be deleted holds up no other, and goes when it can.
#[tokio::test]
async fn one_entry_holds_up_no_other() {
    let double = Double::start().await;
    let issuer = double.of("one");
    for number in 1..=3 {
        issuer.bind(pod(&number.to_string())).await.unwrap();
    }
    issuer.sweep(Vec::new()).await.unwrap();
    let stuck = object::name(&pod("2").key);
    double.0.fail(On::call(Verb::Delete, ENTRIES).named(&stuck), Fault::internal());
    assert_eq!(issuer.sweep(Vec::new()).await.unwrap().removed, 2);
    assert_eq!(double.0.names(ENTRIES), [stuck]);
    assert_eq!(issuer.sweep(Vec::new()).await.unwrap().removed, 1);
}

/// POD-6, NEW-76: a refusal that no retry cures says what to do; missing rights and a missing definition are named.
#[tokio::test]
async fn refusals_are_named() {
    let double = Double::start().await;
    let issuer = double.of("one");
    double.0.fail(On::call(Verb::Create, ENTRIES), Fault::denied_by("policy.test", "no entries on Mondays"));
    let refused = issuer.bind(pod("1")).await;
    assert!(
        matches!(&refused, Err(IssueError::Refused { cause, remedy }) if cause.contains("Mondays") && !remedy.is_empty()),
        "{refused:?}"
    );
    double.0.forbid(Verb::Create, ENTRIES);
    let refused = issuer.bind(pod("1")).await;
    assert!(matches!(&refused, Err(IssueError::Later { cause }) if cause.contains("create")), "{refused:?}");
}

/// NEW-54, NEW-75, POD-6: what an earlier process left is found by one list, whatever there is of it; with other content it
/// is replaced, and one that went meanwhile is made again later by whoever misses it.
#[tokio::test]
async fn one_list_finds_what_was_left() {
    let double = Double::without_manager().await;
    let earlier = double.of("one");
    let keys: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    for key in &keys {
        earlier.bind(pod(key)).await.unwrap();
    }
    double.edit(pod("7").key).await;
    let before = double.0.calls().len();
    let later = double.of("one");
    for key in &keys {
        assert_eq!(later.bind(pod(key)).await.unwrap(), Standing::Pending);
    }
    let made: Vec<Verb> = double.0.calls()[before..].iter().map(|call| call.verb).collect();
    assert_eq!(made, [Verb::List, Verb::Update], "no call for each");
    assert!(double.entries().await.values().all(|said| !said.contains("/other")), "the changed one was replaced");
}
