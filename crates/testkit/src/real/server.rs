//! A real Gitea with Actions: its own folder, database, administrator and free loopback port.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::cache::{Cache, Program};
use super::client::Client;
use super::error::tail;
use super::ini::Ini;
use super::leash::Leash;
use super::processes::{Signal, send};
use super::{Error, http};

const ADMIN: &str = "testbed-admin";
const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Another process may take the port between our choice and Gitea's bind.
const PORT_TRIES: usize = 3;

/// How to reach a server as its administrator.
#[derive(Clone)]
pub struct Access {
    /// The base URL, without a trailing slash.
    pub url: String,
    /// The administrator's name.
    pub admin: String,
    /// The administrator's password.
    pub password: String,
    /// The SQLite database, readable while the server runs.
    pub database: PathBuf,
}

/// A running (or stopped) Gitea. Dropping it kills the server; its folder stays.
pub struct GiteaServer {
    dir: PathBuf,
    program: PathBuf,
    access: Access,
    running: Option<(Child, Leash)>,
    remove_at_exit: bool,
}

impl GiteaServer {
    /// Makes a server in `dir` (created, must be empty) with `overrides` of `app.ini`, each `("SECTION.KEY", "VALUE")`,
    /// and waits until it is healthy: 2–6 s.
    ///
    /// # Errors
    /// Gitea is not installed, ended early, or is not healthy within 90 s.
    pub async fn start(dir: &Path, overrides: &[(&str, &str)]) -> Result<Self, Error> {
        let cache = Cache::locate()?;
        let (program, static_files) = (cache.program(Program::Gitea)?, cache.static_files()?);
        std::fs::create_dir_all(dir).map_err(Error::system(format!("make {}", dir.display())))?;
        let dir = dir.canonicalize().map_err(Error::system(format!("resolve {}", dir.display())))?;
        lay_asset_stubs(&dir)?;
        let secret = uuid::Uuid::new_v4().simple().to_string();
        let password = uuid::Uuid::new_v4().simple().to_string();
        let mut port = write_ini(&dir, &static_files, &secret, overrides)?;
        cli(&program, &dir, &["migrate"]).await?;
        create_admin(&program, &dir, &password).await?;
        let mut tries = 1;
        loop {
            let url = format!("http://127.0.0.1:{port}");
            let database = dir.join("gitea.db");
            let access = Access { url, admin: ADMIN.to_owned(), password: password.clone(), database };
            let mut server =
                Self { dir: dir.clone(), program: program.clone(), access, running: None, remove_at_exit: false };
            match server.start_again().await {
                Ok(()) => return Ok(server),
                Err(Error::Ended { output, .. }) if tries < PORT_TRIES && output.contains("address already in use") => {
                    tries += 1;
                    port = write_ini(&dir, &static_files, &secret, overrides)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`GiteaServer::start`] in a new folder below `parent`, which is removed when this process ends. For a server
    /// in a static, which nothing drops.
    ///
    /// # Errors
    /// As for `start`.
    pub async fn start_until_exit(parent: &Path, overrides: &[(&str, &str)]) -> Result<Self, Error> {
        // Jobs must not find in the server's files what they must not find elsewhere.
        let private = std::fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("gitea-").permissions(private).tempdir_in(parent);
        let dir = dir.map_err(Error::system(format!("make a folder in {}", parent.display())))?;
        let mut server = Self::start(dir.path(), overrides).await?;
        server.dir = dir.keep();
        server.remove_at_exit = true;
        if let Some((child, leash)) = &mut server.running {
            *leash = Leash::tie(child.id(), None, Some(&server.dir))?;
        }
        Ok(server)
    }

    /// Starts a stopped server again, on the old port with the old state.
    ///
    /// # Errors
    /// It ended early, or is not healthy within 90 s. Starting what runs is no error.
    pub async fn start_again(&mut self) -> Result<(), Error> {
        if self.running.is_none() {
            let child = self.spawn()?;
            let leash = Leash::tie(child.id(), None, self.remove_at_exit.then_some(self.dir.as_path()))?;
            self.running = Some((child, leash));
        }
        let result = self.healthy().await;
        if result.is_err() {
            self.kill();
        }
        result
    }

    /// Stops the server with SIGTERM, after 20 s with SIGKILL. Stopping what is stopped does nothing.
    ///
    /// # Errors
    /// The system refused to wait for it.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let Some((child, _)) = &mut self.running else { return Ok(()) };
        send(child.id(), Signal::Terminate);
        let end = Instant::now() + STOP_LIMIT;
        while Instant::now() < end && child.try_wait().map_err(Error::system("wait for gitea"))?.is_none() {
            sleep(Duration::from_millis(50)).await;
        }
        self.kill();
        Ok(())
    }

    /// Kills the server at once.
    pub fn kill(&mut self) {
        if let Some((mut child, mut leash)) = self.running.take() {
            leash.untie();
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Lets the server live on after this process; returns its process id.
    #[must_use]
    pub fn keep(mut self) -> Option<u32> {
        let (child, mut leash) = self.running.take()?;
        leash.untie();
        Some(child.id())
    }

    /// How to reach it.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The base URL, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.access.url
    }

    /// The server's process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|(child, _)| child.id())
    }

    /// A new client, for the runtime of the caller.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.access.clone())
    }

    /// What the server wrote to its standard output and error.
    #[must_use]
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.dir.join("gitea.out")).unwrap_or_default()
    }

    fn spawn(&self) -> Result<Child, Error> {
        let path = self.dir.join("gitea.out");
        let open = || -> std::io::Result<(File, File)> {
            let out = OpenOptions::new().create(true).append(true).open(&path)?;
            Ok((out.try_clone()?, out))
        };
        let (out, err) = open().map_err(Error::system(format!("open {}", path.display())))?;
        // Its own process group: an interrupt at the terminal is for us, and we end it in order.
        let mut command = command(&self.program, &self.dir);
        command.arg("web").stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        command.spawn().map_err(Error::system(format!("start {}", self.program.display())))
    }

    async fn healthy(&mut self) -> Result<(), Error> {
        let end = Instant::now() + START_LIMIT;
        let probe = http::Http::new(&self.access.url);
        loop {
            let last = match probe.send(http::Call::get("/api/healthz")).await {
                Ok(_) => return Ok(()),
                Err(error) => error.to_string(),
            };
            let Some((child, _)) = &mut self.running else { return Ok(()) };
            if let Some(status) = child.try_wait().map_err(Error::system("wait for gitea"))? {
                let output = tail(&self.output(), 3000).to_owned();
                return Err(Error::Ended { program: "gitea web".to_owned(), status, output });
            }
            if Instant::now() > end {
                return Err(Error::Deadline { what: "gitea is healthy".to_owned(), limit: START_LIMIT, last });
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for GiteaServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Nothing of our environment may change Gitea's configuration; `HOME` keeps its git configuration apart.
fn command(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--config").arg(dir.join("app.ini")).current_dir(dir).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // Every push starts three more of it that live for moments: they end before they need to collect garbage.
    command.env("GOGC", "400");
    command.env("HOME", dir).env("LANG", "C.UTF-8");
    command.env("USER", std::env::var_os("USER").unwrap_or_else(|| "root".into()));
    command
}

async fn cli(program: &Path, dir: &Path, words: &[&str]) -> Result<(), Error> {
    let name = format!("gitea {}", words[0]);
    let mut command = tokio::process::Command::from(command(program, dir));
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(START_LIMIT, command.output()).await {
        Ok(output) => output.map_err(Error::system(format!("start {}", program.display())))?,
        Err(_) => return Err(Error::Deadline { what: name, limit: START_LIMIT, last: "still running".to_owned() }),
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let output_tail = tail(&text, 3000).to_owned();
        return Err(Error::Ended { program: name, status: output.status, output: output_tail });
    }
    Ok(())
}

async fn create_admin(program: &Path, dir: &Path, password: &str) -> Result<(), Error> {
    let mut words = vec!["admin", "user", "create", "--admin", "--username", ADMIN, "--password", password];
    words.extend(["--email", "admin@testbed.invalid", "--must-change-password=false"]);
    cli(program, dir, &words).await
}

/// Writes `app.ini` with a free port and returns the port.
fn write_ini(dir: &Path, static_files: &Path, secret: &str, overrides: &[(&str, &str)]) -> Result<u16, Error> {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.map_err(Error::system("find a free loopback port"))?.port();
    let mut ini = Ini::new(dir, static_files, port, secret);
    for (name, value) in overrides {
        ini.set(name, value)?;
    }
    let path = dir.join("app.ini");
    let write = || {
        std::fs::write(&path, ini.text())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
    };
    write().map_err(Error::system(format!("write {}", path.display())))?;
    Ok(port)
}

/// The frontend is not built. Pages answer without it; an empty manifest keeps the log quiet.
fn lay_asset_stubs(dir: &Path) -> Result<(), Error> {
    let assets = dir.join("custom/public/assets");
    let stubs = [(".vite/manifest.json", "{}"), ("css/index.css", ""), ("css/theme-gitea-auto.css", "")];
    for (name, text) in stubs.into_iter().chain([("js/index.js", ""), ("js/iife.js", "")]) {
        let path = assets.join(name);
        let write = || {
            std::fs::create_dir_all(path.parent().unwrap_or(&assets))?;
            std::fs::write(&path, text)
        };
        write().map_err(Error::system(format!("write {}", path.display())))?;
    }
    Ok(())
}
