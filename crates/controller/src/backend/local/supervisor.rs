//! The supervisor: the small process between the controller and one executor, which outlives the controller.
//!
//! It leads a session of its own, is the parent of whatever its descendants orphan, and holds the lock of its folder for
//! life. When the executor ends it kills everything the job left running, and only then writes `exit.json`: that file
//! means that nothing of this executor runs any more.
//!
//! | signal | means |
//! |---|---|
//! | SIGTERM | passed on to the executor as soon as it listens, and to nobody else |
//! | SIGUSR1 | kill now: the executor and all its descendants, then the end as usual |
//! | SIGHUP, SIGINT | ignored |
//!
//! An isolated executor is the first process of its own PID namespace, and our child is the stage that waits for it
//! (see [`super::isolation`]). The end of that first process ends all others, and [`end_the_rest`] finds nobody; so does
//! our own end.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal as ProcessSignal, WaitOptions, WaitStatus, getpid, set_child_subreaper, setsid, wait,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::super::Exit;
use super::folder::{Folder, LaunchFile};
use super::isolation::stage;
use super::log;
use super::process::{self, Process};
use crate::descriptors::Descriptors;

/// The word on stderr that tells the controller that the executor was started.
pub(super) const STARTED: &str = "supervisor: started";

/// How long the lock may be held by one who only looks whether it is free.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// Between two looks whether an executor listens that has only just begun.
const SAY_AGAIN: Duration = Duration::from_millis(20);

/// What a shell answers when a program cannot be started.
pub(super) const CANNOT_START: u8 = 126;

/// Supervises the executor of this folder; returns when it has ended and nothing of it runs any more. Runs as a process
/// of its own.
#[must_use]
pub fn run(dir: &Path) -> ExitCode {
    match supervise(&Folder::new(dir.to_owned())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be listening any more.
            drop(writeln!(io::stderr(), "supervisor: {}: {error}", dir.display()));
            ExitCode::FAILURE
        }
    }
}

fn supervise(folder: &Folder) -> io::Result<()> {
    // A process that already leads a session is as good.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let _ = rustix::thread::set_name(c"gdr-supervisor");
    let _lock = take_lock(folder)?;
    let launch = folder.read_launch()?;
    Descriptors::restore(launch.open_files);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(watch_over(folder, launch))
}

/// Two controllers in a row may each have started a supervisor for this folder; one wins.
fn take_lock(folder: &Folder) -> io::Result<File> {
    let lock = folder.open_lock()?;
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            Err(Errno::WOULDBLOCK) => return Err(io::Error::other("another supervisor has this executor")),
            locked => return locked.map(|()| lock).map_err(Into::into),
        }
    }
}

async fn watch_over(folder: &Folder, launch: LaunchFile) -> io::Result<()> {
    let mut signals = Signals::install()?;
    // From here on we are found and signalled.
    let last_word = folder.enter_supervisor(&Process::current()?)?;
    let (output, sink) = io::pipe()?;
    let started = start(folder, launch, sink);
    let log = folder.log();
    let log = thread::spawn(move || log::keep(output, log));
    drop(writeln!(io::stderr(), "{STARTED}"));
    let exit = match started {
        Ok(executor) => {
            let status = signals.until_the_end(executor).await;
            end_the_rest(&mut signals.child).await;
            exit_of(status)
        }
        Err(_) => Exit { code: Some(CANNOT_START.into()), signal: None, at: Timestamp::now() },
    };
    // Everybody who could write to it is gone.
    drop(log.join());
    last_word.say(&exit)
}

/// Starts the executor, or the stage that starts it behind walls.
fn start(folder: &Folder, launch: LaunchFile, mut output: io::PipeWriter) -> io::Result<Ward> {
    let isolated = launch.isolation.is_some();
    let mut command = if isolated { stage::command(folder) } else { executor(folder, launch) };
    let started = command.stdout(output.try_clone()?).stderr(output.try_clone()?).spawn();
    if let Err(error) = &started {
        writeln!(output, "the executor cannot be started: {}: {error}", command.get_program().display())?;
    }
    let child = pid_of(&started?);
    Ok(Ward { child, isolated })
}

/// The executor with the environment of the launch file and nothing else.
pub(super) fn executor(folder: &Folder, launch: LaunchFile) -> Command {
    // The same program even when its file was replaced by an upgrade since the controller started.
    let mut command = Command::new(launch.program.unwrap_or_else(|| "/proc/self/exe".into()));
    // What a person sees in a list of processes.
    command.arg0("gitea-dynamic-runner").args(launch.args);
    command.env_clear().envs(launch.env).current_dir(folder.work()).stdin(Stdio::null());
    command
}

/// Whom we started.
#[derive(Clone, Copy)]
struct Ward {
    /// Ends as the executor ends.
    child: Option<Pid>,
    /// The executor is the only child of `child`.
    isolated: bool,
}

impl Ward {
    /// Asks the executor to end in order; false while it cannot hear it: the kernel keeps from the first process of a
    /// namespace every signal that it does not handle, and in the very beginning that process is not there yet.
    fn terminate(self) -> bool {
        let Some(child) = self.child.map(Pid::as_raw_pid) else { return true };
        let executor = if self.isolated { process::child_of(child) } else { Some(child) };
        let listens = |executor: &i32| !self.isolated || process::handles(*executor, ProcessSignal::TERM);
        let Some(executor) = executor.filter(listens) else { return false };
        process::signal(executor, ProcessSignal::TERM);
        true
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

struct Signals {
    child: Signal,
    terminate: Signal,
    kill_now: Signal,
    /// Installed so that they do nothing.
    _ignored: [Signal; 2],
}

impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            kill_now: signal(SignalKind::user_defined1())?,
            _ignored: [signal(SignalKind::hangup())?, signal(SignalKind::interrupt())?],
        })
    }

    /// Serves signals and buries orphans until the executor has ended; returns how. None: it was buried by nobody's
    /// knowledge, which the kernel does not do.
    async fn until_the_end(&mut self, executor: Ward) -> Option<WaitStatus> {
        // The executor is to end and has not heard it yet.
        let mut unheard = false;
        loop {
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) if Some(pid) == executor.child => return Some(status),
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break,
                    Err(_) => return None,
                }
            }
            tokio::select! {
                _ = self.child.recv() => {}
                _ = self.terminate.recv() => unheard = !executor.terminate(),
                () = sleep(SAY_AGAIN), if unheard => unheard = !executor.terminate(),
                _ = self.kill_now.recv() => process::stop_and_kill(our_descendants),
            }
        }
    }
}

fn our_descendants() -> std::collections::BTreeSet<i32> {
    process::descendants(getpid().as_raw_pid())
}

/// Kills and buries until there is no child left. As the parent of all orphans we have a child for as long as any
/// descendant lives. One that cannot be killed (it runs as another user, or hangs in the kernel) is waited for: the
/// slot is not free before it is gone.
async fn end_the_rest(child: &mut Signal) {
    const LOOK_AGAIN: Duration = Duration::from_millis(100);
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                process::stop_and_kill(our_descendants);
                // Either a child ended, or one is about to become ours.
                drop(timeout(LOOK_AGAIN, child.recv()).await);
            }
            Err(_) => return,
        }
    }
}

fn exit_of(status: Option<WaitStatus>) -> Exit {
    Exit {
        code: status.and_then(WaitStatus::exit_status),
        signal: status.and_then(WaitStatus::terminating_signal),
        at: Timestamp::now(),
    }
}
