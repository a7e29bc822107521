//! The program that is measured beside the double of Gitea, as a process: started, stopped, and looked at through
//! `/proc` and its own log.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum as _;
use testkit::gitea::Gitea;
use testkit::real::{Seen, eventually};

use super::process::{Cpu, Memory};

/// Longer than the start of a process or the longest pause between two fetches.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// Stands in for the official runner: says when it was started and becomes the runner of one job.
const SCRIPT: &str = "#!/bin/sh
case \"$*\" in
--version) echo 'gitea-runner version v1.0.8' ;;
*' --help') echo ' --once' ;;
*) date +%s%N >> STARTS; exec PROGRAM bench-runner RUNNER \"$4\" ;;
esac
";

/// What the stand-in does with its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Runner {
    /// It runs until it is ended.
    Hold,
    /// It ends with success at once.
    Finish,
}

/// Be the runner of one job, for the bench.
#[derive(clap::Args)]
pub(crate) struct StandIn {
    runner: Runner,
    /// The runner's configuration.
    config: PathBuf,
}

impl StandIn {
    pub(crate) async fn main(self) -> anyhow::Result<ExitCode> {
        match self.runner {
            Runner::Hold => testkit::stand_in::hold(&self.config).await?,
            Runner::Finish => testkit::stand_in::finish(&self.config).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) struct Subject {
    program: PathBuf,
    gitea: String,
    place: PathBuf,
    capacity: usize,
    process: Option<Child>,
}

impl Subject {
    pub(super) fn prepare(
        program: &Path,
        gitea: &Gitea,
        place: &Path,
        capacity: usize,
        runner: Runner,
    ) -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(place.join("token"), gitea.registration_token())?;
        let script = place.join("gitea-runner");
        // The runners are isolated from this host and from each other: this folder is open to them.
        let told = place.join("told");
        std::fs::create_dir(&told)?;
        std::fs::write(told.join("starts"), "")?;
        for (path, mode) in [(&told, 0o755), (&told.join("starts"), 0o666)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        let starts = told.join("starts").display().to_string();
        let ourselves = std::env::current_exe()?.display().to_string();
        let word = runner.to_possible_value().context("a runner has a name")?;
        let text = SCRIPT.replace("STARTS", &starts).replace("PROGRAM", &ourselves).replace("RUNNER", word.get_name());
        std::fs::write(&script, text)?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
        let (program, place) = (program.to_owned(), place.to_owned());
        Ok(Self { program, gitea: gitea.url(), place, capacity, process: None })
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.place.join("log"))?;
        let mut command = Command::new(&self.program);
        command.args(["standalone", "--gitea", &self.gitea, "--registration-token-file"]);
        command.arg(self.place.join("token")).arg("--state").arg(self.place.join("s"));
        command.args(["--capacity", &self.capacity.to_string()]);
        let ourselves = std::env::current_exe()?;
        let shared = format!("LOCAL_SHARED={}:rw,{}", self.place.join("told").display(), ourselves.display());
        command.args(["--set", &shared]);
        command.env("GITEA_RUNNER_BINARY", self.place.join("gitea-runner")).env("LOG_FORMAT", "json");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().with_context(|| format!("start {}", self.program.display()))?);
        Ok(())
    }

    /// Starts it and returns when it asks for work.
    pub(super) async fn serve(&mut self, gitea: &Gitea) -> anyhow::Result<()> {
        let fetches = gitea.counters().fetches;
        self.start()?;
        gitea.wait_for("a FetchTask came", |gitea| gitea.counters().fetches > fetches, SOON).await?;
        Ok(())
    }

    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            signal(process.id(), rustix::process::Signal::TERM);
            process.wait()?;
        }
        Ok(())
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

    /// When the `number`-th runner was started.
    pub(super) async fn runner_started(&self, number: usize, limit: Duration) -> anyhow::Result<Duration> {
        let at = eventually("the runner was started", limit, async || {
            let starts = std::fs::read_to_string(self.place.join("told/starts")).unwrap_or_default();
            let at = starts.lines().nth(number).and_then(|line| line.parse().ok()).map(Duration::from_nanos);
            Ok(at.map_or_else(|| Seen::NotYet(format!("{} starts", starts.lines().count())), Seen::Done))
        });
        Ok(at.await?)
    }

    /// When the queue had the task on the disk, by the program's own log.
    pub(super) fn dispatched(&self, task: i64) -> anyhow::Result<Duration> {
        let log = std::fs::read_to_string(self.place.join("log"))?;
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let line = lines.rfind(|line| line["event"] == "dispatched" && line["task_id"] == task);
        let time = line.and_then(|line| line["timestamp"].as_str().map(str::to_owned)).context("not in the log")?;
        since_epoch(time.parse()?)
    }

    /// How many executors there are, or are being made or removed.
    pub(super) fn executors(&self) -> usize {
        std::fs::read_dir(self.place.join("s/executors")).map_or(0, Iterator::count)
    }

    /// The end of the program's log.
    pub(super) fn tail(&self) -> String {
        let log = std::fs::read_to_string(self.place.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Ends the program and every executor it left behind.
    fn kill_all(&mut self) {
        let _ended = self.stop();
        for entry in std::fs::read_dir(self.place.join("s/executors")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path().join("supervisor.json")).unwrap_or_default();
            let supervisor: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(id) = supervisor["pid"].as_u64().and_then(|id| u32::try_from(id).ok()) {
                // "Kill what you supervise, now."
                signal(id, rustix::process::Signal::USR1);
            }
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// The wall clock, since its epoch.
pub(super) fn now() -> Duration {
    since_epoch(jiff::Timestamp::now()).unwrap_or_default()
}

pub(super) fn since_epoch(time: jiff::Timestamp) -> anyhow::Result<Duration> {
    Ok(Duration::try_from(time.duration_since(jiff::Timestamp::UNIX_EPOCH))?)
}

fn signal(id: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
        let _gone = rustix::process::kill_process(pid, signal);
    }
}
