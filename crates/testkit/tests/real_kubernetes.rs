//! The real one-node Kubernetes does what tests rely on. Needs `cargo xtask provision kubernetes spire`, root and
//! Debian 12.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use serde_json::{Value, json};
use testkit::kubernetes::Client;
use testkit::real::kubernetes::{CLASS, Cluster, Identity, Image, SOCKET, Service};
use testkit::real::spire::EntrySpec;
use testkit::real::{Error, Seen, eventually};

const LIMIT: Duration = Duration::from_secs(120);
const IMAGE: &str = "local.test/busybox:dev";

/// An image with a static busybox, and the SPIRE agent's client if that is installed.
async fn busybox(cluster: &Cluster) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("bin")).unwrap();
    std::fs::create_dir_all(root.path().join("tmp")).unwrap();
    std::fs::copy("/bin/busybox", root.path().join("bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", root.path().join("bin/sh")).unwrap();
    std::os::unix::fs::symlink("busybox", root.path().join("bin/sleep")).unwrap();
    let image = Image { name: IMAGE, root: root.path(), entrypoint: "/bin/sh", user: 2000 };
    let reference = cluster.import_root(&image).await.unwrap();
    assert!(reference.starts_with("local.test/busybox@sha256:"), "{reference}");
}

fn pod(name: &str, script: &str) -> Value {
    let container = json!({"name": "executor", "image": IMAGE, "args": ["-c", script]});
    json!({"metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 3, "containers": [container]}})
}

async fn phase(client: &Client, name: &str, wanted: &str) -> Value {
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    eventually(&format!("{name} is {wanted}"), LIMIT, async || {
        let pod = client.get(&path).await?.body;
        Ok(if pod["status"]["phase"] == wanted { Seen::Done(pod) } else { Seen::NotYet(pod["status"].to_string()) })
    })
    .await
    .unwrap()
}

/// A Pod runs to its exit code, a token opens the API only as far as its rights go, and the API server can be taken away
/// while a Pod lives on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root on Debian 12 and `cargo xtask provision kubernetes`"]
async fn pods_run_and_programs_can_be_taken_away() {
    let mut cluster = Cluster::start().await.unwrap();
    busybox(&cluster).await;
    let client = cluster.admin().clone();
    let pods = "/api/v1/namespaces/default/pods";
    client.post(pods, &pod("ends", "exit 3")).await.unwrap().object("create").unwrap();
    let ended = phase(&client, "ends", "Failed").await;
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    client.post(pods, &pod("lives", "trap 'exit 0' TERM; while :; do sleep 0.1; done")).await.unwrap();
    phase(&client, "lives", "Running").await;

    let stranger = client.with_token(&cluster.token("default", "stranger").await.unwrap());
    assert_eq!(stranger.get(pods).await.unwrap().status, 403);

    cluster.kill_service(Service::ApiServer).await.unwrap();
    assert!(matches!(client.get(pods).await, Err(Error::NoAnswer { .. })));
    assert!(!cluster.runs(Service::ApiServer));
    cluster.start_service(Service::ApiServer).await.unwrap();
    cluster.node_ready().await.unwrap();
    phase(&client, "lives", "Running").await;
    cluster.stop_service(Service::Kubelet).await.unwrap();
    cluster.start_service(Service::Kubelet).await.unwrap();
    client.delete(&format!("{pods}/lives"), &Value::Null).await.unwrap();
    eventually("the Pod is gone", LIMIT, async || {
        let reply = client.get(&format!("{pods}/lives")).await?;
        Ok(if reply.status == 404 { Seen::Done(()) } else { Seen::NotYet(reply.body["status"].to_string()) })
    })
    .await
    .unwrap();
}

/// An entry object becomes an entry whose parent is computed from the node, and a program of this machine has an agent
/// of its own in the same trust domain.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root on Debian 12 and `cargo xtask provision kubernetes spire`"]
async fn entries_reach_spire() {
    let mut cluster = Cluster::start().await.unwrap();
    let identity = Identity::start(&mut cluster, Duration::from_millis(500)).await.unwrap();
    let client = cluster.admin().clone();
    let entry = json!({"apiVersion": "spire.spiffe.io/v1alpha1", "kind": "ClusterStaticEntry",
        "metadata": {"name": "e"},
        "spec": {"className": CLASS, "spiffeID": "spiffe://td.test/ci/o/r/j", "parentID": identity.node_parent(),
            "selectors": ["k8s:ns:default", "k8s:container-name:executor"], "x509SVIDTTL": "60s"}});
    let path = "/apis/spire.spiffe.io/v1alpha1/clusterstaticentries";
    client.post(path, &entry).await.unwrap().object("create").unwrap();
    eventually("the entry is rendered", LIMIT, async || {
        let entry = client.get(&format!("{path}/e")).await?.body;
        Ok(if entry["status"]["rendered"] == true { Seen::Done(()) } else { Seen::NotYet(entry.to_string()) })
    })
    .await
    .unwrap();
    let wanted = EntrySpec {
        id: "spiffe://td.test/ci/o/r/j".into(),
        parent: identity.node_parent(),
        selectors: vec!["k8s:container-name:executor".into(), "k8s:ns:default".into()],
        ttl: 60,
        hint: String::new(),
    };
    assert!(identity.server().entries().await.unwrap().iter().any(|entry| entry.spec == wanted));
    assert!(identity.socket_folder().join(SOCKET).exists());
    assert!(identity.host_agent().workload_api().starts_with("unix:/"));
}
