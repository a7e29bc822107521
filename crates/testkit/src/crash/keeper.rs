//! Starts the controller anew whenever it has gone, and judges the moment of its end.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;

use super::stage::Cast;
use super::wire::Proxy;
use super::writes::Tracer;
use super::{Register, Relay, judge, names};
use crate::backend::Executors;
use crate::gitea::Method;
use crate::outcome::{Controller, Death, Interval};
use crate::queue::Queue;
use crate::real::{Process, Signal, Standalone};

/// A controller that ends more often than this stays down.
const STARTS: usize = 6;

/// For the calls of a dead controller that had left it.
const SETTLED: Duration = Duration::from_secs(20);

/// Whether changes of the state folder are boundaries of a run. Watching them makes the controller slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// In every life of the controller.
    Always,
    /// Until it is struck.
    UntilStruck,
    /// Never.
    Never,
}

/// What stands around every controller of a run.
pub(super) struct Surroundings {
    pub(super) dir: PathBuf,
    pub(super) register: Arc<Register>,
    pub(super) cast: Arc<Cast>,
    pub(super) proxy: Proxy,
    /// To the API of the cluster, where executors are Pods.
    pub(super) api: Option<Proxy>,
    pub(super) executors: Executors,
    /// To the queue, where it lies behind a wire.
    pub(super) relay: Option<Relay>,
    pub(super) queue: Queue,
    /// Where a server of that queue stores and logs.
    pub(super) stored: Vec<PathBuf>,
    pub(super) watched: Watched,
}

/// The controllers of a run, one after the other; all of them end with this.
pub(super) struct Keeper {
    standalone: Arc<AsyncMutex<Standalone>>,
    seen: Arc<Mutex<Seen>>,
    register: Arc<Register>,
    task: JoinHandle<()>,
}

/// What was seen of them.
#[derive(Default)]
struct Seen {
    controllers: Vec<Controller>,
    asked: Option<Instant>,
    stops: Vec<Interval>,
    unregistered: bool,
    lost: BTreeSet<i64>,
    wrong: Vec<String>,
}

impl Keeper {
    /// Starts the first with these settings; its program is replaced by a gate to it.
    pub(super) async fn start(
        settings: crate::real::Settings,
        around: Surroundings,
        runner: PathBuf,
    ) -> anyhow::Result<Self> {
        let settings = crate::real::Settings { program: around.gated(&settings.program)?, ..settings };
        around.prepare()?;
        let seen = Arc::new(Mutex::new(Seen { controllers: vec![Controller::started()], ..Seen::default() }));
        let (url, token) = (around.proxy.url(), around.cast.gitea.registration_token());
        let standalone = Standalone::start_with_runner(settings, &url, &around.dir, &token, runner)?;
        around.begun(standalone.pid()).await?;
        let (standalone, register) = (Arc::new(AsyncMutex::new(standalone)), Arc::clone(&around.register));
        let task = tokio::spawn(keep(Arc::clone(&standalone), around, Arc::clone(&seen)));
        Ok(Self { standalone, seen, register, task })
    }

    /// Sends a signal after which the controller must be gone soon.
    pub(super) async fn end(&self, signal: Signal) {
        let standalone = self.standalone.lock().await;
        // Nobody starts another meanwhile: what is asked is asked of the one that gets the signal.
        locked(&self.seen).asked = Some(Instant::now());
        standalone.signal(signal);
    }

    /// All so far.
    pub(super) fn controllers(&self) -> Vec<Controller> {
        locked(&self.seen).controllers.clone()
    }

    /// From each signal of [`Keeper::end`] to the end of what it led to: nothing of that controller is under way any more.
    pub(super) fn stops(&self) -> Vec<Interval> {
        locked(&self.seen).stops.clone()
    }

    /// Whether the first was gone before it could keep its registration.
    pub(super) fn unregistered(&self) -> bool {
        locked(&self.seen).unregistered
    }

    /// Tasks that were lost where one may be (SCH-15): Gitea's last answer to the FetchTask of a killed controller, of which
    /// there is nothing in its queue, no executor, and not one call. A task that is lost otherwise is found by its missing
    /// end.
    pub(super) fn lost(&self) -> BTreeSet<i64> {
        locked(&self.seen).lost.clone()
    }

    /// What must not be.
    pub(super) fn wrong(&self) -> Vec<String> {
        locked(&self.seen).wrong.clone()
    }

    /// What lives beside the controller: supervisors, executors, runners.
    pub(super) async fn processes(&self) -> Vec<Process> {
        self.standalone.lock().await.processes()
    }

    /// What all of them logged.
    pub(super) async fn log(&self) -> String {
        self.standalone.lock().await.log()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
        // Ours to collect from now on, so its number may soon be somebody else's.
        self.register.victim(None);
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn keep(standalone: Arc<AsyncMutex<Standalone>>, around: Surroundings, seen: Arc<Mutex<Seen>>) {
    loop {
        let pid = standalone.lock().await.pid();
        if let Err(error) = next(pid, &standalone, &around, &seen).await {
            locked(&seen).wrong.push(format!("{error:#}"));
            return;
        }
    }
}

/// Waits for the end of one controller, and starts another.
async fn next(
    pid: Option<u32>,
    standalone: &AsyncMutex<Standalone>,
    around: &Surroundings,
    seen: &Mutex<Seen>,
) -> anyhow::Result<()> {
    gone(pid).await?;
    let ended = Instant::now();
    for proxy in std::iter::once(&around.proxy).chain(&around.api) {
        tokio::time::timeout(SETTLED, proxy.settled()).await.context("calls of a dead controller are under way")?;
    }
    if let Some(relay) = &around.relay {
        tokio::time::timeout(SETTLED, relay.settled()).await.context("a dead controller is connected to NATS")?;
    }
    let mut standalone = standalone.lock().await;
    around.register.victim(None);
    let status = standalone.exited()?.context("the controller has gone and is still there")?;
    around.note_end(&mut locked(seen), status, ended);
    let starts = locked(seen).controllers.len();
    ensure!(starts < STARTS, "the controller was started {starts} times");
    around.prepare()?;
    // Before it runs: no call of its own may seem older than it is.
    locked(seen).controllers.push(Controller::started());
    standalone.restart()?;
    around.begun(standalone.pid()).await
}

/// Waits for the end of a process without taking it from its parent.
async fn gone(pid: Option<u32>) -> anyhow::Result<()> {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw).context("no controller runs")?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let wait = move || loop {
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], None) {
            Err(Errno::INTR) => {}
            polled => return polled,
        }
    };
    tokio::task::spawn_blocking(wait).await??;
    Ok(())
}

impl Surroundings {
    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn gate(&self) -> PathBuf {
        self.dir.join("gate")
    }

    /// A script that becomes the program, after it waited at the gate if there is one.
    fn gated(&self, program: &Path) -> anyhow::Result<PathBuf> {
        let (gate, path) = (self.gate(), self.dir.join("controller"));
        let (gate, program) = (gate.display(), program.display());
        let script = format!("#!/bin/sh\n[ ! -p '{gate}' ] || read -r _ < '{gate}'\nexec '{program}' \"$@\"\n");
        // Written by a process of its own: what another thread starts while we had it open for writing would hold it open,
        // and a file that is open for writing cannot be started.
        let mut writer = Command::new("/bin/sh");
        writer.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]).arg(&path).arg(script);
        ensure!(writer.status()?.success(), "{} cannot be written", path.display());
        Ok(path)
    }

    fn watches(&self) -> bool {
        match self.watched {
            Watched::Always => true,
            Watched::UntilStruck => !self.register.struck(),
            Watched::Never => false,
        }
    }

    /// Before a controller is started: its gate is closed or gone.
    fn prepare(&self) -> anyhow::Result<()> {
        match std::fs::remove_file(self.gate()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        if self.watches() {
            mknodat(CWD, self.gate(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        Ok(())
    }

    /// When it was started: it is watched, then let through the gate.
    async fn begun(&self, pid: Option<u32>) -> anyhow::Result<()> {
        self.register.victim(pid);
        if let Some(pid) = pid.filter(|_| self.watches()) {
            let cast = Arc::clone(&self.cast);
            let name = Arc::new(move |path: &str| names::of_path(&cast, path));
            Tracer::follow(pid, &self.state(), name, Arc::clone(&self.register)).await?;
            let gate = self.gate();
            // It returns when the script opens its end.
            tokio::task::spawn_blocking(move || std::fs::write(gate, "\n")).await??;
        }
        Ok(())
    }

    /// What a dead controller left behind, before anything is started again.
    fn note_end(&self, seen: &mut Seen, status: ExitStatus, at: Instant) {
        let killed = status.signal() == Some(9);
        let asked = seen.asked.take();
        let wanted = killed || (asked.is_some() && status.success());
        seen.stops.extend(asked.map(|asked| (asked, Instant::now())));
        seen.wrong.extend((!wanted).then(|| format!("the controller ended: {status}")));
        if let Some(last) = seen.controllers.last_mut() {
            last.ended = Some((at, if killed { Death::Killed } else { Death::InOrder }));
        }
        seen.unregistered |= self.cast.gitea.counters().declares == 0;
        let stored = match &self.queue {
            Queue::Embedded(state) => judge::stored(state),
            Queue::JetStream(_) => self.queue.tasks().map_err(anyhow::Error::msg),
        };
        match stored {
            Ok(stored) => seen.lost.extend(self.last_fetched().filter(|task| self.is_unknown(*task, &stored))),
            Err(error) => seen.wrong.push(format!("the queue cannot be read after the end: {error:#}")),
        }
        seen.wrong.extend(judge::secrets_in_clear(&self.state(), &self.cast.gitea));
        for place in &self.stored {
            seen.wrong.extend(judge::secrets_in_clear(place, &self.cast.gitea));
        }
    }

    /// The loop asks again only when what it got is stored, so only the last task of a process can be on its way.
    fn last_fetched(&self) -> Option<i64> {
        let calls = self.cast.gitea.calls();
        calls.iter().rfind(|call| call.method == Method::FetchTask)?.task
    }

    fn is_unknown(&self, task: i64, stored: &BTreeSet<i64>) -> bool {
        let heard = self.cast.gitea.calls_of(task).iter().any(|call| call.method != Method::FetchTask);
        let made = self.executors.names().iter().any(|name| name.starts_with(&format!("gitea-task-{task}-")));
        !stored.contains(&task) && !heard && !made
    }
}
