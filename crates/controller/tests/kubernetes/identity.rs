//! Jobs in Pods on a site without a SPIRE controller manager: their entries are written into the SPIRE server itself.

use testkit::real::kubernetes::Cluster;
use testkit::real::spire::{EntrySpec, SpireEntry};
use testkit::real::{NatsSettings, Seen, eventually};

use crate::jobs::SMOKE;
use crate::phases::Phases;
use crate::site::{JOB, NAMESPACE, Site};
use crate::waiting::waiting;

/// What the ids of entries of all instances begin with.
const OURS: &str = "gitea-dynamic-runner.";

/// WFL-1, POD-4, NEW-2, NEW-67, NEW-75, F71: with POD_IDENTITY=spire-server a job runs in a real Pod with the SVID of its
/// repository and job, below the agent of the Pod's node and for this Pod's container alone; no object becomes an entry;
/// the entry goes with its Pod, and one whose Pod somebody removed while there was no controller goes as well; an entry by
/// hand stays.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn jobs_with_entries_in_the_server() {
    let cluster = Cluster::start().await.unwrap();
    let mut site = Site::without_controller(cluster, &[], NatsSettings::default()).await;
    site.identity.end_entry_manager();
    let by_hand = an_entry_by_hand(&site).await;
    let socket = site.identity.server().socket().display().to_string();
    // A class is for who has a controller manager.
    let settings =
        [("POD_IDENTITY", "spire-server"), ("POD_SPIRE_SERVER_SOCKET", socket.as_str()), ("SPIRE_CLASS", "")];
    site.serve(&settings).await;

    let phases = Phases::watch(&site);
    let run = site.push(SMOKE).await;
    let page = site.ends(&run, "success").await;
    assert!(page.contains("issued: spiffe://td.test/ci/acme/app/smoke"), "{page}");
    phases.print(&site, &run).await;
    nothing_left(&site).await;

    let job = waiting(&site).await;
    let pod = pod_uid(&site, &job.pod).await;
    let entries = ours(&site).await;
    let [entry] = entries.as_slice() else { panic!("{entries:#?}") };
    assert!(entry.entry.ends_with(&format!(".{pod}")), "{entry:?}");
    let selectors = [
        "k8s:container-name:executor".to_owned(),
        format!("k8s:ns:{NAMESPACE}"),
        format!("k8s:pod-uid:{pod}"),
        "k8s:sa:gitea-task-executor".to_owned(),
    ];
    let spec = &entry.spec;
    assert_eq!((spec.id.as_str(), &spec.parent), ("spiffe://td.test/ci/acme/app/long", &site.identity.node_parent()));
    assert_eq!(spec.selectors, selectors);
    assert!(spec.ttl > 0 && spec.hint.is_empty(), "{spec:?}");

    // Nobody sees the Pod go: what remains is its entry. Its job is for Gitea to end, which is not waited for.
    site.kill9().await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", job.pod);
    let at_once = serde_json::json!({"gracePeriodSeconds": 0});
    site.cluster.admin().delete(&path, &at_once).await.unwrap().object(&path).unwrap();
    assert_eq!(ours(&site).await.len(), 1);
    site.restart();
    nothing_left(&site).await;

    let all = site.identity.server().entries().await.unwrap();
    assert!(all.iter().any(|entry| entry.entry == by_hand), "{all:#?}");
    for verb in ["create", "list", "watch"] {
        assert_eq!(site.calls(verb, "clusterstaticentries"), [""; 0]);
    }
}

/// Of somebody else, for containers of the same name.
async fn an_entry_by_hand(site: &Site) -> String {
    let entry = EntrySpec {
        id: "spiffe://td.test/by-hand".to_owned(),
        parent: site.identity.node_parent(),
        selectors: ["k8s:ns:elsewhere", "k8s:container-name:executor"].map(str::to_owned).to_vec(),
        ..EntrySpec::default()
    };
    site.identity.server().create_entry(&entry).await.unwrap()
}

async fn pod_uid(site: &Site, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
    let pod = site.cluster.admin().get(&path).await.unwrap().object(&path).unwrap();
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The server's entries that controllers made.
async fn ours(site: &Site) -> Vec<SpireEntry> {
    let mut entries = site.identity.server().entries().await.unwrap();
    entries.retain(|entry| entry.entry.starts_with(OURS));
    entries
}

/// Waits until Pods, Secrets and entries are gone.
pub(crate) async fn nothing_left(site: &Site) {
    site.nothing_left().await;
    let gone = eventually("no entry is left in the server", JOB, async || {
        let left = ours(site).await;
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
    });
    gone.await.unwrap_or_else(|error| panic!("{error}\n{}", site.log_end()));
}
