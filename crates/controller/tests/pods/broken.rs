//! Pods that cannot be read beside good ones, and other rules of identity than those that running jobs began under.

use std::time::Duration;

use controller::identity::{BuiltInIssuer, ServedIdentity};
use serde_json::{Value, json};
use testkit::gitea::{JobId, Status};
use testkit::kubernetes::{Plan, Resource};
use testkit::world::{SOON, asked};

use crate::site::text;
use crate::{Site, job, site};

/// Of the controller's executors.
const NAMESPACE: &str = "gitea-actions";
/// What a Pod is called that says it is this task's executor.
const FIRST: i64 = 1001;
const KEY: &str = "ci.ddupan.top/";

/// What somebody does to a Pod's object.
type Damage = fn(&mut Value);

/// Who else may write labels and annotations, and what they make of those of a good Pod.
fn damages() -> Vec<(&'static str, Damage)> {
    fn label(pod: &mut Value, key: &str, value: Value) {
        pod["metadata"]["labels"][format!("{KEY}{key}")] = value;
    }
    fn annotation(pod: &mut Value, key: &str, value: Value) {
        pod["metadata"]["annotations"][format!("{KEY}{key}")] = value;
    }
    vec![
        ("a label is missing", |pod| {
            pod["metadata"]["labels"].as_object_mut().unwrap().remove("ci.ddupan.top/payload-digest");
        }),
        ("all annotations are missing", |pod| pod["metadata"]["annotations"] = json!({})),
        ("a bad task id", |pod| label(pod, "task-id", json!("0"))),
        ("another task's id", |pod| label(pod, "task-id", json!("7"))),
        ("an unknown backend", |pod| label(pod, "backend", json!("cloud"))),
        ("another backend", |pod| label(pod, "backend", json!("vm"))),
        ("no epoch", |pod| label(pod, "epoch", json!("0"))),
        ("a foreign trust domain", |pod| annotation(pod, "spiffe-id", json!("spiffe://other.test/ci/a/b/c"))),
        ("another job's identity", |pod| annotation(pod, "spiffe-id", json!("spiffe://td.test/ci/acme/app/other"))),
        ("an annotation is cut", |pod| {
            let deadline = text(pod, "/metadata/annotations/ci.ddupan.top~1deadline")[..7].to_owned();
            annotation(pod, "deadline", json!(deadline));
        }),
        ("a huge annotation", |pod| annotation(pod, "repository", json!(format!("acme/{}", "a".repeat(200_000))))),
        ("half a claim", |pod| {
            pod["metadata"]["annotations"].as_object_mut().unwrap().remove("ci.ddupan.top/log-shift");
        }),
    ]
}

/// Puts Pods like this one beside it, each damaged in its own way; they run. Returns their names.
fn add_broken(site: &Site, good: &Value) -> Vec<String> {
    let instance = text(good, "/metadata/labels/ci.ddupan.top~1instance").to_owned();
    let damaged = (FIRST..).zip(damages());
    let add = |(task, (_, damage)): (i64, (&str, Damage))| {
        let name = format!("gitea-task-{task}-{instance}-e1");
        let mut metadata = json!({"name": name});
        for kind in ["labels", "annotations"] {
            metadata[kind] = good["metadata"][kind].clone();
        }
        metadata["labels"]["ci.ddupan.top/assignment-id"] = format!("gitea-task-{task}").into();
        metadata["labels"]["ci.ddupan.top/task-id"] = task.to_string().into();
        let mut pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "executor", "image": "x"}]}});
        damage(&mut pod);
        site.kubernetes.kubelet().plan(&name, Plan::Ignored);
        site.kubernetes.add(Resource::Pods, NAMESPACE, pod);
        site.kubernetes.edit(Resource::Pods, &name, |pod| {
            pod["spec"]["nodeName"] = "node-1".into();
            pod["status"] = good["status"].clone();
        });
        name
    };
    damaged.map(add).collect()
}

/// Jobs that run, each at the gate of its key.
async fn running(site: &Site, keys: &[String]) -> Vec<JobId> {
    let jobs = site.gitea.push(keys.iter().map(|key| job(key, &["gate good"])).collect());
    site.desk.arrived("good", keys.len(), 4 * SOON).await;
    jobs
}

fn pod_of(site: &Site, job: JobId) -> Value {
    let of_task = format!("gitea-task-{}-", site.gitea.state(job).task.unwrap());
    let name = site.kubernetes.names(Resource::Pods).into_iter().find(|name| name.starts_with(&of_task)).unwrap();
    site.kubernetes.pod(&name)
}

/// What the controller's server for operators answers, once it fits.
async fn operators_see(site: &Site, path: &str, fits: impl Fn(u16, &str) -> bool) -> String {
    let end = tokio::time::Instant::now() + SOON;
    loop {
        let answer = asked(&site.dir.path().join("state0"), path).await;
        match answer {
            Ok((status, body)) if fits(status, &body) => return body,
            last => assert!(tokio::time::Instant::now() < end, "{path}: {last:?}\n{}", site.log()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// T22, POD-13, NEW-56, ENV-8, F45: beside 50 good Pods there are some of ours that cannot be read, each in another way, and one
/// that ended without a mark. A controller that starts is ready; the good ones go on, the ended one is reported and removed, and
/// each broken one is told once, shown with its problem, counted, left alone, and holds its slot until somebody removes it.
#[tokio::test]
async fn beside_good_ones_at_a_start() {
    let good = 50;
    let count = damages().len();
    let mut site = site(good + 1 + u32::try_from(count).unwrap()).await;
    let keys: Vec<String> = (0..=good).map(|n| format!("job{n}")).collect();
    let jobs = running(&site, &keys).await;
    let (ended, jobs) = jobs.split_first().unwrap();
    site.kill9(0).await;
    let pod = pod_of(&site, *ended);
    let names = add_broken(&site, &pod_of(&site, jobs[0]));
    site.kubernetes.kubelet().exit(text(&pod, "/metadata/name"), 7);
    site.restart();
    let state = site.ends_as(*ended, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]executor_exited: ")), "{:?}", state.rows());
    let left = good as usize + count;
    site.eventually("it is removed", SOON, |site| site.kubernetes.names(Resource::Pods).len() == left).await;
    operators_see(&site, "/readyz", |status, _| status == 200).await;
    let counted = format!(" {count}");
    let in_metrics = |line: &str| line.starts_with("gdr_quarantined{") && line.ends_with(&counted);
    operators_see(&site, "/metrics", |_, body| body.lines().any(in_metrics)).await;
    is_shown(&site, &names, left).await;
    // There is one free slot, and no other.
    let more = ["more", "waits"].map(|key| site.gitea.push_one(job(key, &["gate more"])));
    site.desk.arrived("more", 1, SOON).await;
    assert_eq!(more.iter().filter(|job| site.gitea.state(**job).task.is_some()).count(), 1);
    site.desk.open_gate("good");
    for job in jobs {
        site.ends_as(*job, Status::Success, 2 * SOON).await;
    }
    assert!(names.iter().all(|name| site.kubernetes.object(Resource::Pods, name).is_some()), "one was removed");
    names.iter().for_each(|name| site.kubernetes.force_delete(name));
    site.desk.open_gate("more");
    for job in more {
        site.ends_as(job, Status::Success, SOON).await;
    }
    site.finish().await;
}

/// In the status, the log and as events on the Pods.
async fn is_shown(site: &Site, names: &[String], used: usize) {
    let status = operators_see(site, "/status", |status, _| status == 200).await;
    let status: Value = serde_json::from_str(&status).unwrap();
    let quarantine = status["quarantine"].as_array().unwrap();
    let shown = |name: &str| quarantine.iter().find(|each| each["name"] == *name);
    for (name, (what, _)) in names.iter().zip(damages()) {
        let reason = shown(name).map(|each| text(each, "/reason").to_owned()).unwrap_or_default();
        assert!(reason.contains("delete its Pod") && reason.len() < 1000, "{what}: {reason:?} in {status:#}");
        let told = |site: &Site| site.kubernetes.events(name).iter().any(|(event, _)| event == "ExecutorQuarantined");
        site.eventually(what, SOON, told).await;
    }
    assert_eq!(quarantine.len(), names.len(), "{status:#}");
    assert_eq!(status["permits"][0]["executors"], used, "{status:#}");
    assert_eq!(site.log().matches(r#""event":"executor_quarantined""#).count(), names.len(), "{}", site.log());
}

/// A job that runs, and one that waits in the queue for its slot.
async fn one_runs_and_one_waits() -> (Site, JobId, JobId) {
    let site = Site::start(1, &[("LOOK_AHEAD", "1")]).await;
    let runs = site.gitea.push_one(job("runs", &["say before", "gate here", "say after"]));
    site.desk.arrived("here", 1, SOON).await;
    let waits = site.gitea.push_one(job("waits", &["say never"]));
    let queued = format!("\"task_id\":{}}}", site.gitea.state(runs).task.unwrap() + 1);
    let is_queued = |line: &str| line.contains("\"event\":\"dispatched\"") && line.contains(&queued);
    site.eventually("it is in the queue", SOON, |site| site.log().lines().any(is_queued)).await;
    (site, runs, waits)
}

/// What waited had an identity that the rules of now do not give.
async fn is_told_what_changed(site: &Site, waits: JobId) {
    let state = site.ends_as(waits, Status::Failure, SOON).await;
    let rows = state.rows();
    assert!(rows.iter().any(|row| row.starts_with("##[error]identity_rejected: ")), "{rows:?}");
    assert!(rows.iter().any(|row| row.contains("TRUST_DOMAIN, IDENTITY_PREFIX or IDENTITY_CASE")), "{rows:?}");
}

/// The identities that entries give.
fn identities(site: &Site) -> Vec<String> {
    let entries = site.kubernetes.objects(Resource::ClusterStaticEntries);
    entries.iter().map(|entry| text(entry, "/spec/spiffeID").to_owned()).collect()
}

/// T22, ENV-8, ENV-9, F23, F45: identities have another prefix from now on: a job that runs ends well under its old one, one that
/// waited in the queue ends with what changed, and the next has the new prefix.
#[tokio::test]
async fn another_prefix_while_jobs_run() {
    let (mut site, runs, waits) = one_runs_and_one_waits().await;
    site.kill9(0).await;
    site.set(&[("IDENTITY_PREFIX", "new")]);
    site.restart();
    operators_see(&site, "/readyz", |status, _| status == 200).await;
    assert_eq!(identities(&site), ["spiffe://td.test/ci/acme/app/runs"]);
    site.desk.open_gate("here");
    let state = site.ends_as(runs, Status::Success, SOON).await;
    assert_eq!(state.page().steps, [vec!["before"], vec![], vec!["after"]]);
    is_told_what_changed(&site, waits).await;
    let next = site.gitea.push_one(job("next", &["gate next"]));
    site.desk.arrived("next", 1, SOON).await;
    assert_eq!(identities(&site), ["spiffe://td.test/new/ci/acme/app/next"]);
    site.desk.open_gate("next");
    site.ends_as(next, Status::Success, SOON).await;
    site.finish().await;
}

/// A SPIRE of this trust domain, as far as the controller's own identity goes.
async fn other_domain(site: &Site, domain: &str) -> (ServedIdentity, [(&'static str, String); 3]) {
    let issuer = BuiltInIssuer::open(&site.dir.path().join("other"), &domain.parse().unwrap()).unwrap();
    let (socket, id) = (site.dir.path().join("other.sock"), format!("spiffe://{domain}/facade"));
    let served = issuer.serve(socket.clone(), id.parse().unwrap()).await.unwrap();
    let settings = [
        ("TRUST_DOMAIN", domain.to_owned()),
        ("RUNNER_FACADE_SPIFFE_ID", id),
        ("SPIFFE_ENDPOINT_SOCKET", format!("unix://{}", socket.display())),
    ];
    (served, settings)
}

/// T22, POD-13, ENV-8, ENV-9, F23, F45: the controller moves to another trust domain while a job runs. It starts and is ready, and
/// nothing is set apart: the job, which cannot reach it any more, keeps its Pod, its slot and its old identity until its Pod
/// ends, and is reported then; what waited is told what changed.
#[tokio::test]
async fn another_trust_domain_while_jobs_run() {
    let (mut site, runs, waits) = one_runs_and_one_waits().await;
    let (_served, settings) = other_domain(&site, "other.test").await;
    site.kill9(0).await;
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    site.set(&settings);
    site.restart();
    operators_see(&site, "/readyz", |status, _| status == 200).await;
    let status: Value =
        serde_json::from_str(&operators_see(&site, "/status", |status, _| status == 200).await).unwrap();
    assert_eq!(status["quarantine"], json!([]), "{status:#}");
    assert_eq!(status["permits"][0]["executors"], 1, "{status:#}");
    assert_eq!(identities(&site), ["spiffe://td.test/ci/acme/app/runs"]);
    assert_eq!(site.gitea.state(runs).status, Status::Running);
    site.kubernetes.kubelet().exit(&site.the_pod(), 14);
    let state = site.ends_as(runs, Status::Failure, SOON).await;
    assert!(state.rows().iter().any(|row| row.starts_with("##[error]result_lost: ")), "{:?}", state.rows());
    is_told_what_changed(&site, waits).await;
    site.finish().await;
}
