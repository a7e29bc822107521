//! The official runner as most people have it: registered by hand, a daemon on the host, nothing of ours around it.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::cache::{Cache, Program};
use super::client::Client;
use super::error::tail;
use super::leash::Leash;
use super::poll::{Seen, eventually};
use super::processes::{Signal, of_folder, send};
use super::{Error, Runner};

const REGISTER_LIMIT: Duration = Duration::from_secs(30);

/// A running daemon. Dropping it kills the daemon and its jobs; the folder stays.
pub struct Daemon {
    dir: PathBuf,
    label: String,
    child: Child,
    leash: Leash,
}

impl Daemon {
    /// Registers in `dir` (made where it is missing), for jobs that run on `label`, on the host, and starts. Every
    /// setting but the capacity is the runner's own default.
    ///
    /// # Errors
    /// It is not installed, Gitea refused it, or it cannot be started.
    pub async fn start(gitea: &Client, dir: &Path, label: &str, capacity: u32) -> Result<Self, Error> {
        let program = Cache::locate()?.program(Program::Runner)?;
        std::fs::create_dir_all(dir).map_err(Error::system(format!("make {}", dir.display())))?;
        let dir = dir.canonicalize().map_err(Error::system(format!("resolve {}", dir.display())))?;
        let config = format!("runner:\n  capacity: {capacity}\n");
        std::fs::write(dir.join("config.yaml"), config).map_err(Error::system("write the runner's configuration"))?;
        register(&program, &dir, gitea, label).await?;
        let mut command = command(&program, &dir, "daemon")?;
        let child = command.spawn().map_err(Error::system(format!("start {}", program.display())))?;
        let leash = Leash::tie(child.id(), Some(&dir), None)?;
        Ok(Self { dir, label: label.to_owned(), child, leash })
    }

    /// Waits until Gitea sees it online.
    ///
    /// # Errors
    /// It did not happen within `limit`.
    pub async fn online(&self, gitea: &Client, limit: Duration) -> Result<Runner, Error> {
        eventually("the official runner is online", limit, async || {
            let runners = gitea.runners().await?;
            let ours =
                runners.into_iter().find(|runner| runner.is_online() && runner.labels().any(|l| l == self.label));
            Ok(ours.map_or_else(|| Seen::NotYet(tail(&self.log(), 2000).to_owned()), Seen::Done))
        })
        .await
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.leash.untie();
        send(self.child.id(), Signal::Kill);
        let _ = self.child.wait();
        of_folder(&self.dir).iter().for_each(|process| process.signal(Signal::Kill));
    }
}

async fn register(program: &Path, dir: &Path, gitea: &Client, label: &str) -> Result<(), Error> {
    let token = gitea.registration_token().await?;
    let mut command = command(program, dir, "register")?;
    command.args(["--no-interactive", "--instance", &gitea.access().url, "--token", &token]);
    command.args(["--name", label, "--labels", &format!("{label}:host")]);
    let mut child = command.spawn().map_err(Error::system(format!("start {}", program.display())))?;
    let status = eventually("the official runner registers", REGISTER_LIMIT, async || {
        let status = child.try_wait().map_err(Error::system("wait for the official runner"))?;
        Ok(status.map_or_else(|| Seen::NotYet("it runs".to_owned()), Seen::Done))
    });
    let status = status.await.inspect_err(|_| drop(child.kill()))?;
    if status.success() {
        return Ok(());
    }
    let output = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    let output = tail(&output, 2000).to_owned();
    Err(Error::Ended { program: program.display().to_string(), status, output })
}

/// Its jobs work below HOME.
fn command(program: &Path, dir: &Path, word: &str) -> Result<Command, Error> {
    let path = dir.join("log");
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.map_err(Error::system(format!("open {}", path.display())))?;
    let err = log.try_clone().map_err(Error::system("duplicate a descriptor"))?;
    let mut command = Command::new(program);
    command.arg(word).args(["--config", "config.yaml"]).current_dir(dir).env("HOME", dir);
    command.stdin(Stdio::null()).stdout(log).stderr(err).process_group(0);
    Ok(command)
}
