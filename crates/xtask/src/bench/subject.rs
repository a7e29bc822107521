//! The program that is measured, as a process: started, stopped, and looked at through /proc and its own log.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use testkit::gitea::Gitea;
use testkit::real::{Seen, eventually};

/// Stands in for the official runner: says when it was started and becomes a job that runs until it is ended.
const RUNNER: &str = "#!/bin/sh
case \"$*\" in
--version) echo 'gitea-runner version v1.0.8' ;;
*' --help') echo ' --once' ;;
*) date +%s%N >> STARTS; exec HOLDER hold \"$4\" ;;
esac
";

/// Resident memory in KiB.
pub(super) struct Memory {
    pub(super) all: u64,
    pub(super) own: u64,
}

pub(super) struct Subject {
    program: PathBuf,
    gitea: String,
    place: PathBuf,
    capacity: usize,
    process: Option<Child>,
}

impl Subject {
    pub(super) fn prepare(program: &Path, gitea: &Gitea, place: &Path, capacity: usize) -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::write(place.join("token"), gitea.registration_token())?;
        let runner = place.join("gitea-runner");
        // The runners are isolated from this host and from each other: this folder is open to them.
        let told = place.join("told");
        std::fs::create_dir(&told)?;
        std::fs::write(told.join("starts"), "")?;
        for (path, mode) in [(&told, 0o755), (&told.join("starts"), 0o666)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        let starts = told.join("starts").display().to_string();
        let holder = std::env::current_exe()?.display().to_string();
        std::fs::write(&runner, RUNNER.replace("STARTS", &starts).replace("HOLDER", &holder))?;
        std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755))?;
        let (program, place) = (program.to_owned(), place.to_owned());
        Ok(Self { program, gitea: gitea.url(), place, capacity, process: None })
    }

    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.place.join("log"))?;
        let mut command = Command::new(&self.program);
        command.args(["standalone", "--gitea", &self.gitea, "--registration-token-file"]);
        command.arg(self.place.join("token")).arg("--state").arg(self.place.join("s"));
        command.args(["--capacity", &self.capacity.to_string()]);
        let holder = std::env::current_exe()?;
        let shared = format!("LOCAL_SHARED={}:rw,{}", self.place.join("told").display(), holder.display());
        command.args(["--set", &shared]);
        command.env("GITEA_RUNNER_BINARY", self.place.join("gitea-runner")).env("LOG_FORMAT", "json");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().with_context(|| format!("start {}", self.program.display()))?);
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
        let id = self.process.as_ref().context("it does not run")?.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse().ok()).unwrap_or(0)
        };
        Ok(Memory { all: field("VmRSS:"), own: field("RssAnon:") })
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

    /// Ends the program and every executor it left behind.
    pub(super) fn kill_all(&mut self) {
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

fn since_epoch(time: jiff::Timestamp) -> anyhow::Result<Duration> {
    Ok(Duration::try_from(time.duration_since(jiff::Timestamp::UNIX_EPOCH))?)
}

fn signal(id: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) {
        let _gone = rustix::process::kill_process(pid, signal);
    }
}
