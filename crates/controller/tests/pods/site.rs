//! One controller with its far sides.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use controller::identity::{BuiltInIssuer, ServedIdentity};
use tempfile::TempDir;
use testkit::gitea::{Gitea, JobId, JobState, Status};
use testkit::kubernetes::{Kubernetes, Resource};
use testkit::outcome;
use testkit::queue::{Broker, Names};
use testkit::real::{NatsSettings, workplace};
use testkit::stand_in::{self, Temper};
use testkit::world::{Desk, SOON};
use tokio::process::{Child, Command};

use crate::node::{Image, Node};

const IMAGE: &str =
    "registry.example.org/ci/executor@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A running site. Everything ends when it is dropped.
pub(crate) struct Site {
    pub(crate) gitea: Arc<Gitea>,
    pub(crate) kubernetes: Arc<Kubernetes>,
    pub(crate) desk: Arc<Desk>,
    settings: Vec<(String, String)>,
    replicas: BTreeMap<usize, Child>,
    controllers: Vec<outcome::Controller>,
    _broker: Option<Arc<Broker>>,
    _node: Node,
    _identity: ServedIdentity,
    pub(crate) dir: TempDir,
}

impl Site {
    /// Starts everything, with these settings on top, and waits until the controller has declared itself.
    pub(crate) async fn start(capacity: u32, settings: &[(&str, &str)]) -> Self {
        Self::of(capacity, settings, None).await
    }

    /// The same with tasks in NATS, so that there can be replicas.
    pub(crate) async fn with_nats(capacity: u32, settings: &[(&str, &str)]) -> Self {
        Self::of(capacity, settings, Some(Broker::start(NatsSettings::default()).await.unwrap())).await
    }

    async fn of(capacity: u32, settings: &[(&str, &str)], broker: Option<Arc<Broker>>) -> Self {
        let dir = workplace(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let (gitea, kubernetes) = (Arc::new(Gitea::start().await), Arc::new(Kubernetes::start().await));
        let desk = Arc::new(Desk::open().await.unwrap());
        let issuer = BuiltInIssuer::open(&dir.path().join("ca"), &"td.test".parse().unwrap()).unwrap();
        let own = dir.path().join("c");
        let identity = issuer.serve(own.clone(), "spiffe://td.test/facade".parse().unwrap()).await.unwrap();
        let image =
            Image { program: env!("CARGO_BIN_EXE_gitea-dynamic-runner").into(), runner: dir.path().join("runner") };
        runner(&image.runner, &desk);
        let node = Node::start(&kubernetes, issuer, image, dir.path().to_owned());
        let mut defaults = defaults(dir.path(), capacity, &gitea, &kubernetes);
        if let Some(broker) = &broker {
            let of_queue = broker.settings_of(&Names::alone(), broker.url(), dir.path()).unwrap();
            let pairs = of_queue.iter().filter_map(|setting| setting.split_once('='));
            defaults.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut site = Self {
            gitea,
            kubernetes,
            desk,
            settings: defaults.into_iter().chain(settings).collect(),
            replicas: BTreeMap::new(),
            controllers: Vec::new(),
            _broker: broker,
            _node: node,
            _identity: identity,
            dir,
        };
        site.restart();
        let declared = |gitea: &Gitea| gitea.counters().declares > 0;
        site.check(site.gitea.wait_for("the controller has declared itself", declared, SOON).await);
        site
    }

    /// Changes settings for the controllers that are started from now on.
    pub(crate) fn set(&mut self, settings: &[(&str, &str)]) {
        self.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    }

    /// Starts the controller on its state.
    pub(crate) fn restart(&mut self) {
        self.start_replica(0);
    }

    /// Starts one of several controllers, on a state of its own.
    pub(crate) fn start_replica(&mut self, number: usize) {
        if number == 0 {
            self.controllers.push(outcome::Controller::started());
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"))
            .arg("controller")
            .env_clear()
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .env("STATE_DIR", self.dir.path().join(format!("state{number}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        self.replicas.insert(number, child.unwrap());
    }

    /// `kill -9` to a controller.
    pub(crate) async fn kill9(&mut self, number: usize) {
        if let Some(mut child) = self.replicas.remove(&number) {
            child.kill().await.unwrap();
        }
        if let Some(process) = self.controllers.last_mut().filter(|_| number == 0) {
            process.ended.get_or_insert((std::time::Instant::now(), outcome::Death::Killed));
        }
    }

    /// Asks a controller to end, and waits for it.
    pub(crate) async fn sigterm(&mut self, number: usize) -> std::process::ExitStatus {
        let mut child = self.replicas.remove(&number).unwrap();
        let pid = child.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = tokio::time::timeout(SOON, child.wait()).await.unwrap().unwrap();
        if let Some(process) = self.controllers.last_mut().filter(|_| number == 0) {
            process.ended.get_or_insert((std::time::Instant::now(), outcome::Death::InOrder));
        }
        status
    }

    /// A later process of the same registration leads from now on, as the judge of outcomes understands it.
    pub(crate) fn succeeded(&mut self) {
        self.controllers.push(outcome::Controller::started());
    }

    /// Who the Lease says leads.
    pub(crate) fn leader(&self) -> Option<String> {
        let lease = self.kubernetes.objects(Resource::Leases).into_iter().next()?;
        Some(crate::node::text(&lease, "/spec/holderIdentity").to_owned()).filter(|holder| !holder.is_empty())
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("controller.log")
    }

    /// What the controller has written.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn check<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> T {
        let log = self.log();
        let last = log.lines().rev().take(25).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
        result.unwrap_or_else(|error| panic!("{error}\ncontroller's log:\n{last}"))
    }

    /// Waits until a job has ended so, and shows it.
    pub(crate) async fn ends_as(&self, job: JobId, status: Status, limit: Duration) -> JobState {
        let ended = |gitea: &Gitea| gitea.state(job).status.is_end();
        self.check(self.gitea.wait_for(&format!("job {job} has ended"), ended, limit).await);
        let state = self.gitea.state(job);
        assert_eq!(state.status, status, "job {job} ended otherwise: {state:#?}\n{}", self.log());
        state
    }

    /// Waits for a condition of anything.
    pub(crate) async fn eventually(&self, what: &str, limit: Duration, condition: impl Fn(&Self) -> bool) {
        let end = tokio::time::Instant::now() + limit;
        while !condition(self) {
            if tokio::time::Instant::now() >= end {
                self.check(Err::<(), _>(format!(
                    "{what}: not within {limit:?}; pods {:?}",
                    self.kubernetes.names(Resource::Pods)
                )));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The only Pod.
    pub(crate) fn the_pod(&self) -> String {
        let names = self.kubernetes.names(Resource::Pods);
        assert_eq!(names.len(), 1, "{names:?}");
        names[0].clone()
    }

    /// Ends the test: nothing is left in the cluster, and every task ended by the rules of [`outcome`].
    pub(crate) async fn finish(mut self) {
        let kinds = [Resource::Pods, Resource::Secrets, Resource::ClusterStaticEntries];
        self.eventually("nothing is left in the cluster", Duration::from_secs(90), |site| {
            kinds.iter().all(|kind| site.kubernetes.names(*kind).is_empty())
        })
        .await;
        let controllers = std::mem::take(&mut self.controllers);
        let record = outcome::Record { controllers, ..outcome::Record::of(&self.gitea, &self.desk) };
        let broken: Vec<_> = outcome::judge(&record).violations.iter().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "{broken:#?}\n{}", self.log());
    }
}

fn runner(path: &Path, desk: &Desk) {
    let arguments = ["--exact", "stand_in_runner", "--ignored", "--nocapture", "--test-threads", "1"];
    let binary = std::env::current_exe().unwrap();
    stand_in::program(path, &binary, &arguments, desk.address(), Temper::Even, stand_in::VERSION).unwrap();
}

/// A free port of loopback; somebody else may take it before we do, which the controller then says.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn defaults(dir: &Path, capacity: u32, gitea: &Gitea, kubernetes: &Kubernetes) -> Vec<(String, String)> {
    let file = |name: &str, content: &str| {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let registration = gitea.register("controller", ["self-hosted"]);
    let port = free_port();
    [
        ("COMPONENTS", "scheduler,pod-worker".to_owned()),
        ("QUEUE", "embedded".to_owned()),
        ("IDENTITY_ISSUER", "workload-api".to_owned()),
        ("SPIFFE_ENDPOINT_SOCKET", format!("unix://{}", dir.join("c").display())),
        ("TRUST_DOMAIN", "td.test".to_owned()),
        ("GITEA_INSTANCE_URL", gitea.url()),
        ("GITEA_RUNNER_UUID_FILE", file("uuid", &registration.uuid)),
        ("GITEA_RUNNER_TOKEN_FILE", file("token", &registration.token)),
        ("RUNNER_FACADE_URL", format!("https://127.0.0.1:{port}")),
        ("RUNNER_FACADE_LISTEN", format!("127.0.0.1:{port}")),
        ("RUNNER_FACADE_SPIFFE_ID", "spiffe://td.test/facade".to_owned()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability", &"c".repeat(32))),
        ("ENVELOPE_KEY_FILE", file("envelope", &"e".repeat(32))),
        ("OPS_LISTEN", "127.0.0.1:0".to_owned()),
        ("DEFAULT_BACKEND", "pod".to_owned()),
        ("LOG_LEVEL", "debug".to_owned()),
        ("POD_EXECUTOR_IMAGE", IMAGE.to_owned()),
        ("POD_CAPACITY", capacity.to_string()),
        ("SPIRE_CLASS", "spire-mgmt-spire".to_owned()),
        ("SPIRE_CLUSTER", "ci-nodes".to_owned()),
        ("KUBERNETES_API", kubernetes.url()),
        ("KUBERNETES_TOKEN_FILE", file("kubernetes-token", &kubernetes.token())),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
