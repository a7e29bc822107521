//! What every test starts with: the shared server, and a controller with a repository of its own.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use testkit::real::{
    Client, GiteaServer, Job, JobPage, Process, Run, Seen, Settings, Standalone, Status, TaskRow, Word, eventually,
    workplace,
};
use tokio::sync::OnceCell;

/// A job of a few steps on a busy machine.
pub(crate) const JOB: Duration = Duration::from_secs(120);
/// Anything that is only a matter of starting or ending a process.
pub(crate) const SOON: Duration = Duration::from_secs(30);

static SERVER: OnceCell<GiteaServer> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// A controller with a repository of its own on the shared server.
pub(crate) struct World {
    pub(crate) gitea: Client,
    pub(crate) controller: Standalone,
    /// `owner/name`.
    pub(crate) repository: String,
    /// What its jobs put into `runs-on`.
    pub(crate) label: String,
    /// The uids of its jobs, where it is started as root.
    pub(crate) users: RangeInclusive<u32>,
    _dir: TempDir,
}

impl World {
    /// Starts a controller with so many slots and waits until Gitea sees it.
    pub(crate) async fn new(capacity: u32) -> Self {
        Self::of(settings(capacity)).await
    }

    /// Starts a controller with these settings, but for its label.
    pub(crate) async fn of(settings: Settings) -> Self {
        Self::on(server().await.client(), settings).await
    }

    /// The same on a server of one's own.
    pub(crate) async fn on(gitea: Client, settings: Settings) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (label, repository) = (format!("e2e-{number}"), format!("owner-{number}/repository"));
        gitea.create_repository(&repository).await.unwrap();
        let dir = workplace(&std::env::temp_dir()).unwrap();
        let (labels, users) = (vec![label.clone()], users_of(number));
        let mut settings = Settings { labels, ..settings };
        settings.arguments.extend(["--set".to_owned(), format!("LOCAL_USERS={}-{}", users.start(), users.end())]);
        let controller = Standalone::start(settings, &gitea, dir.path()).await.unwrap();
        let mut world = Self { gitea, controller, repository, label, users, _dir: dir };
        world.controller.online(&world.gitea, &world.label, SOON).await.unwrap();
        world
    }

    /// Pushes workflows in one push, `LABEL` and `PROGRAM` filled in; returns their runs in the order of the files. A
    /// later push starts its own workflows only, not these again.
    pub(crate) async fn push(&self, workflows: &[(&str, &str)]) -> Vec<Run> {
        let files: Vec<(String, String)> = workflows
            .iter()
            .map(|(file, text)| {
                let trigger = format!("on:\n  push:\n    paths: ['.gitea/workflows/{file}']\n");
                let text = self.filled_in(text).replace("on: push\n", &trigger);
                (format!(".gitea/workflows/{file}"), text)
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let commit = self.gitea.push_files(&self.repository, &files).await.unwrap();
        // Workflows of earlier pushes run for this commit as well.
        let mut count = files.len();
        loop {
            let runs = self.gitea.runs_of_commit(&self.repository, &commit, count, SOON).await.unwrap();
            let of_file = |file: &str| runs.iter().find(|run| run.file() == file).cloned();
            if let Some(found) = workflows.iter().map(|(file, _)| of_file(file)).collect() {
                return found;
            }
            count = runs.len() + 1;
        }
    }

    /// A workflow for this controller: `LABEL` and `PROGRAM` filled in.
    pub(crate) fn filled_in(&self, workflow: &str) -> String {
        let program = self.controller.program().display().to_string();
        workflow.replace("LABEL", &self.label).replace("PROGRAM", &program)
    }

    /// Pushes one workflow; returns its run.
    pub(crate) async fn push_one(&self, workflow: &str) -> Run {
        self.push(&[("ci.yml", workflow)]).await.remove(0)
    }

    /// Waits for the end of a run, which must be this one; another is shown with what the pages say.
    pub(crate) async fn ends(&self, run: &Run, limit: Duration, expected: &str) {
        let ended = self.gitea.wait_run(&self.repository, run.id, limit, |_| {}).await.unwrap();
        let conclusion = ended.conclusion.unwrap();
        if conclusion != expected {
            let mut pages = String::new();
            for job in self.gitea.jobs(&self.repository, run.id).await.unwrap() {
                let page = self.page(run, &job).await;
                pages += &format!("{} {:?}:\n{}\n", job.name, job.status, page.text());
            }
            panic!("{} ended with {conclusion}, not {expected}:\n{pages}", run.path);
        }
    }

    /// Waits for the end of one job, which must be this one. A run is over for Gitea when its first job has failed.
    pub(crate) async fn job_ends(&self, run: &Run, name: &str, limit: Duration, expected: Status) {
        let what = format!("job {name} has ended");
        let ended = eventually(&what, limit, async || {
            let status = self.job(run, name).await.status;
            Ok(if status.is_final() { Seen::Done(status) } else { Seen::NotYet(format!("{status:?}")) })
        });
        assert_eq!(ended.await.unwrap(), expected, "{name}");
    }

    /// The only job of a run with this name.
    pub(crate) async fn job(&self, run: &Run, name: &str) -> Job {
        let jobs = self.gitea.jobs(&self.repository, run.id).await.unwrap();
        jobs.into_iter().find(|job| job.name == name).unwrap()
    }

    /// A job's whole log.
    pub(crate) async fn log(&self, job: &Job) -> String {
        self.gitea.log(&self.repository, job.id).await.unwrap().unwrap_or_default()
    }

    /// The path of the identity that a job told its log with `I am spiffe://…`.
    pub(crate) async fn identity_said(&self, job: &Job) -> String {
        let log = self.log(job).await;
        let said = log.lines().find_map(|line| line.split_once(" I am spiffe://")).unwrap().1;
        let (trust_domain, path) = said.split_once('/').unwrap();
        assert!(!trust_domain.is_empty());
        path.trim().to_owned()
    }

    /// A job's page as a person sees it.
    pub(crate) async fn page(&self, run: &Run, job: &Job) -> JobPage {
        self.gitea.job_page(&self.repository, run.id, job.id).await.unwrap()
    }

    /// A job's stored task.
    pub(crate) fn task(&self, job: &Job) -> TaskRow {
        self.gitea.task(job.task_id).unwrap()
    }

    /// The executor of the only job that runs.
    pub(crate) fn executor(&self) -> Process {
        self.process("an executor", |process| process.has_word("executor"))
    }

    /// The official runner of the only job that runs.
    pub(crate) fn runner(&self) -> Process {
        self.process("a runner", |process| process.program() == "gitea-runner" && process.has_word("daemon"))
    }

    /// Waits until no more than one executor is left.
    pub(crate) async fn only_executor_is_left(&self, limit: Duration) {
        self.executors_are_left(1, limit).await;
    }

    /// Waits until no more than so many executors are left.
    pub(crate) async fn executors_are_left(&self, count: usize, limit: Duration) {
        let what = format!("{count} executors are left");
        let gone = eventually(&what, limit, async || {
            let left = self.executors();
            Ok(if left <= count { Seen::Done(()) } else { Seen::NotYet(format!("{left} executors")) })
        });
        gone.await.unwrap();
    }

    /// The supervisor of the only job that runs.
    pub(crate) fn supervisor(&self) -> Process {
        self.process("a supervisor", |process| process.has_word("supervise"))
    }

    /// How many executors there are now.
    pub(crate) fn executors(&self) -> usize {
        self.controller.processes().iter().filter(|process| process.has_word("executor")).count()
    }

    /// Waits until Gitea has closed a job's log and put it away; returns its task as it stands then.
    pub(crate) async fn log_is_closed(&self, job: &Job, limit: Duration) -> TaskRow {
        let what = format!("the log of {} is closed", job.name);
        let closed = eventually(&what, limit, async || {
            let task = self.gitea.task(job.task_id)?;
            Ok(if task.log_in_storage { Seen::Done(task) } else { Seen::NotYet(format!("{task:?}")) })
        });
        closed.await.unwrap()
    }

    fn process(&self, what: &str, wanted: impl Fn(&Process) -> bool) -> Process {
        let all = self.controller.processes();
        let seen: Vec<String> = all.iter().map(|process| process.arguments.join(" ")).collect();
        let found = all.into_iter().find(wanted);
        found.unwrap_or_else(|| panic!("{what} is not among the processes:\n{}", seen.join("\n")))
    }

    /// Shows that a slot is free: one more job gets through.
    pub(crate) async fn serves_another_job(&self) {
        let run = self.push(&[("another.yml", ANOTHER)]).await.remove(0);
        self.ends(&run, JOB, "success").await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&format!("the controller's log:\n{}", self.controller.log()));
            for folder in std::fs::read_dir(self.controller.state().join("executors")).into_iter().flatten().flatten() {
                let log = std::fs::read_to_string(folder.path().join("executor.log")).unwrap_or_default();
                show(&format!("{}:\n{log}", folder.file_name().display()));
            }
        }
    }
}

const ANOTHER: &str = "
on: push
jobs:
  another:
    runs-on: LABEL
    steps:
      - run: echo another job
";

/// Uids that no test beside this one has, in this process or another: the kernel counts processes by uid, and a job that
/// fills its limit would leave none to another world's jobs.
fn users_of(world: u32) -> RangeInclusive<u32> {
    const OF_A_WORLD: u32 = 64;
    const WORLDS: u32 = 1000;
    let first = 2_100_000 + (std::process::id() % 10_000 * WORLDS + world) * OF_A_WORLD;
    first..=first + OF_A_WORLD - 1
}

/// The server that all tests share; it ends with this process.
pub(crate) async fn server() -> &'static GiteaServer {
    let start = async || GiteaServer::start_until_exit(Path::new(env!("CARGO_TARGET_TMPDIR")), &[]).await.unwrap();
    SERVER.get_or_init(start).await
}

/// The program under test.
pub(crate) fn settings(capacity: u32) -> Settings {
    Settings {
        word: Word::Standalone,
        program: env!("CARGO_BIN_EXE_gitea-dynamic-runner").into(),
        capacity,
        labels: Vec::new(),
        arguments: Vec::new(),
        environment: BTreeMap::new(),
        user: None,
    }
}

/// Every step has an end, and no step that began lacks its times.
#[track_caller]
pub(crate) fn assert_steps_closed(task: &TaskRow) {
    for step in &task.steps {
        assert!(step.status.is_final(), "{step:?} of {task:?}");
        assert!(step.status == Status::Skipped || step.started == 0 || step.stopped >= step.started, "{step:?}");
    }
}

/// Every one of these lines stands in the log exactly once, in this order.
#[track_caller]
pub(crate) fn assert_once_each(log: &str, lines: &[String]) {
    let said: Vec<&str> = log.lines().filter_map(|line| line.split_once(' ').map(|(_, text)| text)).collect();
    let found: Vec<&&str> = said.iter().filter(|text| lines.iter().any(|line| line == *text)).collect();
    assert!(found.iter().copied().eq(lines.iter()), "expected {lines:?} once each in:\n{log}");
}

#[expect(clippy::print_stderr, reason = "only a failed test shows it")]
fn show(text: &str) {
    eprintln!("{text}");
}
