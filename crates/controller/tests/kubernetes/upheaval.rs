//! A cluster that changes under a job: its API server is away, its node is drained or lost, a Pod does not go.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::real::kubernetes::Service;
use testkit::real::{Seen, eventually};

use crate::site::{JOB, NAMESPACE, Site, said};
use crate::waiting::waiting;

/// A lost node is given up at once.
const IMPATIENT: &str = "spec: {tolerations: [
  {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1},
  {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]}";

fn path(pod: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}")
}

/// NEW-62, NEW-65, F62, T42: an API server that hangs and then is gone costs a job nothing, which even ends meanwhile; no second
/// Pod is made. NEW-55, NEW-73, F74, T54: a Pod that a finalizer of somebody else keeps holds its slot and no other.
/// T57, NEW-158: a drain interrupts a job, whose page says so. T35, NEW-71, F17, F68: the node ends what has outlived its deadline
/// while no controller is there. NEW-66, F62, T7: a lost node is named.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn jobs_in_an_upheaval() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("template");
    std::fs::write(&template, IMPATIENT).unwrap();
    let settings = [("POD_TEMPLATE_FILE", template.to_str().unwrap()), ("LEADER_ELECTION", "kubernetes")];
    let mut site = Site::start(&settings).await;
    an_api_server_that_is_away(&mut site).await;
    a_drain(&site).await;
    a_pod_that_does_not_go(&site).await;
    a_deadline_that_only_the_node_keeps(&mut site).await;
    a_lost_node(&mut site).await;
}

async fn an_api_server_that_is_away(site: &mut Site) {
    let job = waiting(site).await;
    site.cluster.freeze_service(Service::ApiServer).await.unwrap();
    // Not a wait for anything: this is the outage, longer than a leader decides without its Lease.
    tokio::time::sleep(Duration::from_secs(15)).await;
    site.cluster.kill_service(Service::ApiServer).await.unwrap();
    job.gate.open();
    let page = site.ends(&job.run, "success").await;
    site.cluster.start_service(Service::ApiServer).await.unwrap();
    site.cluster.api_ready().await.unwrap();
    assert!(said(&page, "before") == 1 && said(&page, "after") == 1, "{page}");
    site.nothing_left().await;
    let made = site.calls("create", "pods");
    assert_eq!(made.len(), 1, "{made:#?}");
}

async fn a_drain(site: &Site) {
    let job = waiting(site).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": job.pod, "namespace": NAMESPACE}});
    let evicted = format!("{}/eviction", path(&job.pod));
    site.cluster.admin().post(&evicted, &eviction).await.unwrap().object(&evicted).unwrap();
    let page = site.ends(&job.run, "failure").await;
    assert!(page.contains("interrupted") && said(&page, "after") == 0, "{page}");
    site.nothing_left().await;
}

async fn a_pod_that_does_not_go(site: &Site) {
    let job = waiting(site).await;
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let held = path(&job.pod);
    site.cluster.admin().patch(&held, &hold(json!(["example.org/hold"]))).await.unwrap().object(&held).unwrap();
    job.gate.open();
    site.ends(&job.run, "success").await;
    let told = eventually("the log names the finalizer", JOB, async || {
        let log = site.log_end();
        Ok(if log.contains("finalizers keep it: example.org/hold") { Seen::Done(()) } else { Seen::NotYet(log) })
    });
    told.await.unwrap();
    slots_used(site, 1).await;
    // The other slot is as good as before.
    let next = waiting(site).await;
    slots_used(site, 2).await;
    next.gate.open();
    site.ends(&next.run, "success").await;
    site.cluster.admin().patch(&held, &hold(Value::Null)).await.unwrap().object(&held).unwrap();
    site.nothing_left().await;
    slots_used(site, 0).await;
}

async fn a_deadline_that_only_the_node_keeps(site: &mut Site) {
    let job = waiting(site).await;
    let pod = path(&job.pod);
    let spec = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_u64();
    let made = site.cluster.admin().get(&pod).await.unwrap().object(&pod).unwrap();
    // What was left of Gitea's own 3 h, and some time for whoever ends it in order.
    assert!(spec(&made).is_some_and(|seconds| (2 * 3600..3 * 3600 + 1800).contains(&seconds)), "{made}");
    site.kill9().await;
    let over = json!({"spec": {"activeDeadlineSeconds": 1}});
    site.cluster.admin().patch(&pod, &over).await.unwrap().object(&pod).unwrap();
    let ended = eventually("the node ends its Pod", JOB, async || {
        let status = site.cluster.admin().get(&pod).await?.object(&pod)?["status"].take();
        let ready = status["conditions"].as_array().and_then(|all| all.iter().find(|each| each["type"] == "Ready"));
        let over = ready.is_some_and(|ready| ready["status"] == "False" && ready["reason"] == "PodFailed");
        Ok(if over { Seen::Done(()) } else { Seen::NotYet(status.to_string()) })
    });
    ended.await.unwrap();
    site.restart();
    let page = site.ends(&job.run, "failure").await;
    // Its executor is asked to end first, and has its grace, far longer than a controller is away here: it stays until it has
    // told what cut its job off. `deadline` is what the Pod says once nobody is left to tell, as in the same test on the double.
    assert!(page.contains("interrupted: ") && !page.contains("deadline: ") && said(&page, "after") == 0, "{page}");
    site.nothing_left().await;
}

/// The metric is made now and then.
async fn slots_used(site: &Site, count: u32) {
    let counted = eventually("as many slots are used", JOB, async || {
        let used = site.used_slots().await;
        Ok(if used == count { Seen::Done(()) } else { Seen::NotYet(format!("{used} and not {count}")) })
    });
    counted.await.unwrap();
}

async fn a_lost_node(site: &mut Site) {
    // Beside a healthy one; else Kubernetes takes it for a broken network, and does nothing.
    let _spare = site.cluster.spare_node().await.unwrap();
    let job = waiting(site).await;
    site.cluster.freeze_service(Service::Kubelet).await.unwrap();
    let page = site.ends(&job.run, "failure").await;
    assert!(page.contains("node_lost") && page.contains(site.cluster.node()), "{page}");
    site.cluster.thaw_service(Service::Kubelet).await.unwrap();
    site.cluster.node_ready().await.unwrap();
    // How soon a kubelet that stood still does what it is told is its own affair.
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let told = eventually("its Pod is gone, or on its way", JOB, async || {
        let list = site.cluster.admin().get(&pods).await?.object(&pods)?;
        let stays = list["items"]
            .as_array()
            .is_some_and(|items| items.iter().any(|pod| pod["metadata"]["deletionTimestamp"].is_null()));
        Ok(if stays { Seen::NotYet(list.to_string()) } else { Seen::Done(()) })
    });
    told.await.unwrap();
    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    assert_eq!(site.names(&secrets).await, [""; 0]);
}
