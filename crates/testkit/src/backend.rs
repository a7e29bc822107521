//! Where a controller makes its executors: how it is started for it, and what is seen of them from outside.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::real::Process;

/// Which backend a controller is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// Processes of this host.
    #[default]
    Local,
    /// Pods of a cluster that is started for it.
    Pod,
}

impl Backend {
    /// What `runs-on` of its jobs says.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Pod => "pod",
        }
    }
}

/// The executors of one controller.
#[derive(Clone)]
pub(crate) enum Executors {
    /// In folders of this state folder.
    Folders(PathBuf),
    /// In a cluster.
    Pods(Arc<Cluster>),
}

impl Executors {
    /// The names of those that exist.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Folders(state) => folders(state).into_iter().filter(|name| name.starts_with("gitea-task-")).collect(),
            Self::Pods(cluster) => cluster.pods(),
        }
    }

    /// What there is of them beside processes, drafts and remains included, each in words.
    pub(crate) fn left(&self) -> Vec<String> {
        match self {
            Self::Folders(state) => folders(state).into_iter().map(|name| format!("folder executors/{name}")).collect(),
            Self::Pods(cluster) => cluster.objects(),
        }
    }

    /// Their processes, where they are not found with those of the state folder.
    pub(crate) fn processes(&self) -> Vec<Process> {
        match self {
            Self::Folders(_) => Vec::new(),
            Self::Pods(cluster) => cluster.processes(),
        }
    }

    /// The objects of a cluster that hold this text, in words; files are looked through by others.
    pub(crate) fn holding(&self, text: &str) -> Vec<String> {
        match self {
            Self::Folders(_) => Vec::new(),
            Self::Pods(cluster) => cluster.holding(text),
        }
    }

    /// What they wrote.
    pub(crate) fn logs(&self) -> Vec<String> {
        match self {
            Self::Folders(state) => {
                let file = |name: &String| state.join("executors").join(name).join("executor.log");
                let log = |name: String| {
                    format!("executor {name}:\n{}", std::fs::read_to_string(file(&name)).unwrap_or_default())
                };
                self.names().into_iter().map(log).collect()
            }
            Self::Pods(cluster) => cluster.logs(),
        }
    }
}

/// The names of all folders beside the executors'.
fn folders(state: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(state.join("executors")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
