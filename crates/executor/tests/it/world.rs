//! One executor with the official runner in front of the facade double.

use std::path::PathBuf;
use std::time::Duration;

use buffa::MessageField;
use executor::{BoxStream, Limits, Link, Orphans, Settings, Starter};
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1::Task;
use rustix::process::{getpid, set_child_subreaper};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::double::{ASSIGNMENT, CAPABILITY, Facade};

pub(crate) const TASK: i64 = 108;

/// A running executor.
pub(crate) struct Run {
    signals: mpsc::UnboundedSender<i32>,
    code: JoinHandle<u8>,
    workspace: tempfile::TempDir,
}

impl Run {
    pub(crate) fn start(facade: &Facade, limits: Limits) -> Self {
        Self::start_by(Starter::Direct, facade, limits)
    }

    pub(crate) fn start_by(starter: Starter, facade: &Facade, limits: Limits) -> Self {
        Self::start_with(starter, runner_binary(), facade, limits)
    }

    pub(crate) fn start_with(starter: Starter, runner_binary: PathBuf, facade: &Facade, limits: Limits) -> Self {
        Self::start_in(Orphans::NotOurs, starter, runner_binary, facade, limits)
    }

    /// In a process of its own, to which every orphan below it is handed.
    pub(crate) fn start_alone(facade: &Facade, limits: Limits) -> Self {
        set_child_subreaper(Some(getpid())).unwrap();
        Self::start_in(Orphans::Adopted, Starter::Direct, runner_binary(), facade, limits)
    }

    fn start_in(orphans: Orphans, starter: Starter, runner_binary: PathBuf, facade: &Facade, limits: Limits) -> Self {
        let address = facade.address;
        let link = Link::new(move || {
            async move {
                let stream: BoxStream = Box::new(TcpStream::connect(address).await?);
                Ok(stream)
            }
            .boxed()
        });
        let workspace = tempfile::tempdir().unwrap();
        let config = workspace.path().join("base.yaml");
        let base = format!(
            "host:\n  workdir_parent: {}\nrunner:\n  capacity: 9\n  envs: {{FROM_BASE: seen}}\n",
            workspace.path().display()
        );
        std::fs::write(&config, base).unwrap();
        let settings = Settings {
            assignment: ASSIGNMENT.to_owned(),
            capability: CAPABILITY.to_owned().into(),
            capability_file: Some(workspace.path().join("capability")),
            authority: "facade.invalid:443".parse().unwrap(),
            spiffe_id: "spiffe://example.org/ci/lab/once/j".to_owned(),
            workload_socket: "unix:///run/example.sock".to_owned(),
            backend: "local".to_owned(),
            labels: vec!["self-hosted".to_owned(), "local".to_owned()],
            deadline: Timestamp::now() + SignedDuration::from_secs(300),
            runner_binary,
            runner_config: Some(config),
            starter,
            orphans,
            limits,
        };
        let (signals, received) = mpsc::unbounded_channel();
        let code = tokio::spawn(async move { executor::run_over(&settings, link, received).await });
        Self { signals, code, workspace }
    }

    /// What the base configuration says is the parent of the job's folder.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.workspace.path().to_owned()
    }

    pub(crate) fn signal(&self, signal: i32) {
        self.signals.send(signal).unwrap();
    }

    /// The executor's exit code.
    pub(crate) async fn code(self) -> u8 {
        self.ended().await.0
    }

    /// The executor's exit code, and the last report that it left.
    pub(crate) async fn ended(self) -> (u8, Option<Vec<u8>>) {
        let code = tokio::time::timeout(Duration::from_secs(120), self.code).await;
        let left = std::fs::read(self.workspace.path().join(domain::last_report::FILE)).ok();
        (code.expect("the executor does not end").unwrap(), left)
    }
}

/// Limits with short pauses where a test would otherwise wait.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits { keep_alive: Duration::from_secs(1), ..Limits::default() };
    limits.graces.idle = Duration::from_secs(1);
    limits
}

/// A task with these steps, in the form in which Gitea hands it out (golden trace `once-quick`).
pub(crate) fn task(steps: &str) -> Task {
    let payload = format!(
        "\"on\": workflow_dispatch\njobs:\n    j:\n        name: j\n        runs-on: local\n        steps:\n{steps}"
    );
    let context = json!({
        "actor": "testbed-admin",
        "api_url": "http://gitea.invalid:3000/api/v1",
        "event": { "ref": "main", "workflow": "quick2.yml" },
        "event_name": "workflow_dispatch",
        "gitea_default_actions_url": "http://gitea.invalid:3000",
        "gitea_runtime_token": "RUNTIME_JWT",
        "job": "j",
        "ref": "refs/heads/main",
        "ref_name": "main",
        "ref_type": "branch",
        "repository": "lab/once",
        "repository_owner": "lab",
        "run_attempt": "1",
        "run_id": "57",
        "run_number": "24",
        "server_url": "http://gitea.invalid:3000/",
        "sha": "0270c02e5ec9f38e3a7f89356cd0ccdb860c0f39",
        "token": "JOB_TOKEN",
        "workflow": "quick2.yml",
    });
    let mut task = Task {
        id: TASK,
        workflow_payload: Some(payload.into_bytes()),
        context: MessageField::some(serde_json::from_value(context).unwrap()),
        ..Default::default()
    };
    task.secrets.insert("GITEA_TOKEN".into(), "JOB_TOKEN".into());
    task.secrets.insert("GITHUB_TOKEN".into(), "JOB_TOKEN".into());
    task
}

/// Steps that run these scripts.
pub(crate) fn steps(scripts: &[&str]) -> Task {
    let step = |script: &&str| {
        let body: String = script.lines().map(|line| format!("                {line}\n")).collect();
        format!("            - run: |\n{body}")
    };
    task(&scripts.iter().map(step).collect::<String>())
}

/// The official runner: `GITEA_RUNNER_BINARY`, or the one that the testbed downloaded. Its absence is a failure.
fn runner_binary() -> PathBuf {
    let binary = std::env::var_os("GITEA_RUNNER_BINARY").map(PathBuf::from).unwrap_or_else(|| {
        let testbed = std::env::var_os("GDR_TESTBED").map(PathBuf::from).unwrap_or_else(|| {
            PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/gdr-testbed")
        });
        testbed.join("bin/gitea-runner")
    });
    assert!(binary.is_file(), "the official runner is not at {}; set GITEA_RUNNER_BINARY", binary.display());
    binary
}
