//! The double over its wire, with a client that knows only HTTP.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::*;

const PODS: &str = "/api/v1/namespaces/gitea-actions/pods";
const LIMIT: Duration = Duration::from_secs(10);

struct Wire<'a> {
    kube: &'a Kubernetes,
    client: Client<HttpConnector, Full<Bytes>>,
}

fn wire(kube: &Kubernetes) -> Wire<'_> {
    Wire { kube, client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()) }
}

impl Wire<'_> {
    async fn open(&self, method: Method, path: &str, kind: &str, body: Value) -> http::Response<Incoming> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.kube.url()))
            .header("authorization", format!("Bearer {}", self.kube.token()))
            .header("content-type", kind)
            .header("user-agent", "tests");
        self.client.request(request.body(Full::new(body)).unwrap()).await.unwrap()
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let response = self.open(method, path, kind, body).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

/// The next line of a watch; `None` at its end or when it breaks off.
async fn line(body: &mut Incoming, kept: &mut Vec<u8>) -> Option<Value> {
    loop {
        if let Some(end) = kept.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = kept.drain(..=end).collect();
            return Some(serde_json::from_slice(&line).unwrap());
        }
        let frame = tokio::time::timeout(LIMIT, body.frame()).await.unwrap()?;
        kept.extend_from_slice(&frame.ok()?.into_data().unwrap());
    }
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "restartPolicy": "Never", "serviceAccountName": "gitea-task-executor",
            "containers": [{"name": "executor", "image": "registry.invalid/executor:1"}],
        },
    })
}

async fn phase(kube: &Kubernetes, name: &str, phase: &str) {
    kube.wait_for(&format!("{name} is {phase}"), |kube| kube.phase(name) == phase, LIMIT).await.unwrap();
}

/// The phases that a watch shows of a Pod that runs and is deleted: the exit code is seen before the object is gone.
#[tokio::test]
async fn a_watch_sees_a_pod_run_and_go() {
    let kube = Kubernetes::start().await;
    let wire = wire(&kube);
    let path = format!("{PODS}?watch=1&resourceVersion={}", kube.version());
    let mut watch = wire.open(Method::GET, &path, "", Value::Null).await.into_body();
    let (status, made) = wire.call(Method::POST, PODS, pod("a")).await;
    assert_eq!((status, &made["status"]["phase"]), (201, &json!("Pending")));
    phase(&kube, "a", "Running").await;
    let gone = json!({"preconditions": {"uid": made["metadata"]["uid"]}});
    assert_eq!(wire.call(Method::DELETE, &format!("{PODS}/a"), gone).await.0, 200);
    let (mut kept, mut seen) = (Vec::new(), Vec::new());
    while seen.last().is_none_or(|(kind, _, _)| kind != "DELETED") {
        let event = line(&mut watch, &mut kept).await.unwrap();
        let object = &event["object"];
        let code = object.pointer("/status/containerStatuses/0/state/terminated/exitCode").and_then(Value::as_i64);
        let phase = object["status"]["phase"].as_str().unwrap().to_owned();
        seen.push((event["type"].as_str().unwrap().to_owned(), phase, code));
    }
    let shown: Vec<_> = seen.iter().map(|(kind, phase, code)| (kind.as_str(), phase.as_str(), *code)).collect();
    assert_eq!(
        shown,
        [
            ("ADDED", "Pending", None),
            ("MODIFIED", "Pending", None),
            ("MODIFIED", "Running", None),
            ("MODIFIED", "Running", None),
            ("MODIFIED", "Failed", Some(143)),
            ("DELETED", "Failed", Some(143)),
        ]
    );
    assert_eq!(kube.count(Verb::Create, Resource::Pods), 1);
    assert_eq!(kube.calls_of(Verb::Delete, Resource::Pods)[0].user_agent, "tests");
}

/// A container's end is seen before the phase, and OOMKilled with exit code 0 is a Pod that succeeded.
#[tokio::test]
async fn the_end_of_a_container_comes_before_the_phase() {
    let kube = Kubernetes::start().await;
    kube.add(Resource::Pods, "gitea-actions", pod("a"));
    phase(&kube, "a", "Running").await;
    kube.kubelet().late_phases(true);
    kube.kubelet().out_of_memory("a", 0);
    let state = kube.pod("a")["status"]["containerStatuses"][0]["state"]["terminated"].clone();
    assert_eq!((&state["reason"], &state["exitCode"]), (&json!("OOMKilled"), &json!(0)));
    assert_eq!(kube.phase("a"), "Running");
    kube.kubelet().late_phases(false);
    phase(&kube, "a", "Succeeded").await;
}

/// Image errors and a missing node never fail a Pod; it goes on when the cause is gone.
#[tokio::test]
async fn trouble_keeps_a_pod_pending_until_it_is_released() {
    let kube = Kubernetes::start().await;
    kube.kubelet().plan("image", Plan::ImagePull("not found".into()));
    kube.kubelet().plan("node", Plan::Unschedulable { scale_up: true });
    kube.kubelet().plan("name", Plan::InvalidImageName);
    for name in ["image", "node", "name"] {
        kube.add(Resource::Pods, "gitea-actions", pod(name));
    }
    let reason = |kube: &Kubernetes, name: &str| {
        let reason = kube.pod(name).pointer("/status/containerStatuses/0/state/waiting/reason").cloned();
        reason.and_then(|reason| reason.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let settled = |kube: &Kubernetes| {
        let told = kube.events("node").iter().any(|(reason, _)| reason == "TriggeredScaleUp");
        reason(kube, "image") == "ImagePullBackOff" && reason(kube, "name") == "InvalidImageName" && told
    };
    kube.wait_for("all three are in trouble", settled, LIMIT).await.unwrap();
    assert_eq!(kube.pod("node")["status"]["conditions"][0]["reason"], "Unschedulable");
    kube.kubelet().release("image");
    kube.kubelet().release("node");
    phase(&kube, "image", "Running").await;
    phase(&kube, "node", "Running").await;
    assert_eq!(kube.phase("name"), "Pending");
}

/// On a lost node nothing ends: an eviction is a deletion that waits for the kubelet.
#[tokio::test]
async fn a_lost_node_keeps_its_pods() {
    let kube = Kubernetes::start().await;
    kube.add(Resource::Pods, "gitea-actions", pod("a"));
    phase(&kube, "a", "Running").await;
    kube.kubelet().lose_node("node-1");
    kube.kubelet().evict_from_node("node-1");
    let pod = kube.pod("a");
    assert!(pod["metadata"]["deletionTimestamp"].is_string() && pod["status"]["phase"] == "Running");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|each| each["reason"] == "DeletionByTaintManager"));
    kube.kubelet().node_back("node-1");
    kube.wait_for("it is gone", |kube| kube.names(Resource::Pods).is_empty(), LIMIT).await.unwrap();
}

/// What a Pod owns goes with it; a finalizer keeps the Pod and what it owns.
#[tokio::test]
async fn owned_secrets_go_with_their_pod() {
    let kube = Kubernetes::start().await;
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    let made = kube.add(Resource::Pods, "gitea-actions", held);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": made["metadata"]["uid"]});
    let secret = json!({"metadata": {"name": "s", "ownerReferences": [owner]}, "stringData": {"k": "v"}});
    kube.add(Resource::Secrets, "gitea-actions", secret);
    phase(&kube, "a", "Running").await;
    kube.delete(Resource::Pods, "a");
    phase(&kube, "a", "Failed").await;
    assert_eq!(kube.object(Resource::Secrets, "s").unwrap()["data"]["k"], "dg==");
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(wire(&kube).call(Method::PATCH, &format!("{PODS}/a"), release).await.0, 200);
    let gone = |kube: &Kubernetes| kube.names(Resource::Secrets).is_empty() && kube.names(Resource::Pods).is_empty();
    kube.wait_for("both are gone", gone, LIMIT).await.unwrap();
}

/// Faults strike once, in order; a lost answer leaves the object behind; a missing right is told in RBAC's words.
#[tokio::test]
async fn faults_strike_as_ordered() {
    let kube = Kubernetes::start().await;
    let client = wire(&kube);
    kube.fail(On::call(Verb::Create, Resource::Pods), Fault::too_many_requests(7));
    kube.fail(On::call(Verb::Create, Resource::Pods).named("b"), Fault::quota("executors, requested: pods=1"));
    let (status, body) = client.call(Method::POST, PODS, pod("a")).await;
    assert_eq!((status, &body["details"]["retryAfterSeconds"]), (429, &json!(7)));
    assert_eq!(client.call(Method::POST, PODS, pod("a")).await.0, 201);
    let (status, body) = client.call(Method::POST, PODS, pod("b")).await;
    let message = "pods \"b\" is forbidden: exceeded quota: executors, requested: pods=1";
    assert_eq!((status, &body["message"]), (403, &json!(message)));
    kube.forbid(Verb::List, Resource::Pods);
    let (status, body) = client.call(Method::GET, PODS, Value::Null).await;
    let message = "pods is forbidden: User \"system:serviceaccount:gitea-actions:gitea-dynamic-runner\" cannot list \
         resource \"pods\" in API group \"\" in the namespace \"gitea-actions\"";
    assert_eq!((status, body["message"].as_str().unwrap()), (403, message));
    kube.fail(On::call(Verb::Create, Resource::Pods), Fault::lost_answer());
    let request = Request::post(format!("{}{PODS}", kube.url()))
        .header("authorization", format!("Bearer {}", kube.token()))
        .body(Full::new(Bytes::from(pod("c").to_string())));
    assert!(client.client.request(request.unwrap()).await.is_err());
    assert!(kube.object(Resource::Pods, "c").is_some());
}

/// A watch from before the compaction is told 410; watches can be cut and silenced, and asked-for bookmarks come.
#[tokio::test]
async fn watches_expire_break_and_fall_silent() {
    let kube = Kubernetes::start().await;
    let wire = wire(&kube);
    let first = kube.version();
    kube.add(Resource::Pods, "gitea-actions", pod("a"));
    phase(&kube, "a", "Running").await;
    kube.forget_history();
    let path = format!("{PODS}?watch=1&resourceVersion={first}");
    let mut watch = wire.open(Method::GET, &path, "", Value::Null).await.into_body();
    let mut kept = Vec::new();
    let event = line(&mut watch, &mut kept).await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(line(&mut watch, &mut kept).await, None);
    let path = format!("{PODS}?watch=1&resourceVersion={}&allowWatchBookmarks=true", kube.version());
    let mut watch = wire.open(Method::GET, &path, "", Value::Null).await.into_body();
    kube.send_bookmarks();
    assert_eq!(line(&mut watch, &mut kept).await.unwrap()["type"], "BOOKMARK");
    kube.silence_watches(true);
    kube.edit(Resource::Pods, "a", |pod| pod["metadata"]["labels"]["b"] = "c".into());
    assert!(tokio::time::timeout(Duration::from_millis(50), watch.frame()).await.is_err());
    kube.silence_watches(false);
    assert_eq!(line(&mut watch, &mut kept).await.unwrap()["object"]["metadata"]["labels"]["b"], "c");
    kube.cut_watches();
    assert_eq!(line(&mut watch, &mut kept).await, None);
}

/// spire-controller-manager: `rendered` and `set` for a good entry, `masked` for its younger twin until the older is
/// gone, no status for what it cannot parse or what is of another class.
#[tokio::test]
async fn entries_are_judged_as_their_manager_does() {
    let kube = Kubernetes::start().await;
    let entry = |name: &str, class: &str, id: &str| {
        json!({"metadata": {"name": name}, "spec": {"className": class, "spiffeID": id,
            "parentID": "spiffe://td.test/node", "selectors": ["k8s:pod-uid:1"]}})
    };
    let class = "spire-mgmt-spire";
    for (name, class, id) in [
        ("good", class, "spiffe://td.test/a"),
        ("twin", class, "spiffe://td.test/a"),
        ("foreign", "other", "spiffe://td.test/b"),
        ("bad", class, "spiffe://TD.test/c"),
        ("reserved", class, "spiffe://td.test/spire/x"),
    ] {
        kube.add(Resource::ClusterStaticEntries, "", entry(name, class, id));
    }
    let status = |kube: &Kubernetes, name: &str| {
        let entry = kube.object(Resource::ClusterStaticEntries, name).unwrap();
        ["rendered", "masked", "set"].map(|key| entry["status"][key].as_bool())
    };
    let judged = |kube: &Kubernetes| status(kube, "reserved")[0].is_some();
    kube.wait_for("all are judged", judged, LIMIT).await.unwrap();
    assert_eq!(status(&kube, "good"), [Some(true), Some(false), Some(true)]);
    assert_eq!(status(&kube, "twin"), [Some(true), Some(true), Some(false)]);
    assert_eq!(status(&kube, "reserved"), [Some(true), Some(false), Some(false)]);
    assert_eq!((status(&kube, "foreign"), status(&kube, "bad")), ([None; 3], [None; 3]));
    kube.delete(Resource::ClusterStaticEntries, "good");
    let taken = |kube: &Kubernetes| status(kube, "twin")[1] == Some(false);
    kube.wait_for("the twin takes over", taken, LIMIT).await.unwrap();
}

/// A Pod is made before the Secret that it owns, and its container waits for that.
#[tokio::test]
async fn a_container_waits_for_its_secret() {
    let kube = Kubernetes::start().await;
    let mut pod = pod("a");
    pod["spec"]["volumes"] = json!([{"name": "capability", "secret": {"secretName": "s"}}]);
    kube.add(Resource::Pods, "gitea-actions", pod);
    let told = |kube: &Kubernetes| kube.events("a").iter().any(|(reason, _)| reason == "FailedMount");
    kube.wait_for("the missing Secret is told", told, LIMIT).await.unwrap();
    assert_eq!(kube.phase("a"), "Pending");
    kube.add(Resource::Secrets, "gitea-actions", json!({"metadata": {"name": "s"}}));
    phase(&kube, "a", "Running").await;
}

/// A container can be a process: it gets environment and files, is told SIGTERM, and its exit code is the Pod's.
#[tokio::test]
async fn a_container_can_be_a_process() {
    let kube = Kubernetes::start().await;
    let folder = tempfile::tempdir().unwrap();
    let (program, environment) = ("/bin/sh".into(), vec![("MORE".to_owned(), "more".to_owned())]);
    kube.kubelet().runs(Workload { program, folder: folder.path().into(), sockets: None, environment, user: None });
    let mut pod = pod("a");
    let script = "trap 'exit 7' TERM; cat \"$FILE\"; echo \" $MORE $POD\"; while :; do sleep 0.02; done";
    let container = &mut pod["spec"]["containers"][0];
    container["args"] = json!(["-c", script]);
    container["env"] = json!([{"name": "FILE", "value": "/run/c/key"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    container["volumeMounts"] = json!([{"name": "c", "mountPath": "/run/c"}]);
    pod["spec"]["volumes"] = json!([{"name": "c", "secret": {"secretName": "s", "defaultMode": 0o400}}]);
    kube.add(Resource::Secrets, "gitea-actions", json!({"metadata": {"name": "s"}, "stringData": {"key": "value"}}));
    let uid = kube.add(Resource::Pods, "gitea-actions", pod)["metadata"]["uid"].as_str().unwrap().to_owned();
    let log = folder.path().join(&uid).join("log");
    let end = tokio::time::Instant::now() + LIMIT;
    while std::fs::read_to_string(&log).unwrap_or_default() != "value more a\n" {
        assert!(tokio::time::Instant::now() < end, "{:?}", std::fs::read_to_string(&log));
        tokio::task::yield_now().await;
    }
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&log.with_file_name("c").join("key").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o400);
    let path = format!("{PODS}?watch=1&resourceVersion={}", kube.version());
    let mut watch = wire(&kube).open(Method::GET, &path, "", Value::Null).await.into_body();
    kube.delete(Resource::Pods, "a");
    let (mut kept, mut last) = (Vec::new(), Value::Null);
    while last["type"] != "DELETED" {
        last = line(&mut watch, &mut kept).await.unwrap();
    }
    assert_eq!(last["object"]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
    assert!(crate::real::of_folder(folder.path()).is_empty());
}
