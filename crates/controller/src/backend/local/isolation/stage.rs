//! The two stages between a supervisor and its executor. Each is a process of this program that does one thing and says
//! on stderr what failed.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::{
    Gid, Pid, Resource, Rlimit, Signal, Uid, getegid, geteuid, getpid, getppid, getrlimit, kill_process,
    set_parent_process_death_signal, setrlimit, umask,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::super::folder::{Folder, LaunchFile};
use super::super::supervisor::{CANNOT_START, executor};
use super::{Isolation, JobUser, kernel, mounts, plan::plan};

/// The hidden sub-command of the first stage; the folder and the caller's process id come behind it.
pub const OUTER: &str = "isolate";

/// The hidden sub-command of the second stage; the folder comes behind it.
pub const INNER: &str = "isolated";

/// The hidden sub-command of a trial; the runner's file comes behind it.
pub const TRIAL: &str = "trial";

/// What the second stage needs until the mounts are made.
const NEEDED: [CapabilitySet; 2] = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];

/// The command that starts the executor of a folder behind walls. It ends as the executor ends.
pub(in super::super) fn command(folder: &Folder) -> Command {
    let mut command = this_program(OUTER);
    command.arg(folder.path()).arg(getpid().as_raw_nonzero().to_string());
    command
}

/// The same program even when its file was replaced by an upgrade.
fn this_program(word: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("gitea-dynamic-runner").arg(word).env_clear().current_dir("/").stdin(Stdio::null());
    command
}

/// The first stage: makes the namespaces and waits for the first process in them.
#[must_use]
pub fn outer(dir: &Path, caller: i32) -> ExitCode {
    match separate(&Folder::new(dir.to_owned()), caller) {
        Ok(status) => end_like(status),
        Err(error) => refuse(&error),
    }
}

/// The second stage: builds the walls from inside, gives up every right and becomes the executor.
#[must_use]
pub fn inner(dir: &Path) -> ExitCode {
    match enclose(&Folder::new(dir.to_owned())) {
        Ok(never) => match never {},
        Err(error) => refuse(&error),
    }
}

/// The end of a trial (NEW-172): this program was started where a job's executor would be, and starts the runner there.
#[must_use]
pub fn trial(runner: &Path) -> ExitCode {
    let error = Command::new(runner).arg("--version").exec();
    refuse(&named(format!("start {}", runner.display()))(error))
}

fn refuse(error: &io::Error) -> ExitCode {
    // Nobody may be listening any more.
    drop(writeln!(io::stderr(), "isolation: {error}"));
    ExitCode::from(CANNOT_START)
}

fn separate(folder: &Folder, caller: i32) -> io::Result<ExitStatus> {
    let (_, isolation) = read(folder)?;
    let user = match isolation.user {
        JobUser::Own(_) => UnshareFlags::empty(),
        JobUser::Ours => UnshareFlags::NEWUSER,
    };
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let flags = user
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    unshare(flags).map_err(of("new namespaces"))?;
    if isolation.user == JobUser::Ours {
        become_alone(uid, gid)?;
    }
    // Not before the namespaces: a change of rights takes it back.
    end_with_parent()?;
    if getppid().is_none() || getppid() != Pid::from_raw(caller) {
        return Err(io::Error::other("the supervisor is gone"));
    }
    // Whoever ends a whole group or service with SIGTERM wants the executor to end in order, and we are not it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal).map(Result::ok);
    let mut child = this_program(INNER).arg(folder.path()).stdin(Stdio::piped()).spawn()?;
    // Open for as long as we live.
    let _life = child.stdin.take();
    child.wait()
}

#[expect(
    deprecated,
    reason = "the successor is unsafe to call; what it guards against, shared descriptors, is not asked for"
)]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// In a user namespace of our own: we are who we were, and nobody else exists. The rights that we got with it pass to
/// the next stage, which is no root there and would lose them.
fn become_alone(uid: u32, gid: u32) -> io::Result<()> {
    let write = |file: &str, text: &str| fs::write(format!("/proc/self/{file}"), text).map_err(named(file.to_owned()));
    write("setgroups", "deny")?;
    write("uid_map", &format!("{uid} {uid} 1"))?;
    write("gid_map", &format!("{gid} {gid} 1"))?;
    let all = rustix::thread::capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: all.permitted, ..all }).map_err(of("pass rights on"))?;
    for right in NEEDED {
        configure_capability_in_ambient_set(right, true).map_err(of("pass rights on"))?;
    }
    Ok(())
}

fn enclose(folder: &Folder) -> io::Result<std::convert::Infallible> {
    let (launch, isolation) = read(folder)?;
    let work = folder.work();
    // What is made on the way to a part that is shown must be passable for the job.
    umask(Mode::WGRP | Mode::WOTH);
    mounts::carry_out(&plan(&isolation.walls, folder))?;
    limit_processes(isolation.walls.processes).map_err(of("limit the number of processes"))?;
    drop_rights(isolation.user)?;
    end_with_parent()?;
    if parent_is_gone()? {
        return Err(io::Error::other("the supervisor is gone"));
    }
    std::env::set_current_dir(&work).map_err(named(format!("enter {}", work.display())))?;
    kernel::close_doors().map_err(named("close the kernel's key rings (seccomp)".to_owned()))?;
    let mut executor = executor(folder, launch);
    let error = executor.exec();
    Err(named(format!("start {}", executor.get_program().display()))(error))
}

fn read(folder: &Folder) -> io::Result<(LaunchFile, Isolation)> {
    let mut launch = folder.read_launch()?;
    let isolation = launch.isolation.take().ok_or_else(|| io::Error::other("launch.json names no isolation"))?;
    Ok((launch, isolation))
}

/// Also bounds a job that starts processes without end: the kernel counts them by user, and in a user namespace of its
/// own for that namespace (Linux 5.14). The executor is of the same user and needs some for itself.
fn limit_processes(most: u64) -> rustix::io::Result<()> {
    let now = getrlimit(Resource::Nproc);
    let most = most.saturating_add(executor::PROCESSES_OF_ITS_OWN);
    let most = Some(now.maximum.map_or(most, |maximum| maximum.min(most)));
    setrlimit(Resource::Nproc, Rlimit { current: most, maximum: most })
}

/// From here on nothing that this process or a child of it starts has any right, set-user-ID programs included.
fn drop_rights(user: JobUser) -> io::Result<()> {
    for right in (0..64).map(|number| CapabilitySet::from_bits_retain(1 << number)) {
        match remove_capability_from_bounding_set(right) {
            // This kernel has no more of them.
            Err(rustix::io::Errno::INVAL) => break,
            removed => removed.map_err(of("empty the bounding set"))?,
        }
    }
    if let JobUser::Own(uid) = user {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[]).map_err(of("leave all groups"))?;
        set_thread_res_gid(gid, gid, gid).map_err(of("take the job's group"))?;
        set_thread_res_uid(uid, uid, uid).map_err(of("take the job's user"))?;
    }
    clear_ambient_capability_set().map_err(of("give up rights"))?;
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).map_err(of("give up rights"))?;
    set_no_new_privs(true).map_err(of("give up new rights"))
}

fn end_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(of("end with the supervisor"))
}

/// The first stage holds the other end of our input and writes nothing into it.
fn parent_is_gone() -> io::Result<bool> {
    let input = io::stdin();
    let mut events = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
    Ok(poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

/// Ends this process as another one ended, so that a supervisor sees no difference.
fn end_like(status: ExitStatus) -> ExitCode {
    // Twice: the language's own handler of SIGSEGV and SIGBUS takes the first one and gives itself up.
    for signal in status.signal().and_then(Signal::from_named_raw).into_iter().cycle().take(2) {
        let _ = kill_process(getpid(), signal);
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

fn of(what: &str) -> impl Fn(rustix::io::Errno) -> io::Error {
    let what = what.to_owned();
    move |error| named(what.clone())(error.into())
}

fn named(what: String) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
