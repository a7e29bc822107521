//! Several controllers for one registration, each a process with the settings of the specification.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::gitea::{Gitea, JobId, Rules, Settings, Status};
use testkit::outcome::{Record, Rule, judge};
use testkit::queue::{Broker, Names, Queue};
use testkit::real::{NatsSettings, Signal, of_folder, signal, workplace};
use testkit::runner_client::Credentials;
use testkit::stand_in::{self, Temper};
use testkit::wires::Cable;
use testkit::world::{Desk, SOON, asked_at};

use crate::programs;

/// What the replicas share.
pub(super) struct Hall {
    pub(super) gitea: Arc<Gitea>,
    pub(super) desk: Desk,
    pub(super) broker: Arc<Broker>,
    pub(super) queue: Queue,
    registered: Credentials,
    runner: PathBuf,
    dir: tempfile::TempDir,
}

impl Hall {
    pub(super) async fn open() -> Self {
        Self::open_in(Settings::default()).await
    }

    /// Beside a Gitea with these settings.
    pub(super) async fn open_in(settings: Settings) -> Self {
        let gitea = Arc::new(Gitea::start_with(Rules::default(), settings).await);
        let desk = Desk::open().await.unwrap();
        let dir = workplace(&programs().place).unwrap();
        let runner = dir.path().join("stand-in-runner");
        let own = std::env::current_exe().unwrap();
        let (words, version) = (programs().stand_in, stand_in::VERSION);
        stand_in::program(&runner, &own, words, desk.address(), Temper::Even, version).unwrap();
        let broker = Broker::start(NatsSettings::default()).await.unwrap();
        let registered = gitea.register("replicas", ["self-hosted", "local"]);
        let queue = broker.queue(&Names::alone());
        Self { gitea, desk, broker, queue, registered, runner, dir }
    }

    /// From now on the runner tells its version only when [`Hall::let_it_speak`] was called. What is ready when it is asked.
    pub(super) fn hesitating_runner(&mut self) -> impl Future<Output = ()> + use<> {
        let (path, asked) = (self.dir.path().join("hesitating"), self.dir.path().join("asked"));
        let folder = self.dir.path().display();
        // It is asked once more behind walls, where it cannot write: there it need not wait.
        let wait = format!("(: > {folder}/asked) 2>/dev/null && while [ ! -e {folder}/speak ]; do sleep 0.02; done");
        let first = "#!/bin/sh\n";
        let script = std::fs::read_to_string(&self.runner).unwrap();
        let script = script.replacen(first, &format!("{first}case \"$*\" in *--version*) {wait};; esac\n"), 1);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.runner = path;
        async move {
            let end = Instant::now() + SOON;
            while !asked.exists() {
                assert!(Instant::now() < end, "the runner was not asked");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// A wire to Gitea.
    pub(super) async fn cable_to_gitea(&self) -> Cable {
        Cable::to(self.gitea.address()).await.unwrap()
    }

    /// A wire to NATS.
    pub(super) async fn cable(&self) -> Cable {
        Cable::to(([127, 0, 0, 1], self.broker.port()).into()).await.unwrap()
    }

    /// The passwords of NATS as they are now, where the replicas read them.
    pub(super) fn write_passwords(&self) {
        self.broker.write_passwords(self.dir.path()).unwrap();
    }

    /// Another content for a file that the replicas read.
    pub(super) fn write(&self, name: &str, text: &str) {
        // Whoever reads it meanwhile finds the old one or the new one.
        let draft = self.dir.path().join(format!("{name}.draft"));
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, self.dir.path().join(name)).unwrap();
    }

    pub(super) fn let_it_speak(&self) {
        std::fs::write(self.dir.path().join("speak"), "").unwrap();
    }

    /// Starts one that works in this state folder.
    pub(super) fn replica(&self, name: &str, folder: &str) -> Replica {
        self.replica_by(self.broker.url(), name, folder)
    }

    /// The same, of one that reaches NATS by this address.
    pub(super) fn replica_by(&self, nats: &str, name: &str, folder: &str) -> Replica {
        self.replica_at(nats, &self.gitea.url(), name, folder)
    }

    /// The same, of one that reaches Gitea by this address.
    pub(super) fn replica_at(&self, nats: &str, gitea: &str, name: &str, folder: &str) -> Replica {
        let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let state = self.dir.path().join(folder);
        std::fs::create_dir_all(&state).unwrap();
        // Executors of a state folder find their facade where they found it before.
        let known = self.dir.path().join(format!("{folder}.port"));
        let facade = match std::fs::read_to_string(&known) {
            Ok(port) => port.parse().unwrap(),
            Err(_) => port(),
        };
        std::fs::write(known, facade.to_string()).unwrap();
        let log = self.dir.path().join(format!("{name}.log"));
        let out = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let ops = format!("127.0.0.1:{}", port());
        let mut command = Command::new(programs().controller);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
        for name in ["PATH", "HOME"] {
            command.env(name, std::env::var_os(name).unwrap_or_default());
        }
        command.envs(self.settings(nats, &state, facade)).env("OPS_LISTEN", &ops).env("GITEA_INSTANCE_URL", gitea);
        Replica { process: Some(command.spawn().unwrap()), state, facade, ops, log }
    }

    /// What `identity pins` says with the settings of a replica, and whether it went well.
    pub(super) async fn pins(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = tokio::process::Command::new(programs().controller);
        command.args(["identity", "pins"]).args(arguments).env_clear().kill_on_drop(true);
        command.envs(self.settings(self.broker.url(), &self.dir.path().join("nowhere"), 1));
        let output = tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    }

    fn settings(&self, nats: &str, state: &Path, facade: u16) -> Vec<(String, String)> {
        let file = |name: &str, text: &str| {
            let path = self.dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let own = [
            ("COMPONENTS", "scheduler,local-worker".to_owned()),
            ("IDENTITY_ISSUER", "built-in".to_owned()),
            ("GITEA_INSTANCE_URL", self.gitea.url()),
            ("GITEA_RUNNER_UUID_FILE", file("uuid", &self.registered.uuid)),
            ("GITEA_RUNNER_TOKEN_FILE", file("token", &self.registered.token)),
            ("TRUST_DOMAIN", "example.org".to_owned()),
            ("RUNNER_FACADE_LISTEN", format!("127.0.0.1:{facade}")),
            ("RUNNER_FACADE_URL", format!("https://127.0.0.1:{facade}")),
            // By itself it would be made of Gitea's address.
            ("INSTANCE_ID", "replicas".to_owned()),
            ("RUNNER_FACADE_SPIFFE_ID", "spiffe://example.org/controller".to_owned()),
            ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability.key", &"c".repeat(64))),
            ("ENVELOPE_KEY_FILE", file("envelope.key", &"e".repeat(64))),
            ("STATE_DIR", state.display().to_string()),
            ("LOOK_AHEAD", "1".to_owned()),
            // An outage may last for longer than the hour of the default.
            ("QUEUE_WAIT_LIMIT", "5h".to_owned()),
            ("LOG_LEVEL", "debug".to_owned()),
            ("GITEA_RUNNER_BINARY", self.runner.display().to_string()),
        ];
        let pair = |setting: String| setting.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap();
        let of_queue = self.broker.settings_of(&Names::alone(), nats, self.dir.path()).unwrap();
        let shared = stand_in::shown(&std::env::current_exe().unwrap());
        let own = own.map(|(name, value)| (name.to_owned(), value));
        own.into_iter().chain(of_queue.into_iter().chain([shared]).map(pair)).collect()
    }

    pub(super) async fn ends_well(&self, job: JobId) {
        // Its log is closed after that.
        let over = |gitea: &Gitea| gitea.state(job).status.is_end() && gitea.state(job).archived;
        self.gitea.wait_for("the job has ended", over, SOON).await.unwrap();
        let state = self.gitea.state(job);
        assert_eq!(state.status, Status::Success, "{state:#?}");
    }

    pub(super) fn task_of(&self, job: JobId) -> i64 {
        self.gitea.state(job).task.unwrap()
    }

    pub(super) async fn waits_in_the_stream(&self, job: JobId) {
        let end = Instant::now() + SOON;
        while !self.gitea.state(job).task.is_some_and(|task| self.queue.tasks().is_ok_and(|all| all.contains(&task))) {
            assert!(Instant::now() < end, "{:?}", self.queue.tasks());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What must hold of every task whoever leads: begun once, one outcome, and that of its runner.
    pub(super) fn assert_outcomes(&self) {
        let record = Record::of(&self.gitea, &self.desk);
        let rules = [
            Rule::RunTwice,
            Rule::NoEnd,
            Rule::TwoOutcomes,
            Rule::NoReason,
            Rule::FalseSuccess,
            Rule::ResultLost,
            Rule::Rows,
            Rule::LogOpen,
        ];
        let broken: Vec<_> = judge(&record).violations.into_iter().filter(|v| rules.contains(&v.rule)).collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

/// One process. It ends with the test, and with it everything of its state folder.
pub(super) struct Replica {
    process: Option<Child>,
    pub(super) state: PathBuf,
    facade: u16,
    ops: String,
    log: PathBuf,
}

impl Replica {
    /// What it answers to operators.
    pub(super) async fn ask(&self, path: &str) -> Result<(u16, String), String> {
        asked_at(&self.ops, path).await
    }

    /// Waits until it is ready; how long that took.
    pub(super) async fn serves(&self, limit: Duration) -> Duration {
        self.shows(limit, |status, _| status == 200).await
    }

    /// Waits until it stands by.
    pub(super) async fn stands_by(&self) {
        self.shows(SOON, |status, body| status == 503 && body.contains("\"standby\"")).await;
    }

    /// Waits until it says that its queue is away.
    pub(super) async fn misses_its_queue(&self) {
        self.shows(SOON, |status, body| status == 503 && body.contains("queue_away")).await;
    }

    async fn shows(&self, limit: Duration, fits: impl Fn(u16, &str) -> bool) -> Duration {
        let begun = Instant::now();
        loop {
            let answer = self.ask("/readyz").await;
            if answer.as_ref().is_ok_and(|(status, body)| fits(*status, body)) {
                return begun.elapsed();
            }
            let told = || self.log().lines().rev().take(20).collect::<Vec<_>>().join("\n");
            assert!(begun.elapsed() < limit, "not within {limit:?}: {answer:?}\n{}", told());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until it has said this so many times.
    pub(super) async fn tells(&self, what: &str, times: usize) {
        self.tells_within(SOON, what, times).await;
    }

    /// The same of what takes longer.
    pub(super) async fn tells_within(&self, limit: Duration, what: &str, times: usize) {
        let end = Instant::now() + limit;
        while self.log().matches(what).count() < times {
            assert!(Instant::now() < end, "not {times} times {what:?}:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether somebody listens where its executors would look for it.
    pub(super) fn has_a_facade(&self) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.facade)).is_ok()
    }

    pub(super) fn signal(&self, which: Signal) {
        signal(self.process.as_ref().unwrap().id(), which);
    }

    /// SIGKILL, and its end.
    pub(super) fn kill9(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Waits for its end.
    pub(super) async fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + SOON;
        loop {
            if let Some(status) = self.process.as_mut().unwrap().try_wait().unwrap() {
                self.process = None;
                return status;
            }
            assert!(Instant::now() < end, "it runs on:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Replica {
    #[expect(clippy::print_stderr, reason = "only a failed test shows it")]
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _gone_already = process.kill();
            let _ended = process.wait();
            of_folder(&self.state).iter().for_each(|process| process.signal(Signal::Kill));
        }
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4000);
            let from = (from..=log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or_default();
            eprintln!("{}:\n{}", self.log.display(), &log[from..]);
        }
    }
}
