//! Where tasks wait in a run, as the command line says it.

use testkit::queue::Engine;

/// Where tasks wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum QueueKind {
    /// In a file of the state folder.
    #[default]
    Embedded,
    /// In a stream of a real NATS server.
    Jetstream,
}

impl QueueKind {
    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Jetstream => "jetstream",
        }
    }

    /// What a run is made with.
    pub(crate) fn engine(self) -> Engine {
        match self {
            Self::Embedded => Engine::Embedded,
            Self::Jetstream => Engine::JetStream,
        }
    }
}
