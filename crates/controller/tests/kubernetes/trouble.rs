//! What a cluster says when it cannot run a Pod or does not want to, on the job's own page.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::real::{Seen, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::site::{NAMESPACE, Site};

const JOBS: &str = "
on: push
jobs:
  nameless: {runs-on: nameless, steps: [{run: echo never}]}
  missing: {runs-on: missing, steps: [{run: echo never}]}
  secret: {runs-on: secret, steps: [{run: echo never}]}
  huge: {runs-on: huge, steps: [{run: echo never}]}
  squeezed: {runs-on: squeezed, steps: [{run: echo never}]}
  unwanted: {runs-on: unwanted, steps: [{run: echo never}]}
";

const LABELS: [&str; 6] = ["nameless", "missing", "secret", "huge", "squeezed", "unwanted"];

const HUGE: &str = "spec: {containers: [{name: executor, resources: {requests: {cpu: '64'}, limits: {cpu: '64'}}}]}";
const SQUEEZED: &str = "spec: {priorityClassName: squeezed}";
const UNWANTED: &str = "metadata: {labels: {example.org/unwanted: 'yes'}}";

/// NEW-66, NEW-28, F60, F62, F68, T7: images that are no name, not there or not for us, a Pod that no node is large enough for,
/// a quota that is used up and a rule of an admission: each job ends with its own reason, in the words of who refused.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn each_refusal_on_its_page() {
    let mut site = Site::start(&[]).await;
    let digest = format!("sha256:{}", "a".repeat(64));
    for (host, answer) in [("missing.test", "404 Not Found"), ("secret.test", "403 Forbidden")] {
        let url = registry(site.cluster.host_address(), answer).await;
        site.cluster.registry(host, &url).unwrap();
    }
    a_quota(&site).await;
    an_admission(&site).await;
    let (huge, squeezed, unwanted) =
        (site.file("huge", HUGE), site.file("squeezed", SQUEEZED), site.file("unwanted", UNWANTED));
    let image = |host: &str| format!("{host}/ci/executor@{digest}");
    for (label, setting, value) in [
        ("nameless", "POD_EXECUTOR_IMAGE", format!("registry.test/UPPER@{digest}")),
        ("missing", "POD_EXECUTOR_IMAGE", image("missing.test")),
        ("secret", "POD_EXECUTOR_IMAGE", image("secret.test")),
        ("huge", "POD_TEMPLATE_FILE", huge),
        ("squeezed", "POD_TEMPLATE_FILE", squeezed),
        ("unwanted", "POD_TEMPLATE_FILE", unwanted),
    ] {
        site.beside(label, &[(setting, &value), ("POD_PENDING_LIMIT", "5s"), ("QUEUE_WAIT_LIMIT", "20s")]).await;
    }
    for label in LABELS {
        site.online(label).await;
    }
    let run = site.push(JOBS).await;
    let pages = site.each_ends(&run, "failure").await;
    for (job, words) in [
        ("nameless", &["image_invalid", "UPPER"][..]),
        ("missing", &["image_pull", "not found"]),
        ("secret", &["image_pull", "403 Forbidden"]),
        ("huge", &["unschedulable", "Insufficient cpu"]),
        ("squeezed", &["backend_quota", "exceeded quota: squeezed", "limited: pods=0"]),
        ("unwanted", &["config_error", "no Pods on Mondays"]),
    ] {
        for word in words {
            assert!(pages[job].contains(word), "{job} lacks {word}: {}", pages[job]);
        }
        assert!(!pages[job].contains("never"), "{job}: {}", pages[job]);
    }
    site.nothing_left().await;
}

/// A registry with one answer for everything.
async fn registry(address: std::net::Ipv4Addr, answer: &'static str) -> String {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = r#"{"errors": [{"code": "UNKNOWN", "message": "as the status says"}]}"#;
    let length = body.len();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // One request of a few lines; whoever wants more connects anew.
            let _ = stream.read(&mut [0; 4096]).await;
            let head = format!("HTTP/1.1 {answer}\r\ncontent-type: application/json\r\ncontent-length: {length}");
            let _ = stream.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).await;
        }
    });
    url
}

/// No Pod of this class has room.
async fn a_quota(site: &Site) {
    let class = json!({"metadata": {"name": "squeezed"}, "value": 1});
    make(site, "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
    let scope = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["squeezed"]});
    let quota = json!({"metadata": {"name": "squeezed"},
        "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/resourcequotas");
    make(site, &path, &quota).await;
    let path = format!("{path}/squeezed");
    counts(site, &path, "the quota counts", |quota| quota["status"]["hard"]["pods"] == "0").await;
}

/// Pods with this label are not wanted.
async fn an_admission(site: &Site) {
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
    let policy = json!({"metadata": {"name": "unwanted"}, "spec": {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "!('example.org/unwanted' in object.metadata.?labels.orValue({}))",
            "message": "no Pods on Mondays"}]}});
    let of = "/apis/admissionregistration.k8s.io/v1";
    make(site, &format!("{of}/validatingadmissionpolicies"), &policy).await;
    let binding = json!({"metadata": {"name": "unwanted"},
        "spec": {"policyName": "unwanted", "validationActions": ["Deny"]}});
    make(site, &format!("{of}/validatingadmissionpolicybindings"), &binding).await;
    let pod = json!({"metadata": {"name": "probe", "labels": {"example.org/unwanted": "yes"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All");
    let admitted = eventually("the admission refuses", Duration::from_secs(30), async || {
        let reply = site.cluster.admin().post(&path, &pod).await?;
        let refuses = reply.body.to_string().contains("Mondays");
        Ok(if refuses { Seen::Done(()) } else { Seen::NotYet(reply.body.to_string()) })
    });
    admitted.await.unwrap();
}

async fn counts(site: &Site, path: &str, what: &str, done: impl Fn(&Value) -> bool) {
    let seen = eventually(what, Duration::from_secs(30), async || {
        let object = site.cluster.admin().get(path).await?.body;
        Ok(if done(&object) { Seen::Done(()) } else { Seen::NotYet(object.to_string()) })
    });
    seen.await.unwrap();
}

async fn make(site: &Site, path: &str, object: &Value) {
    site.cluster.admin().post(path, object).await.unwrap().object(path).unwrap();
}
