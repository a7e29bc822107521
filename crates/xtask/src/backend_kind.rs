//! Where executors are made in a run, as the command line says it.

use testkit::backend::Backend;

/// Where executors are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum BackendKind {
    /// As processes of this host.
    #[default]
    Local,
    /// As Pods of the double of Kubernetes, whose containers are processes of this host.
    Pod,
}

impl BackendKind {
    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        self.backend().label()
    }

    /// What a run is made with.
    pub(crate) fn backend(self) -> Backend {
        match self {
            Self::Local => Backend::Local,
            Self::Pod => Backend::Pod,
        }
    }
}
