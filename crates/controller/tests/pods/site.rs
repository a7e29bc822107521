//! One controller with its far sides.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use testkit::cluster::{Cluster, Image};
use testkit::gitea::{Gitea, JobId, JobState, Status};
use testkit::kubernetes::{Kubernetes, Resource};
use testkit::outcome;
use testkit::queue::{Broker, Names};
use testkit::real::{NatsSettings, workplace};
use testkit::stand_in::{self, Temper};
use testkit::world::{Desk, SOON};
use tokio::process::{Child, Command};

/// A running site. Everything ends when it is dropped.
pub(crate) struct Site {
    pub(crate) gitea: Arc<Gitea>,
    pub(crate) kubernetes: Arc<Kubernetes>,
    pub(crate) desk: Arc<Desk>,
    settings: Vec<(String, String)>,
    replicas: BTreeMap<usize, Child>,
    controllers: Vec<outcome::Controller>,
    broker: Option<Arc<Broker>>,
    cluster: Arc<Cluster>,
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
        let gitea = Arc::new(Gitea::start().await);
        let desk = Arc::new(Desk::open().await.unwrap());
        let image =
            Image { program: env!("CARGO_BIN_EXE_gitea-dynamic-runner").into(), runner: dir.path().join("runner") };
        runner(&image.runner, &desk);
        let cluster = Cluster::start(image, dir.path()).await.unwrap();
        let mut defaults = vec![
            ("QUEUE".to_owned(), "embedded".to_owned()),
            ("GITEA_INSTANCE_URL".to_owned(), gitea.url()),
            ("LOG_LEVEL".to_owned(), "debug".to_owned()),
            ("POD_CAPACITY".to_owned(), capacity.to_string()),
        ];
        let of_cluster = cluster.settings_of(&gitea, &cluster.kubernetes.url(), dir.path()).unwrap();
        let of_queue =
            broker.iter().map(|broker| broker.settings_of(&Names::alone(), broker.url(), dir.path()).unwrap());
        for setting in of_cluster.into_iter().chain(of_queue.flatten()) {
            let (name, value) = setting.split_once('=').unwrap();
            defaults.push((name.to_owned(), value.to_owned()));
        }
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut site = Self {
            gitea,
            kubernetes: Arc::clone(&cluster.kubernetes),
            desk,
            settings: defaults.into_iter().chain(settings).collect(),
            replicas: BTreeMap::new(),
            controllers: Vec::new(),
            broker,
            cluster,
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
        self.start_replica_with(number, &[]);
    }

    /// The same, with these settings on top.
    pub(crate) fn start_replica_with(&mut self, number: usize, settings: &[(&str, String)]) {
        if number == 0 {
            self.controllers.push(outcome::Controller::started());
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file()).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"))
            .arg("controller")
            .env_clear()
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .env("STATE_DIR", self.dir.path().join(format!("state{number}")))
            .envs(settings.iter().map(|(name, value)| (name, value)))
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
        let pid = self.replicas.get(&number).and_then(Child::id);
        let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let status = self.exits(number).await;
        if let Some(process) = self.controllers.last_mut().filter(|_| number == 0) {
            process.ended.get_or_insert((std::time::Instant::now(), outcome::Death::InOrder));
        }
        status
    }

    /// Sends a signal to a controller that is not to end by it.
    pub(crate) fn signal(&self, number: usize, which: testkit::real::Signal) {
        testkit::real::signal(self.replicas.get(&number).and_then(Child::id).unwrap(), which);
    }

    /// Where NATS is.
    pub(crate) fn nats(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.broker.as_ref().unwrap().port()).into()
    }

    /// Waits for the end of a controller.
    pub(crate) async fn exits(&mut self, number: usize) -> std::process::ExitStatus {
        let mut child = self.replicas.remove(&number).unwrap();
        tokio::time::timeout(SOON, child.wait()).await.unwrap().unwrap()
    }

    /// A later process of the same registration leads from now on, as the judge of outcomes understands it.
    pub(crate) fn succeeded(&mut self) {
        self.controllers.push(outcome::Controller::started());
    }

    /// Who the Lease says leads.
    pub(crate) fn leader(&self) -> Option<String> {
        let lease = self.kubernetes.objects(Resource::Leases).into_iter().next()?;
        Some(text(&lease, "/spec/holderIdentity").to_owned()).filter(|holder| !holder.is_empty())
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("controller.log")
    }

    /// What the controller has written.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub(crate) fn check<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> T {
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
    pub(crate) async fn finish(self) {
        self.finish_but_for(&[]).await;
    }

    /// The same without these rules.
    pub(crate) async fn finish_but_for(mut self, left_out: &[outcome::Rule]) {
        let empty = |site: &Self| site.cluster.objects().is_empty();
        self.eventually("nothing is left in the cluster", Duration::from_secs(90), empty).await;
        let controllers = std::mem::take(&mut self.controllers);
        let record = outcome::Record { controllers, ..outcome::Record::of(&self.gitea, &self.desk) };
        let judged = outcome::judge(&record).violations.into_iter().filter(|broken| !left_out.contains(&broken.rule));
        let broken: Vec<_> = judged.map(|broken| broken.to_string()).collect();
        assert!(broken.is_empty(), "{broken:#?}\n{}", self.log());
    }
}

fn runner(path: &Path, desk: &Desk) {
    let arguments = ["--exact", "stand_in_runner", "--ignored", "--nocapture", "--test-threads", "1"];
    let binary = std::env::current_exe().unwrap();
    stand_in::program(path, &binary, &arguments, desk.address(), Temper::Even, stand_in::VERSION).unwrap();
}

/// The text at a place of an object; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
