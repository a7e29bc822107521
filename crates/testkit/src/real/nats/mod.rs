//! A real NATS server with JetStream: its own folder, configuration and loopback port, which stay the same however
//! often it is stopped, killed, and started again.
//!
//! Ready means what the server's own `/healthz` means: it accepts connections, JetStream answers, and what was stored
//! before is recovered. The monitoring port that says so needs no user and no TLS.

mod cluster;
mod port;
mod settings;

pub use cluster::NatsCluster;
pub use settings::{NatsSettings, NatsTls, NatsUser};

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::cache::{Cache, Program};
use super::error::tail;
use super::leash::Leash;
use super::processes::{Signal, send};
use super::{Error, http};
use port::Port;
use settings::Route;

const START_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at a server that is being started.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A server that is being started answers late rather than never.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// The environment variable that names another server than the one that is provisioned.
pub const SERVER_VARIABLE: &str = "GDR_NATS_SERVER";

/// A running, paused or stopped server. Dropping it kills the server and removes its folder.
pub struct NatsServer {
    // Before the folder: who is in it goes first.
    running: Option<Child>,
    _leash: Leash,
    program: PathBuf,
    settings: NatsSettings,
    name: String,
    client: Port,
    monitor: Port,
    route: Option<Route>,
    dir: TempDir,
}

impl NatsServer {
    /// Starts a server in a new folder below the system's temporary one, and waits until it is ready: well below 1 s on
    /// an idle machine.
    ///
    /// # Errors
    /// It is not installed, ended early (its log says why), or is not ready within 30 s.
    pub async fn start(settings: NatsSettings) -> Result<Self, Error> {
        let mut server = Self::prepare(settings, "single", None)?;
        server.start_again().await?;
        Ok(server)
    }

    /// Everything but the start.
    fn prepare(settings: NatsSettings, name: &str, route: Option<Route>) -> Result<Self, Error> {
        let program = match std::env::var_os(SERVER_VARIABLE) {
            Some(program) => PathBuf::from(program),
            None => Cache::locate()?.program(Program::Nats)?,
        };
        let private = std::fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("gdr-nats-").permissions(private).tempdir();
        let dir = dir.map_err(Error::system("make a temporary folder"))?;
        // The server names its folder among its arguments: one leash holds for every start of it.
        let leash = Leash::tie(0, Some(dir.path()), Some(dir.path()))?;
        let (client, monitor) = (Port::reserve()?, Port::reserve()?);
        Ok(Self { running: None, _leash: leash, program, settings, name: name.to_owned(), client, monitor, route, dir })
    }

    /// Starts a stopped or killed server again, on the old port with what it had stored. Starting what runs only waits
    /// until it is ready.
    ///
    /// # Errors
    /// It ended early (its log says why), or is not ready within 30 s.
    pub async fn start_again(&mut self) -> Result<(), Error> {
        self.launch()?;
        self.ready().await
    }

    /// Stops the server with SIGTERM, after 10 s with SIGKILL. Stopping what is stopped does nothing.
    ///
    /// # Errors
    /// The system refused to wait for it.
    pub async fn stop(&mut self) -> Result<(), Error> {
        // A stopped process hears of SIGTERM when it goes on.
        self.resume();
        let Some(child) = &mut self.running else { return Ok(()) };
        send(child.id(), Signal::Terminate);
        let end = Instant::now() + STOP_LIMIT;
        while Instant::now() < end && child.try_wait().map_err(Error::system("wait for nats-server"))?.is_none() {
            sleep(Duration::from_millis(20)).await;
        }
        self.kill();
        Ok(())
    }

    /// Kills the server at once, and waits until its port is free. Killing what is stopped does nothing.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Freezes the server (SIGSTOP): connections stay open and nothing answers. Returns when it stands still.
    ///
    /// # Errors
    /// It does not run, or ended instead.
    pub fn pause(&self) -> Result<(), Error> {
        let cannot = |cause: &str| Error::system(format!("pause nats-server {}", self.name))(cause);
        let Some(child) = &self.running else { return Err(cannot("it does not run")) };
        send(child.id(), Signal::Stop);
        let pid = Pid::from_child(child);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), options).map_err(|errno| cannot(&errno.to_string()))? {
            Some(status) if status.stopped() => Ok(()),
            status => Err(cannot(&format!("it ended: {status:?}"))),
        }
    }

    /// Lets a frozen server go on (SIGCONT). Nothing happens to one that is not frozen.
    pub fn resume(&self) {
        if let Some(child) = &self.running {
            send(child.id(), Signal::Continue);
        }
    }

    /// Other settings, from the next start on.
    pub fn change(&mut self, settings: NatsSettings) {
        self.settings = settings;
    }

    /// The address for clients, without a user: `nats://127.0.0.1:PORT`, or `tls://` with TLS.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "tls" } else { "nats" };
        format!("{scheme}://127.0.0.1:{}", self.client.number())
    }

    /// The port for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.client.number()
    }

    /// The folder with its configuration, its log and, below `jetstream`, what is stored.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Child::id)
    }

    /// What it wrote, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Writes the configuration and starts, without waiting.
    fn launch(&mut self) -> Result<(), Error> {
        if self.running.is_some() {
            return Ok(());
        }
        let config = self.dir.path().join("nats.conf");
        std::fs::write(&config, self.config()).map_err(Error::system(format!("write {}", config.display())))?;
        let path = self.dir.path().join("log");
        let open = || -> std::io::Result<(File, File)> {
            let out = OpenOptions::new().create(true).append(true).open(&path)?;
            Ok((out.try_clone()?, out))
        };
        let (out, err) = open().map_err(Error::system(format!("open {}", path.display())))?;
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(&config).current_dir(self.dir.path()).env_clear();
        // Its own process group: an interrupt at the terminal is for us, and we end it in order.
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let child = command.spawn().map_err(Error::system(format!("start {}", self.program.display())))?;
        self.running = Some(child);
        Ok(())
    }

    fn config(&self) -> String {
        self.settings.text(&self.name, (&self.client, &self.monitor), self.dir.path(), self.route.as_ref())
    }

    /// Waits until it is ready; one that is not in time is killed.
    async fn ready(&mut self) -> Result<(), Error> {
        // Not by `eventually`: what waits in a closure cannot move between threads.
        let end = Instant::now() + START_LIMIT;
        let error = loop {
            if let Err(error) = self.still_runs() {
                break error;
            }
            let Err(last) = self.look("/healthz").await else { return Ok(()) };
            if Instant::now() >= end {
                let what = format!("nats-server {} is ready", self.name);
                break Error::Deadline { what, limit: START_LIMIT, last };
            }
            sleep(LOOK_AGAIN).await;
        };
        self.kill();
        Err(error)
    }

    fn still_runs(&mut self) -> Result<(), Error> {
        let Some(child) = &mut self.running else { return Ok(()) };
        match child.try_wait().map_err(Error::system("wait for nats-server"))? {
            Some(status) => {
                let output = tail(&self.log(), 3000).to_owned();
                Err(Error::Ended { program: format!("nats-server {}", self.name), status, output })
            }
            None => Ok(()),
        }
    }

    /// One page of the monitoring port.
    ///
    /// # Errors
    /// Words for what came instead: no answer, another status, no JSON.
    async fn look(&self, path: &str) -> Result<Value, String> {
        let monitor = http::Http::new(&format!("http://127.0.0.1:{}", self.monitor.number()));
        match timeout(LOOK_LIMIT, monitor.send(http::Call::get(path))).await {
            Ok(answer) => answer.and_then(|answer| answer.json()).map_err(|error| error.to_string()),
            Err(_) => Err(format!("GET {path}: nothing within {} s", LOOK_LIMIT.as_secs())),
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
