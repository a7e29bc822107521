//! What a job leaves behind: processes whose parent is gone.
//!
//! The runner gives every step a process group of its own, so its own group does not hold them, and a cancelled step
//! leaves its grandchildren running. The executor adopts them, reaps them while it lives (NEW-114) and ends them once
//! the runner has ended (NEW-113); after a SIGTERM earlier, because a runner waits for whoever holds the output of its
//! step ([`strays`]).

pub(crate) mod strays;

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Whose the orphans below the executor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// Ours, as is every child of this process.
    Adopted,
    /// Somebody else's; this process may have children that are not the executor's.
    NotOurs,
}

/// Pause between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(10);

/// How many looks: a process that does not end in 2 s of SIGKILLs hangs in the kernel.
const LOOKS: u32 = 200;

impl Orphans {
    /// Makes the kernel hand every orphan below this process to it. The process must have no other children.
    #[must_use]
    pub(crate) fn adopt() -> Self {
        match set_child_subreaper(Some(getpid())) {
            Ok(()) => Self::Adopted,
            // The first process of a container or namespace is given them anyway.
            Err(_) if getpid().as_raw_nonzero().get() == 1 => Self::Adopted,
            Err(error) => {
                tracing::warn!(%error, "what the job leaves behind is not ended");
                Self::NotOurs
            }
        }
    }

    /// Ends every child and whatever it leaves in turn.
    pub(crate) async fn end(self) {
        if self == Self::NotOurs {
            return;
        }
        for _ in 0..LOOKS {
            let left = children();
            if left.is_empty() {
                return;
            }
            for pid in left {
                // It may have ended meanwhile.
                let _ = kill_process(pid, Signal::KILL);
            }
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            tokio::time::sleep(PAUSE).await;
        }
        tracing::warn!("some processes of the job cannot be ended");
    }
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let own = getpid();
    processes().into_iter().filter(|process| process.parent == own).map(|process| process.pid).collect()
}

/// A process by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Seen {
    pid: Pid,
    parent: Pid,
    /// In clock ticks after the boot; with the number it names one process for ever.
    started: u64,
}

/// All processes that can be seen and have a parent.
fn processes() -> Vec<Seen> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        in_stat(pid, &stat)
    })
    .collect()
}

/// Fields 4 and 22 of `/proc/<pid>/stat`; the second is a name in brackets that may hold anything.
fn in_stat(pid: Pid, stat: &str) -> Option<Seen> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let field = |number: usize| after_name.split_whitespace().nth(number - 3);
    let parent = Pid::from_raw(field(4)?.parse().ok()?)?;
    Some(Seen { pid, parent, started: field(22)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Output};

    use super::*;
    use crate::runner::process::{Ended, Process};

    /// NEW-113, NEW-114: an orphan in a session of its own is reaped or ended, and the runner's end is not lost over it.
    #[tokio::test]
    async fn what_a_job_leaves_behind() {
        let own = std::env::current_exe().unwrap();
        let arguments = ["--exact", "--ignored", "runner::orphans::tests::executor_process"];
        // The output is complete only when its last holder, the orphan included, is gone.
        let output = tokio::task::spawn_blocking(move || Command::new(own).args(arguments).output().unwrap());
        let output: Output = tokio::time::timeout(Duration::from_secs(30), output).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }

    #[tokio::test]
    #[ignore = "a process of its own, started by another test"]
    async fn executor_process() {
        let orphans = Orphans::adopt();
        assert_eq!(orphans, Orphans::Adopted);
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sh -c 'sleep 60 & sleep 60' & (true &) ; exit 3"]).process_group(0);
        let mut process = Process::start(&mut command, orphans).unwrap();
        assert_eq!(process.ended().await, Ended { code: Some(3), signal: None });
        assert!(!children().is_empty());
        orphans.end().await;
        assert_eq!(children(), []);
    }

    #[test]
    fn words_of_a_process() {
        const REST: &str = "7 7 0 -1 4194560 88 0 0 0 0 0 0 0 20 0 1 0 4711 2973696 0";
        let pid = Pid::from_raw(7).unwrap();
        let seen = Some(Seen { pid, parent: Pid::from_raw(42).unwrap(), started: 4711 });
        assert_eq!(in_stat(pid, &format!("7 (sh) S 42 {REST}")), seen);
        assert_eq!(in_stat(pid, &format!("7 (a) R 1 (b)) S 42 {REST}")), seen);
        assert_eq!(in_stat(pid, &format!("7 (kthreadd) S 0 {REST}")), None);
        assert_eq!(in_stat(pid, "7 (sh) S 42"), None);
        assert_eq!(in_stat(pid, ""), None);
    }
}
