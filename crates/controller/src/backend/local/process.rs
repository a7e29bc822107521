//! Processes of this host as `/proc` shows them: who is who in spite of reused numbers, who descends from whom, and
//! what a dead supervisor left behind.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// One process for all time: its number, when it started, and in which boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// Process id, and session id as well: a supervisor leads its own session.
    pub(super) pid: i32,
    /// Clock ticks between boot and start (`/proc/<pid>/stat`, field 22).
    pub(super) start: u64,
    /// The kernel's id of this boot.
    pub(super) boot: String,
}

impl Process {
    /// The calling process.
    pub(super) fn current() -> io::Result<Self> {
        let pid = rustix::process::getpid().as_raw_pid();
        let stat = Stat::of(pid).ok_or_else(|| io::Error::other("/proc/self/stat cannot be read"))?;
        Ok(Self { pid, start: stat.start, boot: boot()? })
    }

    /// A handle to it, if it still runs. The handle cannot come to mean another process.
    pub(super) fn open(&self) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::NONBLOCK).ok()?;
        // In this order: the number was checked while the handle already held its process.
        self.runs().then_some(handle)
    }

    /// Whether it still runs. A zombie does not.
    pub(super) fn runs(&self) -> bool {
        self.in_this_boot() && Stat::of(self.pid).is_some_and(|stat| stat.start == self.start && stat.runs())
    }

    fn in_this_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
    }
}

fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: i32,
    session: i32,
    threads: u32,
    start: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may hold anything, parentheses and spaces included; the fields begin after the last one.
    fn parse(text: &[u8]) -> Option<Self> {
        let end_of_name = text.iter().rposition(|&byte| byte == b')')?;
        let fields = std::str::from_utf8(&text[end_of_name + 1..]).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// A process whose first thread ended looks like a zombie while its other threads go on.
    fn runs(self) -> bool {
        !matches!(self.state, b'Z' | b'X') || self.threads > 1
    }
}

/// Every process that runs now, zombies left out.
fn snapshot() -> Vec<(i32, Stat)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(|pid| Some((pid, Stat::of(pid)?))).filter(|(_, stat)| stat.runs()).collect()
}

/// Whether this number is a running process; the tests' way to look.
#[cfg(test)]
pub(super) fn is_running(pid: i32) -> bool {
    Stat::of(pid).is_some_and(Stat::runs)
}

/// Adds everybody who descends from somebody in `members`.
fn add_descendants(members: &mut BTreeSet<i32>, all: &[(i32, Stat)]) {
    loop {
        let known = members.len();
        members.extend(
            all.iter().filter(|(_, stat)| members.contains(&stat.parent)).map(|&(pid, _)| pid).collect::<Vec<_>>(),
        );
        if members.len() == known {
            return;
        }
    }
}

/// Everybody who descends from this process now, itself left out.
pub(super) fn descendants(root: i32) -> BTreeSet<i32> {
    let mut members = BTreeSet::from([root]);
    add_descendants(&mut members, &snapshot());
    members.remove(&root);
    members
}

/// The child of a process that has one child.
pub(super) fn child_of(pid: i32) -> Option<i32> {
    snapshot().into_iter().find(|(_, stat)| stat.parent == pid).map(|(child, _)| child)
}

/// Whether a process has a handler for this signal (`SigCgt` in `/proc/<pid>/status`).
pub(super) fn handles(pid: i32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let handled = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let handled = handled.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    handled >> (signal.as_raw() - 1) & 1 == 1
}

/// Stops everybody whom `find` names until it names nobody new, then kills them all: a stopped process starts no other,
/// so that those who fork while they are looked for are caught too.
pub(super) fn stop_and_kill(find: impl Fn() -> BTreeSet<i32>) {
    const ROUNDS: usize = 20;
    let mut stopped = BTreeSet::new();
    for _ in 0..ROUNDS {
        let found = find();
        let new: Vec<i32> = found.difference(&stopped).copied().collect();
        if new.is_empty() {
            break;
        }
        new.iter().for_each(|&pid| signal(pid, Signal::STOP));
        stopped.extend(new);
    }
    stopped.into_iter().for_each(|pid| signal(pid, Signal::KILL));
}

/// Sends a signal; a process that is gone, or that belongs to somebody else, is found again by whoever looks whether it
/// is gone.
pub(super) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Signals through a handle. True when the process was there to receive it.
pub(super) fn signal_handle(handle: &OwnedFd, signal: Signal) -> bool {
    pidfd_send_signal(handle, signal).is_ok()
}

/// Waits until the process behind the handle has ended; false when it has not by then.
pub(super) fn wait_for_end(handle: &OwnedFd, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut events = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut events, timeout.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if left.is_zero() => return false,
            Err(_) => {}
        }
    }
}

/// What still runs of an executor whose supervisor died without ending it: the supervisor's session, everybody who
/// carries one of `marks` in the environment they were started with, and all who descend from them.
///
/// A session is evidence only while nobody else can own its number: in the same boot, and not when a process that
/// started later leads it. A job without isolation that left the session and cleared its environment is not found; an
/// isolated one has ended with its supervisor.
pub(super) fn leftovers(supervisor: Option<&Process>, marks: &[String]) -> BTreeSet<i32> {
    let all = snapshot();
    let session = supervisor.filter(|supervisor| {
        let reused = |&(pid, stat): &(i32, Stat)| pid == supervisor.pid && stat.start != supervisor.start;
        supervisor.in_this_boot() && !all.iter().any(reused)
    });
    let in_session =
        |stat: &Stat| session.is_some_and(|leader| stat.session == leader.pid && stat.start >= leader.start);
    let ours = all.iter().filter(|(pid, stat)| in_session(stat) || is_marked(*pid, marks));
    let mut members: BTreeSet<i32> = ours.map(|&(pid, _)| pid).collect();
    add_descendants(&mut members, &all);
    members.remove(&rustix::process::getpid().as_raw_pid());
    members
}

fn is_marked(pid: i32, marks: &[String]) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|&byte| byte == 0).any(|entry| marks.iter().any(|mark| mark.as_bytes() == entry))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A process chooses its own name, so the name must not be able to shift the fields.
    #[test]
    fn a_hostile_name_does_not_shift_the_fields() {
        let fields = "S 7 8 9 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let expected = Stat { state: b'S', parent: 7, session: 9, threads: 1, start: 4711 };
        for name in ["sh", "a b", ") Z 1 1 1 (", "\u{fffd}"] {
            assert_eq!(Stat::parse(format!("12 ({name}) {fields}\n").as_bytes()), Some(expected), "{name}");
        }
        assert_eq!(Stat::parse(b"12 (\xff\xfe) S 7 8 9"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    /// The same number in another boot, or started at another time, is somebody else.
    #[test]
    fn a_reused_number_is_another_process() {
        let me = Process::current().unwrap();
        assert!(me.runs() && me.open().is_some());
        let earlier = Process { start: me.start - 1, ..me.clone() };
        let other_boot = Process { boot: "another".to_owned(), ..me };
        assert!(!earlier.runs() && earlier.open().is_none());
        assert!(!other_boot.runs() && other_boot.open().is_none());
    }

    /// A session number that somebody else leads by now, or that is of another boot, is no evidence against anybody.
    #[test]
    fn nobody_is_taken_for_a_leftover_by_a_reused_number() {
        let mut sleeper = std::process::Command::new("setsid").args(["sleep", "60"]).spawn().unwrap();
        let pid = i32::try_from(sleeper.id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Stat::of(pid).unwrap().session != pid {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        let leader = Process { pid, start: Stat::of(pid).unwrap().start, ..Process::current().unwrap() };
        assert_eq!(leftovers(Some(&leader), &[]), [pid].into());
        let earlier = Process { start: leader.start - 1, ..leader.clone() };
        assert!(leftovers(Some(&earlier), &[]).is_empty());
        let other_boot = Process { boot: "another".to_owned(), ..leader };
        assert!(leftovers(Some(&other_boot), &[]).is_empty());
        assert!(leftovers(None, &["HOME=/no/such/folder".to_owned()]).is_empty());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
}
