//! What a job leaves behind: processes whose parent is gone.
//!
//! The runner gives every step a process group of its own, so its own group does not hold them, and a cancelled step
//! leaves its grandchildren running. The executor adopts them, reaps them while it lives (NEW-114) and ends them once
//! the runner has ended (NEW-113).

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

/// The children of this process, by every process's own word.
fn children() -> Vec<Pid> {
    let own = getpid();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(Pid::from_raw).filter(|pid| parent_of(*pid) == Some(own)).collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    parent_in(&stat)
}

/// The fourth field of `/proc/<pid>/stat`; the second is a name in brackets that may hold anything.
fn parent_in(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    Pid::from_raw(after_name.split_whitespace().nth(1)?.parse().ok()?)
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
        command.args(["-c", "setsid sh -c 'sleep 600 & sleep 600' & (true &) ; exit 3"]).process_group(0);
        let mut process = Process::start(&mut command, orphans).unwrap();
        assert_eq!(process.ended().await, Ended { code: Some(3), signal: None });
        assert!(!children().is_empty());
        orphans.end().await;
        assert_eq!(children(), []);
    }

    #[test]
    fn parents() {
        assert_eq!(parent_in("7 (sh) S 42 7 7 0"), Pid::from_raw(42));
        assert_eq!(parent_in("7 (a) R 1 (b)) S 42 7 7 0"), Pid::from_raw(42));
        assert_eq!(parent_in("7 (kthreadd) S 0 0"), None);
        assert_eq!(parent_in(""), None);
    }
}
