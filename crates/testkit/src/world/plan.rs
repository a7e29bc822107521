//! What a world is made of.

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::Backend;
use crate::gitea::{self, Rules};
use crate::queue::{Broker, Engine, Names};
use crate::stand_in::Temper;

/// What only the program knows that makes a world.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The controller; in a test `env!("CARGO_BIN_EXE_gitea-dynamic-runner")`.
    pub controller: PathBuf,
    /// The arguments with which this program calls [`crate::stand_in::run`] and does nothing else.
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
