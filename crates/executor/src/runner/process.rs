//! The runner's process: signals to its group and its end.
//!
//! Held here: the group is killed while its leader is still a zombie, so the group's number cannot be anybody else's.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process_group, wait, waitid, waitpid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::orphans::Orphans;
use super::orphans::strays::{StrayGraces, Strays};

/// How the runner ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its exit code; none when a signal ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
}

/// A started runner.
pub(crate) struct Process {
    pid: Pid,
    orphans: Orphans,
    child_signals: tokio::signal::unix::Signal,
}

impl Process {
    /// Starts the command, which must make itself the leader of its process group.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn start(command: &mut Command, orphans: Orphans) -> io::Result<Self> {
        let child_signals = signal(SignalKind::child())?;
        // The handle itself is not needed: whoever reaps by process id must be the only one.
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process id is out of range"))?;
        Ok(Self { pid, orphans, child_signals })
    }

    /// Those below this process that the runner has lost.
    pub(crate) fn strays(&self, graces: StrayGraces) -> Strays {
        Strays::new(self.orphans, self.pid, graces)
    }

    /// Sends a signal to the runner and everything that stayed in its group. A group that is gone is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        match kill_process_group(self.pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tracing::warn!(%error, ?signal, "the runner cannot be signalled"),
        }
    }

    /// Waits for the runner's end, kills what is left of its group and reaps it. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.reap() {
                return ended;
            }
            // None only when the runtime goes down.
            if self.child_signals.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn reap(&self) -> Option<Ended> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), look) {
            Ok(Some(_)) => {
                self.signal(Signal::KILL);
                self.ended_in(|| waitpid(Some(self.pid), WaitOptions::NOHANG))
            }
            // The runner may end between the look and this: then its status comes here, and its group is left to
            // whoever ends the orphans.
            Ok(None) if self.orphans == Orphans::Adopted => self.ended_in(|| wait(WaitOptions::NOHANG)),
            Ok(None) => None,
            Err(error) => {
                tracing::error!(%error, "the runner's end cannot be known");
                Some(Ended { code: None, signal: None })
            }
        }
    }

    /// Takes statuses until there is none; the runner's is returned.
    fn ended_in(&self, next: impl Fn() -> rustix::io::Result<Option<(Pid, WaitStatus)>>) -> Option<Ended> {
        let mut ended = None;
        while let Ok(Some((pid, status))) = next() {
            if pid == self.pid {
                let status = ExitStatus::from_raw(status.as_raw());
                ended = Some(Ended { code: status.code(), signal: status.signal() });
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command
    }

    async fn end_of(process: &mut Process) -> Ended {
        tokio::time::timeout(Duration::from_secs(20), process.ended()).await.unwrap()
    }

    #[tokio::test]
    async fn code_and_signal() {
        let mut process = Process::start(&mut shell("exit 7"), Orphans::NotOurs).unwrap();
        assert_eq!(end_of(&mut process).await, Ended { code: Some(7), signal: None });
        let mut process = Process::start(&mut shell("sleep 600"), Orphans::NotOurs).unwrap();
        process.signal(Signal::TERM);
        assert_eq!(end_of(&mut process).await, Ended { code: None, signal: Some(15) });
        assert!(Process::start(&mut Command::new("/no/such/program"), Orphans::NotOurs).is_err());
    }

    /// NEW-113: what stayed in the group ends with the runner. The pipe closes when its last holder is gone.
    #[tokio::test]
    async fn group() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = shell("sleep 60 & exit 0");
        command.stdout(Stdio::from(writer));
        let mut process = Process::start(&mut command, Orphans::NotOurs).unwrap();
        drop(command);
        end_of(&mut process).await;
        let closed = tokio::task::spawn_blocking(move || reader.read(&mut [0; 1]).unwrap());
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), closed).await.unwrap().unwrap(), 0);
    }
}
