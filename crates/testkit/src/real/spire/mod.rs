//! A real SPIRE server and agents of this machine, as child processes with a folder of their own.
//!
//! Two intervals decide how soon a workload sees a new entry: the server reloads its entries and the agent asks for
//! them. Both are 5 s in SPIRE and [`SpireSettings::sync`] here.

mod agent;
mod entry;
pub(crate) mod files;

use std::fs::OpenOptions;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

pub use agent::SpireAgent;
pub use entry::{EntrySpec, SpireEntry};

use super::cache::{Cache, Program};
use super::error::tail;
use super::leash::Leash;
use super::{Error, Seen, eventually};

const START_LIMIT: Duration = Duration::from_secs(60);
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct SpireSettings {
    /// Where it listens; the port is of its own choice.
    pub address: IpAddr,
    /// The trust domain.
    pub trust_domain: String,
    /// How often it reloads its entries, and its agents ask for them.
    pub sync: Duration,
    /// Whether nodes of a cluster may attest, too.
    pub cluster: Option<SpireCluster>,
}

/// A cluster whose agents the server takes by their ServiceAccount `spire/spire-agent`.
#[derive(Debug, Clone)]
pub struct SpireCluster {
    /// The name that stands in the agents' IDs.
    pub name: String,
    /// How the server asks the API about tokens, Pods and nodes.
    pub kubeconfig: PathBuf,
}

impl Default for SpireSettings {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            trust_domain: "td.test".to_owned(),
            sync: Duration::from_millis(500),
            cluster: None,
        }
    }
}

/// A running server; dropping it kills it and removes its folder.
pub struct SpireServer {
    child: Child,
    _leash: Leash,
    program: PathBuf,
    settings: SpireSettings,
    port: u16,
    dir: TempDir,
}

impl SpireServer {
    /// Starts a server in a new folder and waits until it is healthy: below 1 s on an idle machine.
    ///
    /// # Errors
    /// It is not installed, ended early (its log says why), or is not healthy within 60 s.
    pub async fn start(settings: SpireSettings) -> Result<Self, Error> {
        let program = Cache::locate()?.program(Program::SpireServer)?;
        let dir = folder()?;
        let port = free_port(settings.address)?;
        let config = dir.path().join("server.conf");
        std::fs::write(&config, files::server(&settings, port, dir.path()))
            .map_err(Error::system("write server.conf"))?;
        let child = launch(&program, &config, &dir.path().join("server.log"))?;
        let leash = Leash::tie(child.id(), Some(dir.path()), Some(dir.path()))?;
        let mut server = Self { child, _leash: leash, program, settings, port, dir };
        server.ready().await?;
        Ok(server)
    }

    async fn ready(&mut self) -> Result<(), Error> {
        let (program, socket) = (self.program.clone(), self.socket());
        let log = self.dir.path().join("server.log");
        healthy(&mut self.child, "the SPIRE server is healthy", &log, &program, &socket).await
    }

    /// Kills it and starts it again on the same data.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop();
        self.child = launch(&self.program, &self.dir.path().join("server.conf"), &self.dir.path().join("server.log"))?;
        self.ready().await
    }

    /// Kills it; its agents go on with what they have.
    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it was started with.
    #[must_use]
    pub fn settings(&self) -> &SpireSettings {
        &self.settings
    }

    /// Where agents reach it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.settings.address, self.port)
    }

    /// The socket of its admin API.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("server.sock")
    }

    /// Its CA certificates (PEM).
    ///
    /// # Errors
    /// It does not answer.
    pub async fn bundle(&self) -> Result<String, Error> {
        self.call(&["bundle", "show"]).await
    }

    /// A token by which one agent may attest, once; entries may name `alias` as their parent then.
    ///
    /// # Errors
    /// It does not answer, or refuses the alias.
    pub async fn join_token(&self, alias: &str) -> Result<String, Error> {
        let text = self.call(&["token", "generate", "-spiffeID", alias]).await?;
        let token = text.lines().find_map(|line| line.strip_prefix("Token: "));
        Ok(token.unwrap_or_default().trim().to_owned())
    }

    /// Makes an entry; returns its id.
    ///
    /// # Errors
    /// It does not answer, or refuses the entry: its words are in the error.
    pub async fn create_entry(&self, entry: &EntrySpec) -> Result<String, Error> {
        let mut words: Vec<String> = ["entry", "create", "-output", "json"].map(str::to_owned).into();
        words.extend(entry.words());
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let text = self.call(&words).await?;
        let answer: Value = serde_json::from_str(&text).map_err(Error::system("read the answer of spire-server"))?;
        // With `-output json` a refusal is no failure of the program.
        let result = &answer["results"][0];
        if result["status"]["code"].as_i64() != Some(0) {
            let words = result["status"]["message"].as_str().unwrap_or(&text).to_owned();
            return Err(Error::system(format!("create the SPIRE entry {}", entry.id))(words));
        }
        Ok(result["entry"]["id"].as_str().unwrap_or_default().to_owned())
    }

    /// Deletes an entry.
    ///
    /// # Errors
    /// It does not answer, or has no such entry.
    pub async fn delete_entry(&self, id: &str) -> Result<(), Error> {
        self.call(&["entry", "delete", "-entryID", id]).await.map(drop)
    }

    /// All entries.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn entries(&self) -> Result<Vec<SpireEntry>, Error> {
        let text = self.call(&["entry", "show", "-output", "json"]).await?;
        let answer: Value = serde_json::from_str(&text).map_err(Error::system("read the answer of spire-server"))?;
        Ok(answer["entries"].as_array().into_iter().flatten().map(SpireEntry::read).collect())
    }

    /// What it wrote.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }

    async fn call(&self, words: &[&str]) -> Result<String, Error> {
        // The flags of a command come before its own: `entry create -socketPath … …`.
        let commands = words.iter().take_while(|word| !word.starts_with('-')).count();
        let mut command = Command::new(&self.program);
        command.args(&words[..commands]).arg("-socketPath").arg(self.socket()).args(&words[commands..]);
        super::kubernetes::run(command, CALL_LIMIT).await
    }
}

impl Drop for SpireServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A folder with a short name that everybody may pass: sockets are in it, and their users have other uids.
fn folder() -> Result<TempDir, Error> {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let dir = tempfile::Builder::new().prefix("gdr-spire-").permissions(open).tempdir_in("/var/tmp");
    dir.map_err(Error::system("make a temporary folder"))
}

fn free_port(address: IpAddr) -> Result<u16, Error> {
    let listener = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    Ok(listener.map_err(Error::system("find a free port"))?.port())
}

fn launch(program: &Path, config: &Path, log: &Path) -> Result<Child, Error> {
    let log = OpenOptions::new().create(true).append(true).open(log).map_err(Error::system("open a log"))?;
    let second = log.try_clone().map_err(Error::system("duplicate a descriptor"))?;
    let mut command = Command::new(program);
    command.arg("run").arg("-config").arg(config).stdin(Stdio::null()).stdout(log).stderr(second);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().map_err(Error::system(format!("start {}", program.display())))
}

/// Waits until a server or agent says that it is well.
async fn healthy(child: &mut Child, what: &str, log: &Path, program: &Path, socket: &Path) -> Result<(), Error> {
    eventually(what, START_LIMIT, async || {
        if let Ok(Some(status)) = child.try_wait() {
            let output = std::fs::read_to_string(log).unwrap_or_default();
            let output = tail(&output, 3000).to_owned();
            return Err(Error::Ended { program: program.display().to_string(), status, output });
        }
        let mut command = Command::new(program);
        command.arg("healthcheck").arg("-socketPath").arg(socket);
        Ok(match super::kubernetes::run(command, CALL_LIMIT).await {
            Ok(_) => Seen::Done(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await
}
