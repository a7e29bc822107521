//! What the local backend is told at its making.

use std::collections::BTreeMap;
use std::path::PathBuf;

use domain::id::InstanceId;
use domain::identity::SpiffeId;

use super::isolation::{Isolation, JobUser, UserRange, Walls};

/// What the local backend needs to know.
#[derive(Debug, Clone)]
pub struct LocalConfig {
    /// The state folder; absolute.
    pub state: PathBuf,
    /// Whose executors these are.
    pub instance: InstanceId,
    /// Where executors reach us, `https://…`.
    pub facade_url: String,
    /// Who they expect there.
    pub facade_spiffe_id: SpiffeId,
    /// `GITEA_RUNNER_BINARY` of requirements §2.2.
    pub runner_binary: Option<String>,
    /// `GITEA_RUNNER_CONFIG` of requirements §2.2.
    pub runner_config: Option<String>,
    /// What of our own environment jobs shall see: `PATH`, `LANG`, `TZ` and the like. Nothing else is inherited.
    pub environment: BTreeMap<String, String>,
    /// What is started as the executor; none: this program with the argument `executor`.
    pub program: Option<Program>,
    /// The arguments that make this program a supervisor; the folder comes behind them.
    pub supervise: Vec<String>,
    /// What jobs see of the host; none: everything that this user sees, each other included.
    pub walls: Option<Walls>,
    /// Users for jobs behind walls, where this process is root.
    pub users: UserRange,
    /// The soft limit of open files that executors get; none: ours.
    pub open_files: Option<u64>,
}

impl LocalConfig {
    /// The hidden sub-command, which calls [`super::supervisor::run`] with the folder that follows it.
    pub const SUPERVISE: &'static str = "supervise";

    /// The walls of one executor. Its user, where it gets one of its own, is chosen when its folder is made.
    pub(super) fn isolation(&self) -> Option<Isolation> {
        let user = JobUser::of_this_process(*self.users.start());
        self.walls.clone().map(|walls| Isolation { walls, user })
    }
}

/// A program and its arguments.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}
