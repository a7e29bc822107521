//! The world harness of `docs/spec/faults.md` Part B for one host: Gitea's double in this process, the real controller
//! and the real executors as black boxes, and the [stand-in](crate::stand_in) for the official runner.
//!
//! Every test ends with [`World::finish`], which holds it to the rules of [`crate::outcome`], and looks for secrets that lie in
//! the open. What a scenario breaks on purpose is told beforehand by [`World::allow`].

mod desk;
mod exposure;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::backend::{Backend, Executors};
use crate::cluster::{Cluster, Image};
use crate::gitea::{self, Gitea, JobId, JobSpec, JobState, NotInTime, Rules, Status, StepSpec};
use crate::outcome;
use crate::queue::{Broker, Engine, Names, Queue};
use crate::real::{Process, Signal, Standalone, Word, workplace};
use crate::stand_in::{self, Temper};

pub use desk::{Desk, Note};

use watch::Watch;

/// What only the program knows that makes a world.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The controller; in a test `env!("CARGO_BIN_EXE_gitea-dynamic-runner")`.
    pub controller: PathBuf,
    /// The arguments with which this program calls [`stand_in::run`] and does nothing else.
    pub stand_in: &'static [&'static str],
    /// Where folders are made; in a test `env!("CARGO_TARGET_TMPDIR")`.
    pub place: PathBuf,
}

/// How a world is made.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Executors at once.
    pub capacity: u32,
    /// Settings of the controller, `NAME`, value.
    pub settings: Vec<(&'static str, String)>,
    /// Values for `--label`.
    pub labels: Vec<String>,
    /// Gitea's rules.
    pub rules: Rules,
    /// Gitea's settings.
    pub gitea: gitea::Settings,
    /// How the runners behave.
    pub temper: Temper,
    /// The version that the runner says it has; none: its own.
    pub runner_version: Option<&'static str>,
    /// Environment of the controller.
    pub environment: Vec<(&'static str, &'static str)>,
    /// Where tasks wait.
    pub engine: Engine,
    /// Where executors are made.
    pub backend: Backend,
}

impl Plan {
    /// A plain world with so many slots.
    #[must_use]
    pub fn capacity(capacity: u32) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// With a setting of the controller.
    #[must_use]
    pub fn set(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// Tasks wait in JetStream, on a server that is this world's own.
    #[must_use]
    pub fn jetstream(self) -> Self {
        Self { engine: Engine::JetStream, ..self }
    }

    /// Tasks wait in JetStream, on a server that others may use too.
    #[must_use]
    pub fn on(self, broker: &Arc<Broker>, names: Names) -> Self {
        Self { engine: Engine::On(Arc::clone(broker), names), ..self }
    }

    /// Tasks wait in the file of the state folder, whatever the default is: for what is about that file.
    #[must_use]
    pub fn embedded(self) -> Self {
        Self { engine: Engine::Embedded, ..self }
    }
}

/// A running world.
pub struct World {
    /// The double.
    pub gitea: Arc<Gitea>,
    /// What the stand-ins tell.
    pub desk: Arc<Desk>,
    controller: Standalone,
    queue: Queue,
    broker: Option<Arc<Broker>>,
    executors: Executors,
    watch: Watch,
    controllers: Vec<outcome::Controller>,
    stand_in: &'static [&'static str],
    allowances: Vec<Allowance>,
    remembered: Vec<String>,
    exposed: Vec<String>,
    finished: bool,
    dir: TempDir,
}

/// What a test breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// This job's task may stay without an end, or have one that nobody gives a reason for.
    Unended(JobId),
    /// This rule need not hold.
    Breaks(outcome::Rule),
}

/// What is broken of a task that stays without an end of ours.
const UNENDED: [outcome::Rule; 4] =
    [outcome::Rule::NoEnd, outcome::Rule::LogOpen, outcome::Rule::NoReason, outcome::Rule::LostWithoutKill];

/// For what takes a moment on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

/// For what the runners said before they ended.
const WORDS: Duration = SOON;

impl World {
    /// Starts everything and waits until the controller has declared itself.
    ///
    /// # Panics
    /// Something cannot be started.
    pub async fn start(programs: &Programs, plan: Plan) -> Self {
        let world = Self::start_without_waiting(programs, plan, |_| {}).await;
        world.gitea_shows("the controller has declared itself", |gitea| gitea.counters().declares > 0).await;
        world
    }

    /// As [`World::start`], with `prepare` before the controller starts, and without waiting for its Declare.
    ///
    /// # Panics
    /// Something cannot be started.
    pub async fn start_without_waiting(programs: &Programs, plan: Plan, prepare: impl FnOnce(&Gitea)) -> Self {
        let gitea = Arc::new(Gitea::start_with(plan.rules, plan.gitea).await);
        prepare(&gitea);
        let desk = Arc::new(must(Desk::open().await, "a desk"));
        let dir = must(workplace(&programs.place), "a folder");
        let runner = dir.path().join("stand-in-runner");
        let binary = must(std::env::current_exe(), "this program");
        let version = plan.runner_version.unwrap_or(stand_in::VERSION);
        must(
            stand_in::program(&runner, &binary, programs.stand_in, desk.address(), plan.temper, version),
            "the stand-in",
        );
        let (broker, names) = plan.engine.broker().await;
        let of_queue =
            broker.as_ref().map(|broker| must(broker.settings_of(&names, broker.url(), dir.path()), "passwords"));
        let (word, cluster, of_backend) = match plan.backend {
            Backend::Local => (Word::Standalone, None, vec![stand_in::shown(&binary)]),
            Backend::Pod => {
                let image = Image { program: programs.controller.clone(), runner: runner.clone() };
                let cluster = must(Cluster::start(image, dir.path()).await, "a cluster");
                let settings = cluster.settings_of(&gitea, &cluster.kubernetes.url(), dir.path());
                (Word::Controller, Some(cluster), must(settings, "settings for Pods"))
            }
        };
        let set = plan.settings.iter().map(|(name, value)| format!("{name}={value}"));
        let set = set.chain(of_queue.into_iter().flatten()).chain(of_backend);
        let set = set.flat_map(|setting| ["--set".to_owned(), setting]);
        let environment = plan.environment.into_iter().chain([("LOG_LEVEL", "debug")]);
        let settings = crate::real::Settings {
            word,
            program: programs.controller.clone(),
            capacity: plan.capacity,
            labels: plan.labels,
            arguments: set.collect(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            user: None,
        };
        let token = gitea.registration_token();
        let controller = Standalone::start_with_runner(settings, &gitea.url(), dir.path(), &token, runner);
        let controller = must(controller, "the controller");
        let (double, runners) = (Arc::clone(&gitea), Arc::clone(&desk));
        let capacity = usize::try_from(plan.capacity).unwrap_or(usize::MAX);
        let queue = broker.as_ref().map_or_else(|| Queue::Embedded(controller.state()), |broker| broker.queue(&names));
        let executors = cluster.map_or_else(|| Executors::Folders(controller.state()), Executors::Pods);
        let watch = Watch::start(executors.clone(), queue.clone(), capacity, move |task| {
            let ended = double.job_of(task).is_none_or(|job| double.state(job).status.is_end());
            ended || !runners.told(task, "task").is_empty()
        });
        Self {
            gitea,
            desk,
            controller,
            queue,
            broker,
            executors,
            watch,
            controllers: vec![outcome::Controller::started()],
            stand_in: programs.stand_in,
            allowances: Vec::new(),
            remembered: Vec::new(),
            exposed: Vec::new(),
            finished: false,
            dir,
        }
    }

    /// One push; its jobs share one bump of the tasks version.
    pub fn push(&self, jobs: impl IntoIterator<Item = JobSpec>) -> Vec<JobId> {
        self.gitea.push(jobs.into_iter().collect())
    }

    /// One push of one job.
    pub fn push_one(&self, job: JobSpec) -> JobId {
        self.gitea.push_one(job)
    }

    /// Waits until a job has ended, and shows it.
    ///
    /// # Panics
    /// It does not end in time, or ends otherwise.
    pub async fn ends_as(&self, job: JobId, status: Status, limit: Duration) -> JobState {
        let ended = |gitea: &Gitea| gitea.state(job).status.is_end();
        self.check(self.gitea.wait_for(&format!("job {job} has ended"), ended, limit).await);
        let state = self.gitea.state(job);
        assert_eq!(state.status, status, "job {job} ended otherwise: {state:#?}");
        state
    }

    /// Waits until all these jobs have ended well.
    pub async fn all_succeed(&self, jobs: &[JobId], limit: Duration) {
        for job in jobs {
            self.ends_as(*job, Status::Success, limit).await;
        }
    }

    /// Waits for a condition of the double.
    ///
    /// # Panics
    /// It does not come true [`SOON`].
    pub async fn gitea_shows(&self, what: &str, condition: impl Fn(&Gitea) -> bool) {
        self.check(self.gitea.wait_for(what, condition, SOON).await);
    }

    /// Waits for a condition that sends no event.
    ///
    /// # Panics
    /// It does not come true within `limit`; `condition` says why not.
    pub async fn eventually(&self, what: &str, limit: Duration, condition: impl Fn(&Self) -> Result<(), String>) {
        let end = tokio::time::Instant::now() + limit;
        while let Err(last) = condition(self) {
            assert!(tokio::time::Instant::now() < end, "{what}: not within {limit:?}; last seen: {last}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `kill -9` to the controller alone.
    pub fn kill9(&mut self) {
        self.controller.kill9();
        self.note_end(outcome::Death::Killed);
    }

    /// SIGTERM to the controller alone; waits for its end.
    ///
    /// # Panics
    /// It does not end within `limit`.
    pub async fn sigterm(&mut self, limit: Duration) -> ExitStatus {
        let status = must(self.controller.sigterm(limit).await, "the controller's end");
        self.note_end(outcome::Death::InOrder);
        status
    }

    /// Sends SIGTERM to the controller and does not wait; see [`World::ended`].
    ///
    /// # Panics
    /// It does not run.
    pub fn ask_to_end(&self) {
        assert!(self.controller.pid().is_some(), "the controller does not run");
        self.controller.signal(Signal::Terminate);
    }

    /// Whether the controller has ended, by itself or because it was asked to; looks and does not wait.
    ///
    /// # Panics
    /// The kernel does not say.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let status = must(self.controller.exited(), "the controller's end");
        if status.is_some() {
            self.note_end(outcome::Death::InOrder);
        }
        status
    }

    /// SIGSTOP to the controller alone, until [`World::go_on`].
    pub fn pause(&mut self) {
        self.controller.signal(Signal::Stop);
        let now = Instant::now();
        if let Some(process) = self.controllers.last_mut() {
            process.paused.push((now, now));
        }
    }

    /// SIGCONT to the controller.
    pub fn go_on(&mut self) {
        self.controller.signal(Signal::Continue);
        if let Some(pause) = self.controllers.last_mut().and_then(|process| process.paused.last_mut()) {
            pause.1 = Instant::now();
        }
    }

    /// The end of a controller that ends by itself or was asked to.
    ///
    /// # Panics
    /// It does not end within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let status = must(self.controller.ended(limit).await, "the controller's end");
        self.note_end(outcome::Death::InOrder);
        status
    }

    /// Starts the controller again on its state.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart(&mut self) {
        // Before it runs: no call of its own may seem older than it is.
        self.controllers.push(outcome::Controller::started());
        must(self.controller.restart(), "the controller");
    }

    /// As [`World::restart`] with so many slots, fewer or more than before.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart_with(&mut self, capacity: u32) {
        self.controller.set_capacity(capacity);
        self.restart();
    }

    /// As [`World::restart`], from here on with this setting.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart_set(&mut self, name: &str, value: &str) {
        self.controller.set(name, value);
        self.restart();
    }

    /// As [`World::restart`], from here on with this program: another version of ours.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart_as(&mut self, program: &std::path::Path) {
        self.controller.set_program(program.to_owned());
        self.restart();
    }

    fn note_end(&mut self, death: outcome::Death) {
        self.look_at_what_waits();
        if let Some(process) = self.controllers.last_mut() {
            process.ended.get_or_insert((Instant::now(), death));
        }
    }

    /// I5 of the messages that lie with a server now: they are gone from its disk by the end of the test.
    fn look_at_what_waits(&mut self) {
        let (Some(broker), Ok(tasks)) = (&self.broker, self.queue.tasks()) else { return };
        let handed_out = tasks.into_iter().filter_map(|task| self.gitea.handed_out(task));
        let secrets = handed_out.flat_map(|task| task.secrets.into_values()).filter(|value| value.len() > 8);
        let secrets: Vec<_> = secrets.map(|value| ("a secret of a task that waits", value)).collect();
        self.exposed.extend(exposure::in_places(&broker.stored(), &secrets));
    }

    /// The processes of the controller so far.
    #[must_use]
    pub fn controllers(&self) -> &[outcome::Controller] {
        &self.controllers
    }

    /// What is broken and was not allowed.
    fn broken(&self) -> Vec<String> {
        let allowed = |broken: &outcome::Violation| {
            self.allowances.iter().any(|allowance| match allowance {
                Allowance::Breaks(rule) => *rule == broken.rule,
                Allowance::Unended(job) => {
                    UNENDED.contains(&broken.rule) && broken.task.and_then(|task| self.gitea.job_of(task)) == Some(*job)
                }
            })
        };
        let judgement = outcome::judge(&self.judged(Vec::new()));
        judgement.violations.iter().filter(|broken| !allowed(broken)).map(ToString::to_string).collect()
    }

    fn judged(&self, left: Vec<String>) -> outcome::Record {
        let (controllers, seen) = (self.controllers.clone(), self.watch.complaints());
        outcome::Record { controllers, left, seen, ..outcome::Record::of(&self.gitea, &self.desk) }
    }

    /// Everything that can be judged now; after that the world may end without [`World::finish`].
    pub fn record(&mut self) -> outcome::Record {
        self.finished = true;
        self.judged(self.left())
    }

    /// I4: what is there beside the controller, each in words: executors' folders, or their objects in a cluster, processes,
    /// mounts, and messages in the queue. The program makes no cgroups.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let executors = self.executors.left().into_iter();
        let processes = self.processes().into_iter();
        let processes = processes.map(|process| format!("process {} {}", process.pid, process.arguments.join(" ")));
        let messages = self.queue.left(|task| format!("the message of task {task}"));
        let state = self.state().display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounts = mounts.lines().filter(|line| line.contains(&state)).map(|line| format!("mount {line}"));
        executors.chain(processes).chain(messages).chain(mounts).collect()
    }

    /// I5: the secrets of this world, each with a word for it: registration, keys, and those of every task.
    #[must_use]
    pub fn secrets(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| std::fs::read_to_string(self.state().join(name)).unwrap_or_default().trim().to_owned();
        let registration: serde_json::Value = serde_json::from_str(&file("registration.json")).unwrap_or_default();
        let token = registration["token"].as_str().unwrap_or_default().to_owned();
        let own = [
            ("the registration token", self.gitea.registration_token()),
            ("the token of the registration", token),
            ("the capability key", file("keys/capability.key")),
            ("the envelope key", file("keys/envelope.key")),
        ];
        let passwords = self.broker.as_ref().map(|broker| broker.passwords());
        let passwords = passwords.into_iter().flat_map(|passwords| [passwords.producer, passwords.worker]);
        let passwords = passwords.map(|password| ("a password of NATS", password));
        let tasks = self.gitea.jobs().into_iter().filter_map(|job| self.gitea.handed_out(self.gitea.find(job)?.task?));
        let of_tasks = tasks.flat_map(|task| task.secrets.into_values()).map(|value| ("a secret of a task", value));
        own.into_iter().chain(passwords).chain(of_tasks).filter(|(_, value)| value.len() > 8).collect()
    }

    /// Where in the controller's log, in the state folder or in what a NATS server stores and logs one of these lies in
    /// clear; the files that are made to hold our own are left out.
    #[must_use]
    pub fn exposed(&self, secrets: &[(&'static str, String)]) -> Vec<String> {
        let stored = self.broker.iter().flat_map(|broker| exposure::in_places(&broker.stored(), secrets));
        exposure::exposed(&self.state(), &self.log(), secrets).into_iter().chain(stored).collect()
    }

    /// The NATS server of this world.
    ///
    /// # Panics
    /// Its tasks wait elsewhere.
    #[must_use]
    pub fn broker(&self) -> &Arc<Broker> {
        self.broker.as_ref().unwrap_or_else(|| panic!("tasks wait in no NATS server"))
    }

    /// The cluster of this world.
    ///
    /// # Panics
    /// Its executors are made elsewhere.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        match &self.executors {
            Executors::Pods(cluster) => cluster,
            Executors::Folders(_) => panic!("executors are no Pods"),
        }
    }

    /// Where tasks wait.
    #[must_use]
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The passwords of NATS, as the server knows them, are written into the controller's files.
    ///
    /// # Panics
    /// They cannot be written.
    pub fn write_passwords(&self) {
        must(self.broker().write_passwords(self.dir.path()), "the passwords");
    }

    /// What the controller logged.
    #[must_use]
    pub fn log(&self) -> String {
        self.controller.log()
    }

    /// The state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.controller.state()
    }

    /// The file of the controller's program.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.controller.program().to_owned()
    }

    /// What `status` says to an operator: whether it is ready, and its words.
    ///
    /// # Panics
    /// It cannot be asked.
    pub async fn status(&self) -> (bool, String) {
        let mut command = tokio::process::Command::new(self.controller.program());
        command.args(["status", "--state"]).arg(self.state());
        let output = tokio::time::timeout(SOON, command.kill_on_drop(true).output()).await;
        let output = must(must(output, "status"), "status");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    }

    /// What the controller's `/metrics` says.
    ///
    /// # Panics
    /// It cannot be asked.
    pub async fn metrics(&self) -> String {
        must(self.ask("/metrics").await, "/metrics").1
    }

    /// What the controller's server for operators answers: status and body.
    ///
    /// # Errors
    /// It does not listen, or does not answer.
    pub async fn ask(&self, path: &str) -> Result<(u16, String), String> {
        asked(&self.state(), path).await
    }

    /// Waits until the controller's server for operators answers so.
    ///
    /// # Panics
    /// It does not within `limit`.
    pub async fn operators_see(&self, path: &str, limit: Duration, fits: impl Fn(u16, &str) -> bool) {
        let end = tokio::time::Instant::now() + limit;
        loop {
            let answer = self.ask(path).await;
            if answer.as_ref().is_ok_and(|(status, body)| fits(*status, body)) {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "{path}: not within {limit:?}; last seen: {answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The names of the executors that exist.
    #[must_use]
    pub fn executors(&self) -> Vec<String> {
        self.executors.names()
    }

    /// The task of the job's latest attempt.
    ///
    /// # Panics
    /// It was not fetched.
    #[must_use]
    pub fn task_of(&self, job: JobId) -> i64 {
        self.gitea.state(job).task.unwrap_or_else(|| panic!("job {job} was not fetched"))
    }

    /// The executors' own processes.
    #[must_use]
    pub fn executor_processes(&self) -> Vec<Process> {
        let found = self.those(|process| process.has_word("executor"));
        // An executor starts itself once more, and that becomes the runner.
        let of_another = |process: &Process| found.iter().any(|other| other.pid == process.parent);
        found.iter().filter(|process| !of_another(process)).cloned().collect()
    }

    /// The stand-in runners.
    #[must_use]
    pub fn runners(&self) -> Vec<Process> {
        self.those(|process| self.stand_in.iter().all(|word| process.has_word(word)))
    }

    /// Everything that runs beside the controller: supervisors, executors, runners.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        self.controller.processes().into_iter().chain(self.executors.processes()).collect()
    }

    fn those(&self, wanted: impl Fn(&Process) -> bool) -> Vec<Process> {
        self.processes().into_iter().filter(wanted).collect()
    }

    /// Sends a signal to the only process of a kind.
    ///
    /// # Panics
    /// There is not exactly one.
    pub fn signal_only(&self, processes: &[Process], signal: Signal) {
        let [process] = processes else { panic!("not exactly one process: {processes:?}") };
        process.signal(signal);
    }

    /// Something that a failure must show, for example the seed of what follows.
    pub fn remember(&mut self, text: impl Into<String>) {
        self.remembered.push(text.into());
    }

    /// This test breaks something on purpose.
    pub fn allow(&mut self, allowance: Allowance) {
        self.allowances.push(allowance);
    }

    /// I4: waits until no executor, no process and no message is left.
    ///
    /// # Panics
    /// Something is left.
    pub async fn nothing_left(&self) {
        self.nothing_left_within(SOON).await;
    }

    /// As [`World::nothing_left`] with a limit.
    ///
    /// # Panics
    /// Something is left.
    pub async fn nothing_left_within(&self, limit: Duration) {
        self.eventually("nothing is left (I4)", limit, |world| {
            let left = world.left();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
        })
        .await;
    }

    /// The end of a test: nothing is left, and every rule of [`outcome`] held.
    ///
    /// # Panics
    /// Otherwise.
    pub async fn finish(mut self) {
        self.nothing_left().await;
        self.finished = true;
        // A runner's last word may still be on its way to the desk.
        self.eventually("the rules hold", WORDS, |world| {
            let mut broken = world.broken();
            broken.extend(world.exposed(&world.secrets()));
            broken.extend(world.exposed.iter().cloned());
            if broken.is_empty() { Ok(()) } else { Err(format!("{broken:#?}")) }
        })
        .await;
    }

    fn check(&self, reached: Result<(), NotInTime>) {
        if let Err(error) = reached {
            let calls: Vec<_> = self.gitea.calls().iter().rev().take(12).map(call_in_words).collect();
            panic!("{error}\nexecutors {:?}\nlast calls, newest first: {calls:#?}", self.executors());
        }
    }
}

fn call_in_words(call: &gitea::Call) -> String {
    format!("{} {} task {:?}: {} => {:?}", call.at, call.method.name(), call.task, call.summary, call.end)
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&self.remembered.join("\n"));
            let calls = self.gitea.calls();
            let calls: Vec<_> = calls.iter().filter(|call| call.task.is_some()).map(call_in_words).collect();
            show(&format!("the calls about tasks: {calls:#?}"));
            show(&format!("what the runners told: {:#?}", self.desk.notes()));
            self.executors.logs().iter().for_each(|log| show(tail(log, 3000)));
            show(&format!("the controller's log:\n{}", tail(&self.log(), 12_000)));
        } else {
            assert!(self.finished, "a test did not finish its world");
        }
    }
}

/// What the server for operators of the controller of a state folder answers: status and body.
///
/// # Errors
/// It does not listen, or does not answer.
pub async fn asked(state: &Path, path: &str) -> Result<(u16, String), String> {
    let address = std::fs::read_to_string(state.join("ops.addr")).map_err(|error| error.to_string())?;
    asked_at(address.trim(), path).await
}

/// The same of one whose address is known.
///
/// # Errors
/// It does not listen, or does not answer.
pub async fn asked_at(address: &str, path: &str) -> Result<(u16, String), String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let text = |error: std::io::Error| error.to_string();
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    };
    let answer = tokio::time::timeout(SOON, exchange).await.map_err(|error| error.to_string())?.map_err(text)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("no answer of HTTP: {answer}"))?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or_else(|| head.to_owned())?, body.to_owned()))
}

/// A job with these scripts of [stand-in words](crate::stand_in) as steps.
#[must_use]
pub fn job(key: &str, steps: &[&str]) -> JobSpec {
    JobSpec::new(key)
        .runs_on(["local"])
        .secret("MARKER", "marker-of-every-job-3f1c")
        .steps(steps.iter().map(|script| StepSpec::run(*script)))
}

fn tail(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[from..]
}

#[track_caller]
fn must<T, E: std::fmt::Display>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[expect(clippy::print_stderr, reason = "only a failed test shows it")]
fn show(text: &str) {
    eprintln!("{text}");
}
