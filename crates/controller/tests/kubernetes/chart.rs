//! The controller as the chart installs it: its own image in two Pods, reached by the names of Services.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::real::kubernetes::{CLASS, CLUSTER, Cluster, NameServer};
use testkit::real::spire::EntrySpec;
use testkit::real::{Cache, NatsSettings, Program, Seen, eventually};
use tokio::process::Command;
use tokio::time::timeout;

use crate::identity::nothing_left;
use crate::jobs::SMOKE;
use crate::site::{ACCOUNT, JOB, Site, executor_image, registration, said};
use crate::waiting::waiting;
use crate::wires::{Certified, Wire};

/// Of the controllers.
const NAMESPACE: &str = ACCOUNT.0;
/// Also the name of all that the chart makes.
const RELEASE: &str = ACCOUNT.1;
const GITEA: &str = "git.example.org";
const NATS: &str = "nats.example.org";
const CALL: Duration = Duration::from_secs(120);

/// IMG-1, NEW-59, NEW-77, NEW-78, NEW-131, NEW-146, WFL-1, F154, T75: installed by Helm as docs/kubernetes.md says, the
/// controller's own image runs in two confined Pods, one of which leads and is ready by the chart's own probes; Gitea is
/// found by a name server, NATS by `hostAliases`, the leader by the name of its Service; the smoke workflow succeeds as it
/// is; a job survives that the leader's Pod is deleted in the middle of it, and a restart of the whole roll-out; an
/// uninstallation leaves nothing.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn the_chart_as_it_is_installed() {
    let installed = Installed::start(Means::Entries).await;
    let site = &installed.site;
    installed.one_leads(&BTreeSet::new()).await;
    confined();
    let run = site.push(SMOKE).await;
    let page = site.ends(&run, "success").await;
    assert!(page.contains("issued: spiffe://td.test/ci/acme/app/smoke"), "{page}");
    site.nothing_left().await;
    a_leader_is_deleted(&installed).await;
    a_restart_of_all(&installed).await;
    installed.uninstalled().await;
}

/// WFL-1, POD-4, NEW-146: installed for a site without a SPIRE controller manager, the confined controller reaches the admin
/// socket of a SPIRE server that lets in its own group only, and needs no right over entries in Kubernetes; the smoke
/// workflow succeeds as it is, and its entry goes.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn the_chart_with_entries_in_the_server() {
    let installed = Installed::start(Means::Server).await;
    confined();
    let run = installed.site.push(SMOKE).await;
    let page = installed.site.ends(&run, "success").await;
    assert!(page.contains("issued: spiffe://td.test/ci/acme/app/smoke"), "{page}");
    nothing_left(&installed.site).await;
    installed.uninstalled().await;
}

async fn a_leader_is_deleted(installed: &Installed) {
    let job = waiting(&installed.site).await;
    let leader = installed.one_leads(&BTreeSet::new()).await;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{leader}");
    installed.site.cluster.admin().delete(&path, &Value::Null).await.unwrap().object(&path).unwrap();
    installed.one_leads(&BTreeSet::from([leader])).await;
    job.gate.open();
    survived(&installed.site, &installed.site.ends(&job.run, "success").await).await;
}

async fn a_restart_of_all(installed: &Installed) {
    let job = waiting(&installed.site).await;
    let former = installed.pods().await.into_iter().map(|pod| name(&pod)).collect();
    // What `kubectl rollout restart` does.
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}");
    let restarted = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z"});
    let patch = json!({"spec": {"template": {"metadata": {"annotations": restarted}}}});
    installed.site.cluster.admin().patch(&path, &patch).await.unwrap().object(&path).unwrap();
    installed.one_leads(&former).await;
    job.gate.open();
    survived(&installed.site, &installed.site.ends(&job.run, "success").await).await;
}

async fn survived(site: &Site, page: &str) {
    assert!(said(page, "before") == 1 && said(page, "after") == 1, "{page}");
    site.nothing_left().await;
}

/// Through what Pods get their entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// Objects for a SPIRE controller manager.
    Entries,
    /// The SPIRE server's admin socket.
    Server,
}

/// A site whose controllers run in Pods.
struct Installed {
    site: Site,
    helm: Helm,
    _names: NameServer,
    _wires: [Wire; 2],
}

impl Installed {
    async fn start(means: Means) -> Self {
        let certified = Certified::for_names(&[GITEA, NATS]);
        let folder = tempfile::tempdir().unwrap();
        let nats = NatsSettings { tls: Some(certified.of_nats(folder.path())), ..NatsSettings::default() };
        let cluster = Cluster::start().await.unwrap();
        let url = format!("https://{GITEA}/");
        let mut site = Site::without_controller(cluster, &[("server.ROOT_URL", &url)], nats).await;
        let host = site.cluster.host_address();
        let gitea: u16 = site.server.url().rsplit(':').next().unwrap().parse().unwrap();
        let wires = [
            Wire::behind_tls((host, 443), gitea, &certified).await,
            Wire::plain((host, 4222), site.broker.port()).await,
        ];
        let names = NameServer::start(&site.cluster, &[GITEA]).await.unwrap();
        site.cluster.spiffe_volumes(&site.identity).await.unwrap();
        let (level, identity) = match means {
            Means::Entries => ("restricted", json!({"className": CLASS})),
            Means::Server => ("privileged", without_controller_manager(&mut site).await),
        };
        prepare(&site, &certified.authority, level).await;
        let helm = Helm::of(&site);
        let values = site.file("values.yaml", &values(&site, identity).await.to_string());
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/helm/gitea-dynamic-runner");
        helm.run(&["upgrade", "--install", "--values", &values, RELEASE, chart.to_str().unwrap()]).await;
        let installed = Self { site, helm, _names: names, _wires: wires };
        installed.one_leads(&BTreeSet::new()).await;
        installed.site.online("pod").await;
        installed
    }

    /// The Pods of the Deployment.
    async fn pods(&self) -> Vec<Value> {
        let path =
            format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component%3Dcontroller");
        let list = self.site.cluster.admin().get(&path).await.unwrap().object(&path).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until there are two Pods and none of the former ones, both run, and the one that holds the Lease is the only
    /// one that is ready; its name.
    async fn one_leads(&self, former: &BTreeSet<String>) -> String {
        let path = "/apis/coordination.k8s.io/v1/namespaces/gitea-actions/leases";
        let leads = eventually("one of two leads", JOB, async || {
            let pods = self.pods().await;
            let ready: Vec<_> = pods.iter().filter(|pod| status(pod)["ready"] == true).map(name).collect();
            let run = pods.iter().filter(|pod| status(pod)["started"] == true).count();
            let ended = pods.iter().filter(|pod| status(pod)["restartCount"].as_u64() > Some(0)).count();
            assert_eq!(ended, 0, "{}{}", said_of(&pods), self.site.log_end());
            let lease = self.site.cluster.admin().get(path).await?.object(path)?["items"][0]["spec"].clone();
            let holder = lease["holderIdentity"].as_str().unwrap_or_default();
            let settled = pods.len() == 2 && run == 2 && !pods.iter().any(|pod| former.contains(&name(pod)));
            Ok(match ready.as_slice() {
                [leader] if settled && holder.contains(leader.as_str()) => Seen::Done(leader.clone()),
                _ => Seen::NotYet(format!("ready: {ready:?}, lease: {lease}, {}", said_of(&pods))),
            })
        });
        leads.await.unwrap_or_else(|error| panic!("{error}\n{}", self.site.log_end()))
    }

    /// What docs/kubernetes.md says under "Remove".
    async fn uninstalled(&self) {
        self.helm.run(&["uninstall", RELEASE]).await;
        let gone = eventually("the Pods are gone", JOB, async || {
            let pods = self.pods().await;
            Ok(if pods.is_empty() { Seen::Done(()) } else { Seen::NotYet(said_of(&pods)) })
        });
        gone.await.unwrap_or_else(|error| panic!("{error}\n{}", self.site.log_end()));
        for path in
            ["/apis/spire.spiffe.io/v1alpha1/clusterstaticentries", "/apis/spire.spiffe.io/v1alpha1/clusterspiffeids"]
        {
            assert_eq!(self.site.names(path).await, [""; 0], "{path}");
        }
    }
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Of its only container.
fn status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn said_of(pods: &[Value]) -> String {
    pods.iter().map(|pod| format!("{}: {}\n", name(pod), pod["status"])).collect()
}

/// What docs/kubernetes.md has an operator do without a SPIRE controller manager; what the chart is told of it.
async fn without_controller_manager(site: &mut Site) -> Value {
    site.identity.end_entry_manager();
    let own = EntrySpec {
        id: format!("spiffe://td.test/ns/{NAMESPACE}/sa/{RELEASE}"),
        parent: site.identity.node_parent(),
        selectors: vec![format!("k8s:ns:{NAMESPACE}"), format!("k8s:sa:{RELEASE}")],
        ..EntrySpec::default()
    };
    site.identity.server().create_entry(&own).await.unwrap();
    let socket = site.identity.server().socket();
    let group = std::fs::metadata(&socket).unwrap().gid();
    let (folder, name) = (socket.parent().unwrap(), socket.file_name().unwrap().to_str());
    json!({"means": "spire-server", "serverSocketFolder": folder, "serverSocket": name, "serverSocketGroup": group})
}

/// What docs/kubernetes.md has an operator make before the chart: namespace, Secrets and authorities.
async fn prepare(site: &Site, authority: &str, level: &str) {
    let make = async |path: &str, object: Value| {
        site.cluster.admin().post(path, &object).await.unwrap().object(path).unwrap();
    };
    let labels = json!({"pod-security.kubernetes.io/enforce": level});
    make("/api/v1/namespaces", json!({"metadata": {"name": NAMESPACE, "labels": labels}})).await;
    let [uuid, token] = registration(&site.server, "pod").await;
    let passwords = site.broker.passwords();
    for (name, data) in [
        ("registration", json!({"uuid": uuid, "token": token})),
        ("keys", json!({"capability": "c".repeat(44), "envelope": "e".repeat(44)})),
        ("nats", json!({"producer": passwords.producer, "worker": passwords.worker})),
    ] {
        let secret = json!({"metadata": {"name": format!("{RELEASE}-{name}")}, "stringData": data});
        make(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), secret).await;
    }
    for name in ["nats-ca", "gitea-ca"] {
        let map = json!({"metadata": {"name": name}, "data": {"ca.crt": authority}});
        make(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), map).await;
    }
}

async fn values(site: &Site, mut identity: Value) -> Value {
    identity["trustDomain"] = "td.test".into();
    identity["cluster"] = CLUSTER.into();
    let archive = PathBuf::from(std::env::var("GDR_CONTROLLER_IMAGE").unwrap());
    let controller = site.cluster.import_archive(&archive, "local.test/controller:dev").await.unwrap();
    json!({
        "images": {"controller": controller, "executor": executor_image(&site.cluster).await},
        "gitea": {"url": format!("https://{GITEA}")},
        "caConfigMap": "gitea-ca",
        "nats": {"url": format!("tls://{NATS}:4222"), "caConfigMap": "nats-ca"},
        "hostAliases": [{"ip": site.cluster.host_address(), "hostnames": [NATS]}],
        "identity": identity,
        "executors": {"capacity": 2},
        "settings": {"LOG_LEVEL": "debug"},
    })
}

/// The processes of both controllers may do nothing that they need not, whatever was asked for.
fn confined() {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let line = b"/usr/local/bin/gitea-dynamic-runner\0controller\0";
    let ours: Vec<_> =
        processes.filter(|path| std::fs::read(path.join("cmdline")).is_ok_and(|words| words == line)).collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    for process in ours {
        let status = std::fs::read_to_string(process.join("status")).unwrap();
        let is =
            |wanted: &str| status.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == wanted);
        let none = "0".repeat(16);
        for wanted in ["Uid: 65532 65532 65532 65532", "Gid: 65532 65532 65532 65532", "NoNewPrivs: 1", "Seccomp: 2"] {
            assert!(is(wanted), "{wanted}: {status}");
        }
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(is(&format!("{set}: {none}")), "{set}: {status}");
        }
        let mounts = std::fs::read_to_string(process.join("mounts")).unwrap();
        let root =
            mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|mount| mount[1] == "/").unwrap();
        assert!(root[3].split(',').any(|option| option == "ro"), "{mounts}");
    }
}

/// Helm, which sees this cluster only and nothing of a developer's.
struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Helm {
    fn of(site: &Site) -> Self {
        let program = Cache::locate().unwrap().program(Program::Helm).unwrap();
        Self { program, kubeconfig: site.cluster.admin_kubeconfig(), home: site.dir.path().to_owned() }
    }

    async fn run(&self, words: &[&str]) {
        let mut command = Command::new(&self.program);
        command.args(words).args(["--namespace", NAMESPACE]).env_clear().env("HOME", &self.home);
        command.env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(CALL, command.output()).await.unwrap().unwrap();
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).join("\n");
        assert!(output.status.success(), "helm {}: {told}", words.join(" "));
    }
}
