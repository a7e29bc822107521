//! The cache folder: where `cargo xtask provision` puts the real parts and everybody else finds them.

use std::path::{Path, PathBuf};

use super::Error;

/// Names another cache folder than `~/.cache/gdr-testbed`.
pub const FOLDER_VARIABLE: &str = "GDR_TESTBED";

/// A program that `cargo xtask provision` installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The Gitea server.
    Gitea,
    /// The official runner.
    Runner,
    /// The NATS server.
    Nats,
    /// The Kubernetes API server.
    KubeApiserver,
    /// The controllers of Kubernetes.
    KubeControllerManager,
    /// The scheduler of Kubernetes.
    KubeScheduler,
    /// The node agent of Kubernetes.
    Kubelet,
    /// The process that holds a Pod, or a cluster, together.
    Pause,
    /// What plays the SPIFFE CSI driver on a node.
    SpiffeCsi,
    /// The SPIRE server.
    SpireServer,
    /// The SPIRE agent.
    SpireAgent,
    /// What installs charts into a Kubernetes.
    Helm,
}

impl Program {
    /// The file name below `bin/`.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::Runner => "gitea-runner",
            Self::Nats => "nats-server",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Pause => "pause",
            Self::SpiffeCsi => "spiffe-csi",
            Self::SpireServer => "spire-server",
            Self::SpireAgent => "spire-agent",
            Self::Helm => "helm",
        }
    }

    fn part(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::Runner => "runner",
            Self::Nats => "nats",
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::Pause
            | Self::SpiffeCsi => "kubernetes",
            Self::SpireServer | Self::SpireAgent => "spire",
            Self::Helm => "helm",
        }
    }
}

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The folder that `GDR_TESTBED` names, else `~/.cache/gdr-testbed`.
    ///
    /// # Errors
    /// Neither that variable nor `HOME` is set.
    pub fn locate() -> Result<Self, Error> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = set(FOLDER_VARIABLE)
            .or_else(|| set("HOME").map(|home| home.join(".cache/gdr-testbed")))
            .ok_or_else(|| Error::system("find the cache folder")(format!("set HOME or {FOLDER_VARIABLE}")))?;
        let root = std::path::absolute(&root).map_err(Error::system("find the cache folder"))?;
        Ok(Self { root })
    }

    /// The folder itself; it may not exist yet.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of an installed program.
    ///
    /// # Errors
    /// It is not installed.
    pub fn program(&self, program: Program) -> Result<PathBuf, Error> {
        self.existing(&self.root.join("bin").join(program.file_name()), program)
    }

    /// Gitea's templates, options and public files.
    ///
    /// # Errors
    /// They are not installed.
    pub fn static_files(&self) -> Result<PathBuf, Error> {
        self.existing(&self.root.join("static/templates"), Program::Gitea)?;
        Ok(self.root.join("static"))
    }

    fn existing(&self, path: &Path, program: Program) -> Result<PathBuf, Error> {
        if path.exists() {
            return Ok(path.to_owned());
        }
        Err(Error::NotInstalled { path: path.to_owned(), part: program.part() })
    }
}
