//! A cluster with SPIRE, a Gitea, a NATS server, and a controller on this machine with the rights of the manifests.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use testkit::queue::{Broker, Names};
use testkit::real::kubernetes::{CLASS, CLUSTER, Cluster, Identity};
use testkit::real::spire::EntrySpec;
use testkit::real::{Client, GiteaServer, NatsSettings, Run, Seen, eventually, workplace};
use testkit::runner_client::RunnerClient;
use tokio::process::{Child, Command};

use crate::manifests;

/// A job of a few steps, with the start of its Pod, on a busy machine.
pub(crate) const JOB: Duration = Duration::from_secs(180);
pub(crate) const NAMESPACE: &str = "gitea-actions";
/// Of the controller: namespace and ServiceAccount in the manifests.
pub(crate) const ACCOUNT: (&str, &str) = ("gitea-runners", "gitea-dynamic-runner");
const FACADE: &str = "spiffe://td.test/facade";
const REPOSITORY: &str = "acme/app";

/// Everything; it ends when this is dropped, what stands on other things first.
pub(crate) struct Site {
    controller: Option<Child>,
    /// Of other registrations.
    beside: Vec<Child>,
    settings: Vec<(String, String)>,
    pub(crate) gitea: Client,
    pub(crate) server: GiteaServer,
    /// Where the first controller tells its metrics.
    ops: String,
    pub(crate) broker: Arc<Broker>,
    pub(crate) identity: Identity,
    pub(crate) cluster: Cluster,
    pub(crate) dir: TempDir,
}

impl Site {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let mut site = Self::without_controller(Cluster::start().await.unwrap(), &[], NatsSettings::default()).await;
        site.serve(settings).await;
        site
    }

    /// Applies the manifests and starts a controller with these settings on top.
    pub(crate) async fn serve(&mut self, settings: &[(&str, &str)]) {
        self.prepare(settings).await;
        self.restart();
        self.online("pod").await;
    }

    /// Applies the manifests, and makes the settings of controllers with these on top.
    pub(crate) async fn prepare(&mut self, settings: &[(&str, &str)]) {
        manifests::apply(self.cluster.admin()).await;
        self.settings = self.settings(settings).await;
    }

    /// A controller of the same registration with these settings on top. It ends when this is dropped.
    pub(crate) fn replica(&self, settings: &[(&str, String)]) -> Child {
        let mut all: BTreeMap<String, String> = self.settings.iter().cloned().collect();
        all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        started(&self.log_file(), &all.into_iter().collect::<Vec<_>>())
    }

    /// On this cluster, and a Gitea and a NATS server with these settings.
    pub(crate) async fn without_controller(mut cluster: Cluster, gitea: &[(&str, &str)], nats: NatsSettings) -> Self {
        let dir = workplace(Path::new("/var/tmp")).unwrap();
        let identity = Identity::start(&mut cluster, Duration::from_millis(500)).await.unwrap();
        let server = GiteaServer::start(dir.path(), gitea).await.unwrap();
        let gitea = server.client();
        gitea.create_repository(REPOSITORY).await.unwrap();
        let broker = Broker::start(nats).await.unwrap();
        let ops = format!("127.0.0.1:{}", free_port(std::net::Ipv4Addr::LOCALHOST));
        let (controller, beside, settings) = (None, Vec::new(), Vec::new());
        Self { controller, beside, settings, gitea, server, ops, broker, identity, cluster, dir }
    }

    /// Of a controller on this machine.
    async fn settings(&self, given: &[(&str, &str)]) -> Vec<(String, String)> {
        let of_queue = self.broker.settings_of(&Names::alone(), self.broker.url(), self.dir.path()).unwrap();
        let pairs = of_queue.iter().filter_map(|setting| setting.split_once('='));
        let given = [("OPS_LISTEN", self.ops.as_str())].into_iter().chain(given.iter().copied()).chain(pairs);
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        defaults(self.dir.path(), &self.cluster, &self.identity, &self.server).await.into_iter().chain(given).collect()
    }

    pub(crate) fn restart(&mut self) {
        self.controller = Some(started(&self.log_file(), &self.settings));
    }

    /// A controller beside the first one, of a registration of its own, with these settings on top, for jobs that ask for
    /// this label. It may not be [`Site::online`] yet.
    pub(crate) async fn beside(&mut self, label: &str, settings: &[(&str, &str)]) {
        let own = self.dir.path().join(format!("beside-{label}"));
        std::fs::create_dir(&own).unwrap();
        let registered = registered(&self.server, &own, label).await;
        let (address, port) = (self.cluster.host_address(), free_port(self.cluster.host_address()));
        let theirs = [
            ("STATE_DIR", own.join("state").display().to_string()),
            ("EXTRA_LABELS", format!("{label}=pod")),
            ("RUNNER_FACADE_URL", format!("https://{address}:{port}")),
            ("RUNNER_FACADE_LISTEN", format!("{address}:{port}")),
            ("QUEUE", "embedded".to_owned()),
            ("OPS_LISTEN", "127.0.0.1:0".to_owned()),
        ];
        let given = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let mut all: BTreeMap<String, String> = self.settings.iter().cloned().collect();
        all.retain(|name, _| !name.starts_with("NATS_"));
        all.extend(theirs.into_iter().chain(registered).chain(given).map(|(name, value)| (name.to_owned(), value)));
        self.beside.push(started(&self.log_file(), &all.into_iter().collect::<Vec<_>>()));
    }

    /// A file in the site's folder.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        file(self.dir.path(), name, content)
    }

    pub(crate) async fn kill9(&mut self) {
        if let Some(mut child) = self.controller.take() {
            child.kill().await.unwrap();
        }
    }

    /// Waits until a controller has declared this label.
    pub(crate) async fn online(&self, label: &str) {
        let online = eventually("Gitea sees the controller", JOB, async || {
            let runners = self.gitea.runners().await?;
            let ours =
                runners.iter().any(|runner| runner.is_online() && runner.labels().any(|declared| declared == label));
            Ok(if ours { Seen::Done(()) } else { Seen::NotYet(self.log_end()) })
        });
        online.await.unwrap();
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("controller.log")
    }

    /// Of all controllers, of those in Pods as far as the node still has it.
    pub(crate) fn log(&self) -> String {
        let mut log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let children = |folder: PathBuf| {
            let mut paths: Vec<_> =
                std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            paths.sort();
            paths
        };
        let pods = children(self.cluster.folder().join("log/pods"));
        let containers = pods.into_iter().map(|pod| pod.join("controller")).flat_map(children);
        containers.for_each(|file| log.push_str(&std::fs::read_to_string(file).unwrap_or_default()));
        log
    }

    pub(crate) fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().rev().take(40).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Pushes a workflow, and returns its run.
    pub(crate) async fn push(&self, workflow: &str) -> Run {
        let commit = self.gitea.push_files(REPOSITORY, &[(".gitea/workflows/ci.yml", workflow)]).await.unwrap();
        self.gitea.runs_of_commit(REPOSITORY, &commit, 1, JOB).await.unwrap().remove(0)
    }

    /// Waits for the end of a run, which must be this one; returns what the pages of its jobs show.
    pub(crate) async fn ends(&self, run: &Run, expected: &str) -> String {
        self.each_ends(run, expected).await.into_values().collect()
    }

    /// The same with the page of each job, by its key.
    pub(crate) async fn each_ends(&self, run: &Run, expected: &str) -> BTreeMap<String, String> {
        let ended = self.gitea.wait_run(REPOSITORY, run.id, JOB, |_| {}).await;
        let pages = self.pages(run).await.into_iter().map(|(key, page)| format!("{key}:\n{page}")).collect::<String>();
        let told = || format!("{pages}\ncontroller's log:\n{}", self.log_end());
        let conclusion = ended.unwrap_or_else(|error| panic!("{error}\n{}", told())).conclusion;
        assert_eq!(conclusion.as_deref(), Some(expected), "{}", told());
        self.pages(run).await
    }

    /// What the pages of a run's jobs show now.
    pub(crate) async fn pages(&self, run: &Run) -> BTreeMap<String, String> {
        let mut pages = BTreeMap::new();
        for job in self.gitea.jobs(REPOSITORY, run.id).await.unwrap() {
            pages.insert(job.key, self.gitea.log(REPOSITORY, job.id).await.unwrap().unwrap_or_default());
        }
        pages
    }

    /// The name of the only Pod whose job has begun, when there is one.
    pub(crate) async fn claimed_pod(&self) -> String {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=ci.ddupan.top/claimed%3Dtrue");
        let claimed = eventually("a Pod is claimed", JOB, async || {
            let list = self.cluster.admin().get(&path).await?.object(&path)?;
            let pods = list["items"].as_array().cloned().unwrap_or_default();
            let lives = |pod: &&serde_json::Value| pod["metadata"]["deletionTimestamp"].is_null();
            Ok(match pods.iter().find(lives).and_then(|pod| pod["metadata"]["name"].as_str()) {
                Some(name) => Seen::Done(name.to_owned()),
                None => Seen::NotYet(format!("{} Pods", pods.len())),
            })
        });
        claimed.await.unwrap()
    }

    /// Slots that the first controller says are used.
    pub(crate) async fn used_slots(&self) -> u32 {
        let ops = testkit::kubernetes::Client::new(&format!("http://{}", self.ops), "", None).unwrap();
        let metrics = ops.get("/metrics").await.unwrap().body;
        let metrics = metrics.as_str().unwrap();
        let used = metrics.lines().find_map(|line| line.strip_prefix("gdr_slots{backend=\"pod\",kind=\"used\"} "));
        used.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
    }

    /// The calls of controllers that did this to such objects, from the API server's audit.
    pub(crate) fn calls(&self, verb: &str, resource: &str) -> Vec<String> {
        let audit = std::fs::read_to_string(self.cluster.folder().join("log/audit.jsonl")).unwrap();
        let wanted = |line: &&str| {
            let call: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let of = call["user"]["username"].as_str().unwrap_or_default();
            let done = call["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
            let object = &call["objectRef"];
            of.ends_with(ACCOUNT.1) && done && call["verb"] == verb && object["resource"] == resource
        };
        audit.lines().filter(wanted).map(str::to_owned).collect()
    }

    /// What is in our namespace of this kind, by name.
    pub(crate) async fn names(&self, path: &str) -> Vec<String> {
        let list = self.cluster.admin().get(path).await.unwrap().object(path).unwrap();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until Pods, Secrets and entries are gone.
    pub(crate) async fn nothing_left(&self) {
        let paths = [
            format!("/api/v1/namespaces/{NAMESPACE}/pods"),
            format!("/api/v1/namespaces/{NAMESPACE}/secrets"),
            "/apis/spire.spiffe.io/v1alpha1/clusterstaticentries".to_owned(),
        ];
        let gone = eventually("nothing is left in the cluster", JOB, async || {
            let mut left = Vec::new();
            for path in &paths {
                left.extend(self.names(path).await);
            }
            Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(left.join(", ")) })
        });
        if let Err(error) = gone.await {
            let pods = self.cluster.admin().get(&paths[0]).await.unwrap().object(&paths[0]).unwrap();
            panic!("{error}\n{pods:#}\n{}", self.log_end());
        }
        let log = self.log();
        let refused: Vec<_> = log.lines().filter(|line| line.contains("Role and ClusterRole")).collect();
        assert!(refused.is_empty(), "the rights of the manifests do not suffice: {refused:#?}");
    }
}

/// How often a job's page has this word in a row of its own, as a step says it.
pub(crate) fn said(page: &str, word: &str) -> usize {
    page.lines().filter(|line| line.split_once(' ').is_some_and(|(_, text)| text == word)).count()
}

fn started(log: &Path, settings: &[(String, String)]) -> Child {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"))
        .arg("controller")
        .env_clear()
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn();
    child.unwrap()
}

/// The UUID and the token of a new registration.
pub(crate) async fn registration(server: &GiteaServer, label: &str) -> [String; 2] {
    let token = server.client().registration_token().await.unwrap();
    let runner = RunnerClient::anonymous(server.url()).register(label, &token, &[label]).await.unwrap();
    let credentials = runner.credentials().unwrap();
    [credentials.uuid.clone(), credentials.token.clone()]
}

/// A new registration, and the settings that name it.
async fn registered(server: &GiteaServer, dir: &Path, label: &str) -> [(&'static str, String); 2] {
    let [uuid, token] = registration(server, label).await;
    [("GITEA_RUNNER_UUID_FILE", file(dir, "uuid", &uuid)), ("GITEA_RUNNER_TOKEN_FILE", file(dir, "token", &token))]
}

/// Somebody else may take it before we do, which the controller then says.
pub(crate) fn free_port(address: std::net::Ipv4Addr) -> u16 {
    std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

/// A file for its owner alone.
fn file(dir: &Path, name: &str, content: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// Brings the executor's image to the node; its reference.
pub(crate) async fn executor_image(cluster: &Cluster) -> String {
    let archive = std::env::var("GDR_EXECUTOR_IMAGE").unwrap();
    cluster.import_archive(Path::new(&archive), "local.test/executor:dev").await.unwrap()
}

async fn defaults(dir: &Path, cluster: &Cluster, identity: &Identity, server: &GiteaServer) -> Vec<(String, String)> {
    let file = |name: &str, content: &str| file(dir, name, content);
    let [uuid, token] = registered(server, dir, "pod").await;
    let agent = identity.host_agent();
    let own = EntrySpec {
        id: FACADE.to_owned(),
        parent: agent.parent().to_owned(),
        selectors: vec!["unix:uid:0".to_owned()],
        ..EntrySpec::default()
    };
    identity.server().create_entry(&own).await.unwrap();
    let image = executor_image(cluster).await;
    let address = cluster.host_address();
    let port = free_port(address);
    let account = cluster.token(ACCOUNT.0, ACCOUNT.1).await.unwrap();
    [
        ("COMPONENTS", "scheduler,pod-worker".to_owned()),
        ("STATE_DIR", dir.join("state").display().to_string()),
        ("IDENTITY_ISSUER", "workload-api".to_owned()),
        ("SPIFFE_ENDPOINT_SOCKET", agent.workload_api().replacen("unix:", "unix://", 1)),
        ("TRUST_DOMAIN", "td.test".to_owned()),
        ("GITEA_INSTANCE_URL", server.url().to_owned()),
        uuid,
        token,
        ("RUNNER_FACADE_URL", format!("https://{address}:{port}")),
        ("RUNNER_FACADE_LISTEN", format!("{address}:{port}")),
        ("RUNNER_FACADE_SPIFFE_ID", FACADE.to_owned()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability", &"c".repeat(32))),
        ("ENVELOPE_KEY_FILE", file("envelope", &"e".repeat(32))),
        ("DEFAULT_BACKEND", "pod".to_owned()),
        ("LOG_LEVEL", "debug".to_owned()),
        ("POD_EXECUTOR_IMAGE", image),
        ("POD_CAPACITY", "2".to_owned()),
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
        ("POD_SPIFFE_VOLUME", format!("hostpath:{}", identity.socket_folder().display())),
        ("SPIRE_CLASS", CLASS.to_owned()),
        ("SPIRE_CLUSTER", CLUSTER.to_owned()),
        ("KUBERNETES_API", cluster.url()),
        ("KUBERNETES_CA_FILE", file("ca.pem", cluster.ca_pem())),
        ("KUBERNETES_TOKEN_FILE", file("kubernetes-token", &account)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
