//! Every right of the shipped manifests, taken away from a controller of its own at a real API server: what needs it is
//! refused in words that name it, nothing is lost, and it goes on when the right is back.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use controller::backend::Backend as _;
use controller::lease::Leadership as _;
use domain::metadata::{Claim, Mark};
use futures::future::join_all;
use serde_json::json;
use testkit::real::kubernetes::Cluster;
use testkit::real::{Seen, eventually};

use crate::manifests;
use crate::seat::{NODE, Right, Seat, rights};
use crate::site::NAMESPACE;

/// Pauses between tries grow to 10 s, and every seat does this at the same time.
const SOON: Duration = Duration::from_secs(90);
const ENTRIES: &str = "/apis/spire.spiffe.io/v1alpha1/clusterstaticentries";

/// T77, NEW-78, F154, CFG-12: without any one of the rights of the manifests something is refused, in words that name
/// verb, kind and namespace and say what to do; with it back the same thing succeeds; and there are no other rights.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn each_right_is_needed_and_named() {
    let log = Log::default();
    let _log = tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(log.writer()).finish());
    let mut cluster = Cluster::start_without_node().await.unwrap();
    cluster.install_entries().await.unwrap();
    manifests::apply(cluster.admin()).await;
    let node = json!({"metadata": {"name": NODE}});
    cluster.admin().post("/api/v1/nodes", &node).await.unwrap().object("make a node").unwrap();
    let rights = rights();
    assert!(rights.len() > 15, "{rights:?}");
    let (cluster, log) = (&cluster, &log);
    let each = rights.iter().enumerate().map(async |(number, right)| {
        let seat = Seat::take(cluster, format!("seat-{number}")).await;
        if number == 0 {
            no_more_than_that(&seat).await;
        }
        without(&seat, right, log).await;
    });
    join_all(each).await;
}

async fn no_more_than_that(seat: &Seat) {
    for (group, resource, verb, namespaced) in [
        ("", "pods", "list", false),
        ("", "pods/exec", "create", true),
        ("", "secrets", "list", true),
        ("", "secrets", "update", true),
        ("", "nodes", "list", false),
        ("", "namespaces", "get", false),
        ("coordination.k8s.io", "leases", "delete", true),
        ("spire.spiffe.io", "clusterspiffeids", "create", false),
        ("rbac.authorization.k8s.io", "roles", "update", true),
    ] {
        assert!(!seat.may(group, resource, verb, namespaced).await, "{verb} {resource}");
    }
}

/// Takes the right away while its need arises, and gives it back.
async fn without(seat: &Seat, right: &Right, log: &Log) {
    let (resource, verb) = (right.resource.as_str(), right.verb.as_str());
    match (resource, verb) {
        // A Pod that is to be marked and is not known may be there all the same.
        ("pods", "get") => {
            let pods = seat.pods();
            refused(seat, right, async || words(pods.mark(&seat.pod_name(), Mark::Terminal).await)).await;
        }
        ("pods" | "secrets", "create") => {
            let pods = seat.pods();
            refused(seat, right, async || words(seat.ensure(&pods).await)).await;
        }
        ("pods", "list" | "watch") => {
            seat.grant(Some(right)).await;
            let pods = seat.pods();
            // A list is taken for what is there until a watch fails for some seconds.
            let told = eventually("no list", SOON, async || {
                Ok(pods
                    .list()
                    .await
                    .map_or_else(|error| Seen::Done(error.to_string()), |_| Seen::NotYet("a list".into())))
            });
            is_named(right, &told.await.unwrap());
            seat.grant(None).await;
            succeeds(right, async || words(pods.list().await)).await;
        }
        ("pods", "patch") => {
            let pods = made(seat).await;
            let claim = Mark::Claimed(Claim { at: "2026-01-02T03:05:00Z".parse().unwrap(), log_shift: 3 });
            refused(seat, right, async || words(pods.mark(&seat.pod_name(), claim.clone()).await)).await;
        }
        ("pods", "delete") => {
            let pods = made(seat).await;
            refused(seat, right, async || words(pods.delete(&seat.pod_name()).await)).await;
        }
        // A process that finds the Secret of a former one has to see whose it is.
        ("secrets", "get") => {
            made(seat).await;
            let pods = seat.pods();
            refused(seat, right, async || words(seat.ensure(&pods).await)).await;
        }
        ("secrets", "delete") => {
            let metadata = json!({"name": seat.pod_name(), "labels": seat.record().labels()});
            seat.made(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &json!({"metadata": metadata})).await;
            let pods = seat.pods();
            refused(seat, right, async || words(seat.ensure(&pods).await)).await;
        }
        ("events", _) => without_events(seat, right, log).await,
        ("leases", _) => without_leases(seat, right).await,
        ("nodes" | "clusterstaticentries", _) => without_entries(seat, right).await,
        _ => panic!("nothing needs the right to {verb} {resource}, as far as this test knows"),
    }
}

/// A Pod with its Secret.
async fn made(seat: &Seat) -> controller::backend::pod::PodBackend {
    let pods = seat.pods();
    succeeds("a Pod", async || words(seat.ensure(&pods).await)).await;
    pods
}

/// No call fails for want of them, so the log says it.
async fn without_events(seat: &Seat, right: &Right, log: &Log) {
    seat.grant(Some(right)).await;
    // It has no node, and that is all that is known of it; what its events say is asked for after 10 s.
    let _pods = made(seat).await;
    let account = format!("system:serviceaccount:gitea-runners:{}\"", seat.name);
    let told = eventually("the log names it", SOON, async || {
        let text = log.text();
        let line =
            text.lines().find(|line| line.contains(&account) && line.contains(&format!("cannot {}", right.verb)));
        Ok(line.map_or_else(|| Seen::NotYet(text.clone()), |line| Seen::Done(line.to_owned())))
    });
    let told = told.await.unwrap();
    assert!(told.contains("WARN"), "{told}");
    // Quotes are escaped in a line.
    is_named(right, &told.replace('\\', ""));
    seat.grant(None).await;
    if right.verb == "create" {
        let pods = made(seat).await;
        succeeds("an event", async || words(pods.mark(&seat.pod_name(), Mark::Terminal).await)).await;
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={},reason=JobReported",
            seat.pod_name()
        );
        let there = eventually("an event", SOON, async || {
            let list = seat.seen(&path).await;
            let there = list["items"].as_array().is_some_and(|items| !items.is_empty());
            Ok(if there { Seen::Done(()) } else { Seen::NotYet(list.to_string()) })
        });
        there.await.unwrap();
    }
}

async fn without_leases(seat: &Seat, right: &Right) {
    if right.verb == "update" {
        let metadata = json!({"name": seat.lease_name()});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        seat.made(&path, &json!({"metadata": metadata, "spec": {}})).await;
    }
    let lease = seat.lease();
    refused(seat, right, async || match lease.acquire().await {
        Ok(held) => {
            held.release().await;
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    })
    .await;
}

async fn without_entries(seat: &Seat, right: &Right) {
    let (issuer, pod) = (seat.issuer(), seat.bound());
    match right.verb.as_str() {
        "list" => return refused(seat, right, async || words(issuer.sweep(Vec::new()).await)).await,
        "get" if right.resource == "nodes" => {}
        "create" => {}
        "delete" => {
            succeeds("an entry", async || words(issuer.bind(pod.clone()).await)).await;
            return refused(seat, right, async || words(issuer.release(pod.key.clone()).await)).await;
        }
        // Whether SPIRE has taken what was made is asked of that object alone.
        "get" => {
            succeeds("an entry", async || words(issuer.bind(pod.clone()).await)).await;
            return refused(seat, right, async || words(issuer.bind(pod.clone()).await)).await;
        }
        _ => {
            succeeds("an entry", async || words(issuer.bind(pod.clone()).await)).await;
            let path = format!("{ENTRIES}/{}-{}", pod.key.name, pod.key.uid);
            seat.changed(&path, &json!({"spec": {"parentID": "spiffe://td.test/another"}})).await;
        }
    }
    // A controller that starts, and has asked for nothing yet.
    let issuer = seat.issuer();
    refused(seat, right, async || words(issuer.bind(pod.clone()).await)).await;
}

fn words<T, E: std::fmt::Display>(answer: Result<T, E>) -> Result<(), String> {
    answer.map(drop).map_err(|error| error.to_string())
}

/// Refused without the right, in words that name it; and with the right it succeeds.
async fn refused(seat: &Seat, right: &Right, attempt: impl AsyncFn() -> Result<(), String>) {
    seat.grant(Some(right)).await;
    let Err(told) = attempt().await else { panic!("nothing needs {right:?}") };
    is_named(right, &told);
    seat.grant(None).await;
    succeeds(right, attempt).await;
}

async fn succeeds(what: impl std::fmt::Debug, attempt: impl AsyncFn() -> Result<(), String>) {
    let what = format!("{what:?}");
    let done = eventually(&what, SOON, async || Ok(attempt().await.map_or_else(Seen::NotYet, Seen::Done)));
    done.await.unwrap();
}

fn is_named(right: &Right, told: &str) {
    let Right { resource, verb, role, .. } = right;
    let place =
        if *role == "Role" { format!("in the namespace \"{NAMESPACE}\"") } else { "at the cluster scope".to_owned() };
    for word in [&format!("cannot {verb} resource \"{resource}\""), &place, "Role and ClusterRole"] {
        assert!(told.contains(word), "{right:?}: {word} is not in: {told}");
    }
}

/// What the controllers of this test log.
#[derive(Default, Clone)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn writer(&self) -> impl Fn() -> Self + use<> {
        let log = self.clone();
        move || log.clone()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
