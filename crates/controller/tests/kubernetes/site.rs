//! A cluster with SPIRE, a Gitea, a NATS server, and a controller on this machine with the rights of the manifests.

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
const ACCOUNT: (&str, &str) = ("gitea-runners", "gitea-dynamic-runner");
const FACADE: &str = "spiffe://td.test/facade";
const REPOSITORY: &str = "acme/app";

/// Everything; it ends when this is dropped, what stands on other things first.
pub(crate) struct Site {
    controller: Option<Child>,
    settings: Vec<(String, String)>,
    pub(crate) gitea: Client,
    _server: GiteaServer,
    _broker: Arc<Broker>,
    _identity: Identity,
    pub(crate) cluster: Cluster,
    dir: TempDir,
}

impl Site {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let dir = workplace(Path::new("/var/tmp")).unwrap();
        let mut cluster = Cluster::start().await.unwrap();
        let identity = Identity::start(&mut cluster, Duration::from_millis(500)).await.unwrap();
        manifests::apply(cluster.admin()).await;
        let server = GiteaServer::start(dir.path(), &[]).await.unwrap();
        let gitea = server.client();
        gitea.create_repository(REPOSITORY).await.unwrap();
        let broker = Broker::start(NatsSettings::default()).await.unwrap();
        let of_queue = broker.settings_of(&Names::alone(), broker.url(), dir.path()).unwrap();
        let defaults = defaults(dir.path(), &cluster, &identity, &server).await;
        let pairs = of_queue.iter().filter_map(|setting| setting.split_once('='));
        let given = settings.iter().copied().chain(pairs).map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = defaults.into_iter().chain(given).collect();
        let mut site = Self {
            controller: None,
            settings,
            gitea,
            _server: server,
            _broker: broker,
            _identity: identity,
            cluster,
            dir,
        };
        site.restart();
        site.online().await;
        site
    }

    pub(crate) fn restart(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"))
            .arg("controller")
            .env_clear()
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        self.controller = Some(child.unwrap());
    }

    pub(crate) async fn kill9(&mut self) {
        if let Some(mut child) = self.controller.take() {
            child.kill().await.unwrap();
        }
    }

    async fn online(&self) {
        let online = eventually("Gitea sees the controller", JOB, async || {
            let runners = self.gitea.runners().await?;
            let ours = runners.iter().any(|runner| runner.is_online() && runner.labels().any(|label| label == "pod"));
            Ok(if ours { Seen::Done(()) } else { Seen::NotYet(self.log_end()) })
        });
        online.await.unwrap();
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("controller.log")
    }

    fn log_end(&self) -> String {
        let log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
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
        let ended = self.gitea.wait_run(REPOSITORY, run.id, JOB, |_| {}).await;
        let mut pages = String::new();
        for job in self.gitea.jobs(REPOSITORY, run.id).await.unwrap() {
            pages += &self.gitea.log(REPOSITORY, job.id).await.unwrap().unwrap_or_default();
        }
        let told = || format!("{pages}\ncontroller's log:\n{}", self.log_end());
        let conclusion = ended.unwrap_or_else(|error| panic!("{error}\n{}", told())).conclusion;
        assert_eq!(conclusion.as_deref(), Some(expected), "{}", told());
        pages
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
        gone.await.unwrap();
    }
}

async fn defaults(dir: &Path, cluster: &Cluster, identity: &Identity, server: &GiteaServer) -> Vec<(String, String)> {
    let file = |name: &str, content: &str| {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let token = server.client().registration_token().await.unwrap();
    let runner = RunnerClient::anonymous(server.url()).register("controller", &token, &["pod"]).await.unwrap();
    let credentials = runner.credentials().unwrap();
    let agent = identity.host_agent();
    let own = EntrySpec {
        id: FACADE.to_owned(),
        parent: agent.parent().to_owned(),
        selectors: vec!["unix:uid:0".to_owned()],
        ..EntrySpec::default()
    };
    identity.server().create_entry(&own).await.unwrap();
    let archive = std::env::var("GDR_EXECUTOR_IMAGE").unwrap();
    let image = cluster.import_archive(Path::new(&archive), "local.test/executor:dev").await.unwrap();
    let address = cluster.host_address();
    let port = std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
    let account = cluster.token(ACCOUNT.0, ACCOUNT.1).await.unwrap();
    [
        ("COMPONENTS", "scheduler,pod-worker".to_owned()),
        ("STATE_DIR", dir.join("state").display().to_string()),
        ("IDENTITY_ISSUER", "workload-api".to_owned()),
        ("SPIFFE_ENDPOINT_SOCKET", agent.workload_api().replacen("unix:", "unix://", 1)),
        ("TRUST_DOMAIN", "td.test".to_owned()),
        ("GITEA_INSTANCE_URL", server.url().to_owned()),
        ("GITEA_RUNNER_UUID_FILE", file("uuid", &credentials.uuid)),
        ("GITEA_RUNNER_TOKEN_FILE", file("token", &credentials.token)),
        ("RUNNER_FACADE_URL", format!("https://{address}:{port}")),
        ("RUNNER_FACADE_LISTEN", format!("{address}:{port}")),
        ("RUNNER_FACADE_SPIFFE_ID", FACADE.to_owned()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability", &"c".repeat(32))),
        ("ENVELOPE_KEY_FILE", file("envelope", &"e".repeat(32))),
        ("OPS_LISTEN", "127.0.0.1:0".to_owned()),
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
