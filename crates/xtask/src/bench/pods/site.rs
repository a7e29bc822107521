//! The program with Pods as its executors, as one process: the doubles of Gitea and of Kubernetes on its two sides, a real
//! NATS server for its queue, a real SPIRE for its own identity. No executor runs: a Pod is what the double makes of it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use domain::id::assignment_of_name;
use serde_json::Value;
use tempfile::TempDir;
use testkit::gitea::Gitea;
use testkit::kubernetes::{Call, Kubernetes, Resource, Verb};
use testkit::queue::{Broker, Names};
use testkit::real::NatsSettings;
use testkit::real::spire::{EntrySpec, SpireAgent, SpireServer, SpireSettings};
use testkit::runner_client::{Credentials, RunnerClient};

use super::super::process::{Cpu, Memory};
use super::super::subject::{SOON, now, since_epoch};

pub(super) const INSTANCE: &str = "bench";
pub(super) const NAMESPACE: &str = "gitea-actions";
const TRUST_DOMAIN: &str = "td.test";
const FACADE: &str = "spiffe://td.test/facade";
const IMAGE: &str =
    "registry.example.org/ci/executor@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Everything ends when it is dropped.
pub(super) struct Site {
    pub(super) gitea: Gitea,
    pub(super) kubernetes: Kubernetes,
    credentials: Credentials,
    settings: BTreeMap<String, String>,
    place: TempDir,
    process: Option<Child>,
    _broker: Arc<Broker>,
    _spire: (SpireServer, SpireAgent),
}

impl Site {
    /// Everything but the program.
    pub(super) async fn prepare(capacity: usize) -> anyhow::Result<Self> {
        let (gitea, kubernetes) = (Gitea::start().await, Kubernetes::start().await);
        let broker = Broker::start(NatsSettings::default()).await?;
        let settings = SpireSettings { trust_domain: TRUST_DOMAIN.to_owned(), ..SpireSettings::default() };
        let server = SpireServer::start(settings).await?;
        let agent = SpireAgent::start(&server).await?;
        let selectors = vec![format!("unix:uid:{}", rustix::process::getuid().as_raw())];
        let (id, parent) = (FACADE.to_owned(), agent.parent().to_owned());
        server.create_entry(&EntrySpec { id, parent, selectors, ..EntrySpec::default() }).await?;
        let place = tempfile::tempdir()?;
        let credentials = gitea.register("controller", ["self-hosted", "pod"]);
        let mut settings = settings_of(place.path(), capacity, &gitea, &kubernetes, &credentials)?;
        settings.insert("SPIFFE_ENDPOINT_SOCKET".to_owned(), agent.workload_api().replace("unix:", "unix://"));
        let of_queue = broker.settings_of(&Names::alone(), broker.url(), place.path())?;
        let pairs = of_queue.iter().filter_map(|setting| setting.split_once('='));
        settings.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let (process, broker, spire) = (None, broker, (server, agent));
        Ok(Self { gitea, kubernetes, credentials, settings, place, process, _broker: broker, _spire: spire })
    }

    /// Starts the program and returns when it asks for work.
    pub(super) async fn serve(&mut self, program: &Path) -> anyhow::Result<()> {
        let fetches = self.gitea.counters().fetches;
        let log = std::fs::File::create(self.place.path().join("log"))?;
        let mut command = Command::new(program);
        command.arg("controller").env_clear().envs(&self.settings);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().with_context(|| format!("start {}", program.display()))?);
        let serves = |gitea: &Gitea| gitea.counters().fetches > fetches;
        self.gitea.wait_for("a FetchTask came", serves, SOON).await.with_context(|| self.tail())?;
        Ok(())
    }

    /// A client with the program's own registration, as a process before it had.
    pub(super) fn earlier(&self) -> RunnerClient {
        RunnerClient::new(&self.gitea.url(), self.credentials.clone())
    }

    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        Memory::of(self.pid()?)
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Cpu> {
        Cpu::of(self.pid()?)
    }

    fn pid(&self) -> anyhow::Result<u32> {
        self.process.as_ref().map(Child::id).context("it does not run")
    }

    /// When its log told of an event, on the wall clock, in order; with the number of the task, 0 where there is none.
    pub(super) fn told(&self, event: &str) -> anyhow::Result<Vec<(i64, Duration)>> {
        let log = std::fs::read_to_string(self.place.path().join("log"))?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let times = lines.filter(|line| line["event"] == event).map(|line| {
            let time = line["timestamp"].as_str().context("a line of the log has a time")?;
            Ok((line["task_id"].as_i64().unwrap_or_default(), since_epoch(time.parse()?)?))
        });
        times.collect()
    }

    /// How many lines of its log tell of an event.
    pub(super) fn tells(&self, event: &str) -> usize {
        let log = std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
        log.matches(&format!("\"event\":\"{event}\"")).count()
    }

    /// When the API server had answered the create of each task's Pod, on the wall clock.
    pub(super) fn created(&self) -> BTreeMap<i64, Duration> {
        let creates = self.kubernetes.calls_of(Verb::Create, Resource::Pods);
        let at = |call: Call| {
            let task = assignment_of_name(&call.name)?.task().get();
            Some((task, (now() + call.took?).saturating_sub(call.instant.elapsed())))
        };
        creates.into_iter().filter_map(at).collect()
    }

    /// The end of its log.
    pub(super) fn tail(&self) -> String {
        let log = std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ended = process.kill();
            let _reaped = process.wait();
        }
    }
}

fn settings_of(
    place: &Path,
    capacity: usize,
    gitea: &Gitea,
    kubernetes: &Kubernetes,
    credentials: &Credentials,
) -> anyhow::Result<BTreeMap<String, String>> {
    let file = |name: &str, content: &str| -> anyhow::Result<String> {
        let path = place.join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(path.display().to_string())
    };
    // Somebody else may take it before the program does, which it then says.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let settings = [
        ("COMPONENTS", "scheduler,pod-worker".to_owned()),
        ("INSTANCE_ID", INSTANCE.to_owned()),
        ("TRUST_DOMAIN", TRUST_DOMAIN.to_owned()),
        ("STATE_DIR", place.join("state").display().to_string()),
        ("HOSTNAME", "bench-0".to_owned()),
        ("GITEA_INSTANCE_URL", gitea.url()),
        ("GITEA_RUNNER_UUID_FILE", file("uuid", &credentials.uuid)?),
        ("GITEA_RUNNER_TOKEN_FILE", file("token", &credentials.token)?),
        ("RUNNER_FACADE_URL", format!("https://127.0.0.1:{port}")),
        ("RUNNER_FACADE_LISTEN", format!("127.0.0.1:{port}")),
        ("RUNNER_FACADE_SPIFFE_ID", FACADE.to_owned()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability", &"c".repeat(32))?),
        ("ENVELOPE_KEY_FILE", file("envelope", &"e".repeat(32))?),
        ("OPS_LISTEN", "127.0.0.1:0".to_owned()),
        ("DEFAULT_BACKEND", "pod".to_owned()),
        ("POD_EXECUTOR_IMAGE", IMAGE.to_owned()),
        ("POD_CAPACITY", capacity.to_string()),
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
        ("SPIRE_CLASS", "spire-mgmt-spire".to_owned()),
        ("SPIRE_CLUSTER", "ci-nodes".to_owned()),
        ("KUBERNETES_API", kubernetes.url()),
        ("KUBERNETES_TOKEN_FILE", file("kubernetes-token", &kubernetes.token())?),
    ];
    Ok(settings.map(|(name, value)| (name.to_owned(), value)).into())
}
