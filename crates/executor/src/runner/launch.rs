//! Starting the runner so that it dies with the executor.
//!
//! The kernel sends a chosen signal to a process whose parent died, but only if that process itself asked for it. The
//! official runner does not, and asking for it between fork and exec needs unsafe code. So the executor starts its own
//! program once more; that second life asks, and becomes the runner by exec, which keeps the wish. Best effort: the
//! processes that the runner starts are not covered; a container's or a namespace's end covers them.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{
    Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};

/// How many processes and threads of its user stay free for the executor when its job has started as many as it may:
/// whoever limits an executor adds them, and the runner is started without them (NEW-174).
pub const PROCESSES_OF_ITS_OWN: u64 = 32;

/// What a job must be left with at least; a limit that is lower than both together is not lowered further.
const LEAST_FOR_A_JOB: u64 = 32;

/// Tells the second life whose child it must be, and what to become. Removed before the runner starts.
const PARENT: &str = "GDR_RUNNER_PARENT";
const BINARY: &str = "GDR_RUNNER_PROGRAM";
const CONFIG: &str = "GDR_RUNNER_CONFIG_FILE";

/// How the runner is started.
#[derive(Debug, Clone)]
pub enum Starter {
    /// Through a second life of this program, called with these arguments; it must call [`crate::run`] again.
    Reborn {
        /// This program.
        program: PathBuf,
        /// Arguments that lead it to [`crate::run`].
        arguments: Vec<OsString>,
    },
    /// Directly: the runner may outlive a killed executor. For tests, whose program is not ours.
    Direct,
}

impl Starter {
    /// This program with the arguments it was called with, also when its file was replaced by an upgrade meanwhile.
    #[must_use]
    pub fn this_program() -> Self {
        Self::Reborn { program: "/proc/self/exe".into(), arguments: std::env::args_os().skip(1).collect() }
    }

    /// The command that becomes `<binary> daemon --once --config <config>` with exactly this environment, as the leader
    /// of a process group of its own.
    pub(crate) fn command(
        &self,
        binary: &Path,
        config: &Path,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Command {
        let mut command = match self {
            Self::Direct => {
                let mut command = Command::new(binary);
                command.args(runner_arguments(config));
                command
            }
            Self::Reborn { program, arguments } => {
                let mut command = Command::new(program);
                command.arg0("gitea-task-runner").args(arguments);
                command
            }
        };
        command.env_clear().envs(environment).process_group(0).stdin(std::process::Stdio::null());
        if matches!(self, Self::Reborn { .. }) {
            let parent = getpid().as_raw_nonzero().to_string();
            command.env(PARENT, parent).env(BINARY, binary).env(CONFIG, config);
        }
        command
    }
}

/// In the second life: becomes the runner, or says why not. None in the first life.
pub(crate) fn become_runner() -> Option<ExitCode> {
    let parent = std::env::var(PARENT).ok()?;
    let (binary, config) = (std::env::var_os(BINARY)?, std::env::var_os(CONFIG)?);
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::warn!(%error, "the runner may outlive a killed executor");
    }
    if let Err(error) = leave_room() {
        tracing::warn!(%error, "a job that starts too many processes may hold up its own end");
    }
    // The parent may have died before the wish was made.
    if getppid().map(|pid| pid.as_raw_nonzero().to_string()) != Some(parent) {
        return Some(ExitCode::from(NOT_STARTED));
    }
    let error = Command::new(&binary)
        .args(runner_arguments(Path::new(&config)))
        .env_remove(PARENT)
        .env_remove(BINARY)
        .env_remove(CONFIG)
        .exec();
    tracing::error!(%error, binary = %binary.to_string_lossy(), "the runner cannot be started");
    Some(ExitCode::from(NOT_STARTED))
}

/// Takes the executor's own processes off the limit, unless too little would be left for the job.
fn leave_room() -> rustix::io::Result<()> {
    let less = |limit: Option<u64>| limit.map(|limit| limit.saturating_sub(PROCESSES_OF_ITS_OWN));
    let Rlimit { current, maximum } = getrlimit(Resource::Nproc);
    if current.is_none_or(|current| current <= PROCESSES_OF_ITS_OWN + LEAST_FOR_A_JOB) {
        return Ok(());
    }
    setrlimit(Resource::Nproc, Rlimit { current: less(current), maximum: less(maximum) })
}

/// Exit code of a second life that could not become the runner; the shell uses 127 for the same.
pub(crate) const NOT_STARTED: u8 = 127;

fn runner_arguments(config: &Path) -> [OsString; 4] {
    ["daemon".into(), "--once".into(), "--config".into(), config.into()]
}
