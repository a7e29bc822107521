//! Our own program, in one-host mode or by its settings alone, beside a server: started, killed, ended, started again on
//! the same state, with everything it wrote collected in one file.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::cache::{Cache, Program};
use super::client::Client;
use super::error::tail;
use super::http::{Call, Http};
use super::leash::Leash;
use super::poll::{Seen, eventually};
use super::processes::{Process, Signal, of_folder, peak_memory, send};
use super::{Error, Runner};

/// By which word of its command line it is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Word {
    /// `standalone`: it registers itself, and makes its executors on this host.
    #[default]
    Standalone,
    /// `controller` with Pods: registration, keys and addresses are among its settings.
    Controller,
}

/// How it is started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// By which word.
    pub word: Word,
    /// The built `gitea-dynamic-runner`.
    pub program: PathBuf,
    /// Executors at once.
    pub capacity: u32,
    /// Values for `--label`; none leaves the program's own.
    pub labels: Vec<String>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Environment on top of ours.
    pub environment: BTreeMap<String, String>,
    /// Uid and gid that it runs as, with its folder as its home; none: ours. Needs root.
    pub user: Option<u32>,
}

/// A running (or ended) program with its state. Dropping it kills the program and all it started; the folder stays.
pub struct Standalone {
    settings: Settings,
    dir: PathBuf,
    url: String,
    runner: PathBuf,
    running: Option<(Child, Leash)>,
}

impl Standalone {
    /// Writes a registration token and starts `standalone` with its state in `dir/state`. `dir` is made; see
    /// [`super::workplace()`] for a good one.
    ///
    /// # Errors
    /// The official runner is not installed, or the program cannot be started.
    pub async fn start(settings: Settings, gitea: &Client, dir: &Path) -> Result<Self, Error> {
        let token = gitea.registration_token().await?;
        Self::start_with_token(settings, gitea, dir, &token)
    }

    /// As [`Standalone::start`] with a token of the caller's, which may be wrong.
    ///
    /// # Errors
    /// As for `start`.
    pub fn start_with_token(settings: Settings, gitea: &Client, dir: &Path, token: &str) -> Result<Self, Error> {
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin).map_err(Error::system(format!("make {}", bin.display())))?;
        // The cache folder is often below a home that only its owner may enter; jobs run as somebody else.
        let runner = place(&Cache::locate()?.program(Program::Runner)?, &bin.join(Program::Runner.file_name()))?;
        Self::start_with_runner(settings, &gitea.access().url, dir, token, runner)
    }

    /// As [`Standalone::start_with_token`] for any server and any runner program.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start_with_runner(
        settings: Settings,
        url: &str,
        dir: &Path,
        token: &str,
        runner: PathBuf,
    ) -> Result<Self, Error> {
        let bin = dir.join("bin");
        std::fs::create_dir_all(&bin).map_err(Error::system(format!("make {}", bin.display())))?;
        let dir = dir.canonicalize().map_err(Error::system(format!("resolve {}", dir.display())))?;
        write_secret(&dir.join("registration-token"), token)?;
        let program = place(&settings.program, &bin.join("gitea-dynamic-runner"))?;
        for path in [&dir, &dir.join("registration-token")] {
            let given = std::os::unix::fs::lchown(path, settings.user, settings.user);
            given.map_err(Error::system(format!("give {} away", path.display())))?;
        }
        let url = url.to_owned();
        let mut standalone = Self { settings: Settings { program, ..settings }, dir, url, runner, running: None };
        standalone.restart()?;
        Ok(standalone)
    }

    /// Starts the program on its old state; does nothing while it runs.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart(&mut self) -> Result<(), Error> {
        if self.running.is_none() {
            let child = self.spawn()?;
            let leash = Leash::tie(child.id(), Some(&self.state()), None)?;
            self.running = Some((child, leash));
        }
        Ok(())
    }

    /// Starts this program beside the one that runs, on the same settings and state; when it waits for its turn, the former one
    /// gets SIGTERM. From there on all is about the new one. Answers how the former one ended.
    ///
    /// # Errors
    /// It cannot be started or does not wait for its turn, or the former one does not end, within `limit` each.
    pub async fn roll_to(&mut self, program: PathBuf, limit: Duration) -> Result<ExitStatus, Error> {
        const WAITS: &str = "this process waits until that one has ended";
        let before = self.log().matches(WAITS).count();
        self.settings.program = program;
        let child = self.spawn()?;
        let leash = Leash::tie(child.id(), Some(&self.state()), None)?;
        let waits = eventually("the successor waits for its turn", limit, async || {
            let log = self.log();
            let waits = log.matches(WAITS).count() > before;
            Ok(if waits { Seen::Done(()) } else { Seen::NotYet(tail(&log, 2000).to_owned()) })
        })
        .await;
        let ended = self.sigterm(limit).await;
        // Whatever went wrong: it is ended with everything else.
        self.running = Some((child, leash));
        waits.and(ended)
    }

    /// From the next start on: this program.
    pub fn set_program(&mut self, program: PathBuf) {
        self.settings.program = program;
    }

    /// From the next start on: so many executors at once.
    pub fn set_capacity(&mut self, capacity: u32) {
        self.settings.capacity = capacity;
    }

    /// From the next start on: this setting, in place of an earlier value.
    pub fn set(&mut self, name: &str, value: &str) {
        let (arguments, begin) = (&mut self.settings.arguments, format!("{name}="));
        let new = format!("{begin}{value}");
        match arguments.iter_mut().find(|argument| argument.starts_with(&begin)) {
            Some(argument) => *argument = new,
            None => arguments.extend(["--set".to_owned(), new]),
        }
    }

    /// Waits until Gitea sees a runner online that declares `label`.
    ///
    /// # Errors
    /// The program ended, or it did not happen within `limit`.
    pub async fn online(&mut self, gitea: &Client, label: &str, limit: Duration) -> Result<Runner, Error> {
        eventually(&format!("a runner with label {label} is online"), limit, async || {
            self.still_runs()?;
            let runners = gitea.runners().await?;
            let ours = runners.iter().find(|runner| runner.is_online() && runner.labels().any(|have| have == label));
            Ok(match ours {
                Some(runner) => Seen::Done(runner.clone()),
                None => Seen::NotYet(format!("{} runners; log:\n{}", runners.len(), tail(&self.log(), 2000))),
            })
        })
        .await
    }

    /// `kill -9`, and waits for the end. What it started lives on.
    pub fn kill9(&mut self) {
        if let Some((mut child, mut leash)) = self.running.take() {
            leash.untie();
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM, and waits for the end in order.
    ///
    /// # Errors
    /// It has not ended within `limit`; it is killed then.
    pub async fn sigterm(&mut self, limit: Duration) -> Result<ExitStatus, Error> {
        self.end(Signal::Terminate, limit).await
    }

    /// As [`Standalone::sigterm`] with the signal of Ctrl-C.
    ///
    /// # Errors
    /// It has not ended within `limit`; it is killed then.
    pub async fn sigint(&mut self, limit: Duration) -> Result<ExitStatus, Error> {
        self.end(Signal::Interrupt, limit).await
    }

    /// The end of a program that ends by itself, for example over bad input.
    ///
    /// # Errors
    /// It has not ended within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus, Error> {
        let status = eventually("the program ends", limit, async || match &mut self.running {
            Some((child, _)) => match child.try_wait().map_err(Error::system("wait for the program"))? {
                Some(status) => Ok(Seen::Done(status)),
                None => Ok(Seen::NotYet("it runs".to_owned())),
            },
            None => Err(Error::system("wait for the program")("it was not running")),
        });
        let status = status.await?;
        self.running = None;
        Ok(status)
    }

    /// Whether it has ended, by itself or because it was asked to; looks and does not wait.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Error> {
        let Some((child, leash)) = &mut self.running else { return Ok(None) };
        let status = child.try_wait().map_err(Error::system("wait for the program"))?;
        if status.is_some() {
            leash.untie();
            self.running = None;
        }
        Ok(status)
    }

    /// Sends it a signal; none is sent to one that does not run.
    pub fn signal(&self, signal: Signal) {
        if let Some((child, _)) = &self.running {
            send(child.id(), signal);
        }
    }

    /// Everything the program wrote, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read(self.dir.join("controller.log"))
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The program, where jobs can start it too.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.settings.program
    }

    /// The state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The program's own process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|(child, _)| child.id())
    }

    /// The most memory the program itself has had so far, in bytes; 0 when it is gone.
    #[must_use]
    pub fn peak_memory(&self) -> u64 {
        self.pid().map_or(0, peak_memory)
    }

    /// What its own operations server says to `path`.
    ///
    /// # Errors
    /// It does not listen, or says it with a status of 400 or more.
    pub async fn ask(&self, path: &str) -> Result<String, Error> {
        let file = self.state().join("ops.addr");
        let address = std::fs::read_to_string(&file).map_err(Error::system(format!("read {}", file.display())))?;
        let answer = Http::new(&format!("http://{}", address.trim())).send(Call::get(path)).await?;
        Ok(answer.text())
    }

    /// The processes of this state folder besides the program itself: supervisors, executors, runners, steps.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let own = self.pid();
        of_folder(&self.state()).into_iter().filter(|process| Some(process.pid) != own).collect()
    }

    /// Kills the program and everything it started.
    pub fn kill_all(&mut self) {
        self.kill9();
        // A process may have started another between our look and the kill; nobody starts one after that.
        for _ in 0..10 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            left.iter().for_each(|process| process.signal(Signal::Kill));
        }
    }

    /// Lets it live on after this process; returns its process id.
    #[must_use]
    pub fn keep(mut self) -> Option<u32> {
        let (child, mut leash) = self.running.take()?;
        leash.untie();
        let pid = child.id();
        std::mem::forget(self);
        Some(pid)
    }

    fn spawn(&self) -> Result<Child, Error> {
        let path = self.dir.join("controller.log");
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(Error::system(format!("open {}", path.display())))?;
        let err = log.try_clone().map_err(Error::system("duplicate a descriptor"))?;
        let mut command = Command::new(&self.settings.program);
        let (state, capacity) = (self.state(), self.settings.capacity);
        match self.settings.word {
            Word::Standalone => {
                command.args(["standalone", "--gitea", &self.url, "--registration-token-file"]);
                command.arg(self.dir.join("registration-token")).arg("--state").arg(state);
                command.args(["--capacity", &capacity.to_string()]);
            }
            Word::Controller => {
                let own = [
                    format!("GITEA_INSTANCE_URL={}", self.url),
                    format!("STATE_DIR={}", state.display()),
                    format!("POD_CAPACITY={capacity}"),
                ];
                command.arg("controller").args(own.iter().flat_map(|setting| ["--set", setting]));
                // `standalone` has it by itself.
                if !self.settings.arguments.iter().any(|argument| argument.starts_with("QUEUE=")) {
                    command.args(["--set", "QUEUE=embedded"]);
                }
            }
        }
        command.args(self.settings.labels.iter().flat_map(|label| ["--label", label]));
        command
            .args(&self.settings.arguments)
            .env("GITEA_RUNNER_BINARY", &self.runner)
            .envs(&self.settings.environment);
        if let Some(user) = self.settings.user {
            command.uid(user).gid(user).env("HOME", &self.dir);
        }
        command.stdin(Stdio::null()).stdout(log).stderr(err).process_group(0);
        command.spawn().map_err(Error::system(format!("start {}", self.settings.program.display())))
    }

    fn still_runs(&mut self) -> Result<(), Error> {
        let Some((child, _)) = &mut self.running else { return Ok(()) };
        match child.try_wait().map_err(Error::system("wait for the program"))? {
            None => Ok(()),
            Some(status) => {
                let output = tail(&self.log(), 3000).to_owned();
                Err(Error::Ended { program: self.settings.program.display().to_string(), status, output })
            }
        }
    }

    async fn end(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus, Error> {
        if let Some((child, leash)) = &mut self.running {
            leash.untie();
            send(child.id(), signal);
        }
        let result = self.ended(limit).await;
        self.kill9();
        result
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// Puts a program where everybody can start it; what an earlier start put there stays.
fn place(from: &Path, to: &Path) -> Result<PathBuf, Error> {
    let copy = || {
        if !to.exists() && std::fs::hard_link(from, to).is_err() {
            std::fs::copy(from, to)?;
        }
        std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755))?;
        to.canonicalize()
    };
    copy().map_err(Error::system(format!("copy {} to {}", from.display(), to.display())))
}

fn write_secret(path: &Path, text: &str) -> Result<(), Error> {
    let write = || {
        std::fs::write(path, text)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
    };
    write().map_err(Error::system(format!("write {}", path.display())))
}
