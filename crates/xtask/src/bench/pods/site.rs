//! The program with Pods as its executors, as one process: the doubles of Gitea and of Kubernetes on its two sides, a real
//! NATS server for its queue, a real SPIRE for its own identity. No executor runs: a Pod is what the double makes of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use domain::id::assignment_of_name;
use serde_json::Value;
use tempfile::TempDir;
use testkit::cluster::settings::{FACADE, TRUST_DOMAIN, of_controller};
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
    let registered = (credentials.uuid.as_str(), credentials.token.as_str());
    let mut settings = of_controller(place, registered, (&kubernetes.url(), &kubernetes.token()))?;
    settings.extend([
        ("INSTANCE_ID", INSTANCE.to_owned()),
        ("STATE_DIR", place.join("state").display().to_string()),
        ("HOSTNAME", "bench-0".to_owned()),
        ("GITEA_INSTANCE_URL", gitea.url()),
        ("POD_CAPACITY", capacity.to_string()),
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
    ]);
    Ok(settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
