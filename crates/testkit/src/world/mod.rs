//! The world harness of `docs/spec/faults.md` Part B for one host: Gitea's double in this process, the real controller
//! and the real executors as black boxes, and the [stand-in](crate::stand_in) for the official runner.
//!
//! Every test ends with [`World::finish`], which holds it to the rules of [`crate::outcome`], and looks for secrets that lie in
//! the open. What a scenario breaks on purpose is told beforehand by [`World::allow`].
//!
//! The rooms follow a test: `plan` and `start`, `jobs` and `controller` for what it does, `processes` and `operators` for what it
//! looks at, `verdict` and `exposure` for its end; `watch` looks all the time.

mod controller;
mod desk;
mod exposure;
mod jobs;
mod operators;
mod plan;
mod processes;
mod start;
mod verdict;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use crate::backend::Executors;
use crate::cluster::Cluster;
use crate::gitea::Gitea;
use crate::outcome;
use crate::queue::{Broker, Queue};
use crate::real::Standalone;

pub use desk::{Desk, Note};
pub use jobs::job;
pub use operators::{asked, asked_at};
pub use plan::{Plan, Programs};
pub use verdict::Allowance;

use watch::Watch;

/// For what takes a moment on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

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

impl World {
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
}

#[track_caller]
fn must<T, E: std::fmt::Display>(result: Result<T, E>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}
