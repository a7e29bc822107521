//! A cluster whose Pods run the real executor: the double of the Kubernetes API, processes of this machine as containers,
//! and the Workload API of a SPIRE agent on its one node. What a container's process is, and what it gets, is the
//! [kubelet's](crate::kubernetes::Kubelet::runs) affair; this puts the pieces together.

mod agent;
mod authority;
pub mod settings;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::gitea::Gitea;
use crate::kubernetes::{Kubernetes, Resource, Workload};
use crate::real::{Process, of_folder};

use agent::{Agent, Rules};
use settings::{FACADE, TRUST_DOMAIN};

/// What is made for one assignment in a cluster; nothing of it may be left when the assignment is gone.
const OURS: [Resource; 3] = [Resource::Pods, Resource::Secrets, Resource::ClusterStaticEntries];

/// The programs of the executors' image.
#[derive(Debug, Clone)]
pub struct Image {
    /// Our program, whose word `executor` is the executor.
    pub program: PathBuf,
    /// The runner.
    pub runner: PathBuf,
}

/// A running cluster. It ends, and everything in it, when this is dropped.
pub struct Cluster {
    /// The API.
    pub kubernetes: Arc<Kubernetes>,
    agent: Agent,
    /// A folder per Pod, named by its uid.
    folder: PathBuf,
    socket: PathBuf,
}

impl Cluster {
    /// Starts one that keeps its files in `dir`, whose path must be short: a Unix socket is in it.
    ///
    /// # Errors
    /// The files or the socket cannot be made.
    ///
    /// # Panics
    /// There is no port, or no shell to watch over the containers.
    pub async fn start(image: Image, dir: &Path) -> io::Result<Arc<Self>> {
        let dir = dir.canonicalize()?;
        let (folder, sockets) = (dir.join("pods"), dir.join("spire"));
        std::fs::create_dir_all(&folder)?;
        std::fs::create_dir_all(&sockets)?;
        let kubernetes = Arc::new(Kubernetes::start().await);
        // The name that the Pods of the program look for.
        let socket = sockets.join("spire-agent.sock");
        let rules = Rules {
            kubernetes: Arc::downgrade(&kubernetes),
            pods: folder.clone(),
            domain: TRUST_DOMAIN,
            controller: FACADE,
        };
        let agent = Agent::start(&socket, rules)?;
        let runner = ("GITEA_RUNNER_BINARY".to_owned(), image.runner.display().to_string());
        kubernetes.kubelet().runs(Workload {
            program: image.program,
            folder: folder.clone(),
            sockets: Some(sockets),
            environment: vec![runner],
            user: None,
        });
        Ok(Arc::new(Self { kubernetes, agent, folder, socket }))
    }

    /// Settings, `NAME=value`, of a controller that makes its executors here and talks to the API at `api`; secrets are in
    /// files in `dir`, and it is registered with `gitea`.
    ///
    /// # Errors
    /// They cannot be written, or there is no port.
    pub fn settings_of(&self, gitea: &Gitea, api: &str, dir: &Path) -> io::Result<Vec<String>> {
        let registration = gitea.register("controller", ["self-hosted", "pod"]);
        let registered = (registration.uuid.as_str(), registration.token.as_str());
        let mut settings = settings::of_controller(dir, registered, (api, &self.kubernetes.token()))?;
        settings.push(("IDENTITY_ISSUER", "workload-api".to_owned()));
        settings.push(("SPIFFE_ENDPOINT_SOCKET", format!("unix://{}", self.socket.display())));
        Ok(settings.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    /// The names of the executors' Pods.
    #[must_use]
    pub fn pods(&self) -> Vec<String> {
        self.kubernetes.names(Resource::Pods)
    }

    /// The processes of all containers.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        of_folder(&self.folder)
    }

    /// Objects that are there, each in words.
    #[must_use]
    pub fn objects(&self) -> Vec<String> {
        let named = |kind: Resource| {
            let names = self.kubernetes.names(kind);
            names.into_iter().map(move |name| format!("{} {name}", kind.kind()))
        };
        OURS.into_iter().flat_map(named).collect()
    }

    /// Objects of any kind that hold this text as it is, each in words; the data of Secrets is base64 and not opened.
    #[must_use]
    pub fn holding(&self, text: &str) -> Vec<String> {
        let of = |kind: Resource| self.kubernetes.objects(kind).into_iter().map(move |object| (kind, object));
        let holding = Resource::ALL.into_iter().flat_map(of).filter(|(_, object)| object.to_string().contains(text));
        holding.map(|(kind, object)| format!("{} {}", kind.kind(), object["metadata"]["name"])).collect()
    }

    /// What the containers wrote, those of Pods that are gone included.
    #[must_use]
    pub fn logs(&self) -> Vec<String> {
        let folders = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        folders.map(|folder| std::fs::read_to_string(folder.path().join("log")).unwrap_or_default()).collect()
    }

    /// Whether the SPIRE agent is away: connections to the Workload API break.
    pub fn agent_is_away(&self, away: bool) {
        self.agent.set_away(away);
    }
}

#[cfg(test)]
mod tests;
