//! The runner's process: signals to its group, its end, and the orphans of a container's first process (NEW-114).
//!
//! Held here: the group is killed while its leader is still a zombie, so the group's number cannot be anybody else's.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process_group, waitid, waitpid};
use tokio::signal::unix::{SignalKind, signal};

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
    child_signals: tokio::signal::unix::Signal,
}

impl Process {
    /// Starts the command, which must make itself the leader of its process group.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let child_signals = signal(SignalKind::child())?;
        // The handle itself is not needed: whoever reaps by process id must be the only one.
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process id is out of range"))?;
        Ok(Self { pid, child_signals })
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
                return self.take(Some(self.pid));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "the runner's end cannot be known");
                return Some(Ended { code: None, signal: None });
            }
        }
        // The kernel gives orphans to the first process of a container alone; elsewhere they are not ours to reap.
        if getpid().as_raw_nonzero().get() == 1 { self.take(None) } else { None }
    }

    /// Reaps `which`, or every ended child; says so when the runner was among them.
    fn take(&self, which: Option<Pid>) -> Option<Ended> {
        let mut ended = None;
        while let Ok(Some((pid, status))) = waitpid(which, WaitOptions::NOHANG) {
            if pid == self.pid {
                let status = ExitStatus::from_raw(status.as_raw());
                ended = Some(Ended { code: status.code(), signal: status.signal() });
            }
        }
        if ended.is_some() {
            self.signal(Signal::KILL);
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
        let mut process = Process::start(&mut shell("exit 7")).unwrap();
        assert_eq!(end_of(&mut process).await, Ended { code: Some(7), signal: None });
        let mut process = Process::start(&mut shell("sleep 600")).unwrap();
        process.signal(Signal::TERM);
        assert_eq!(end_of(&mut process).await, Ended { code: None, signal: Some(15) });
        assert!(Process::start(&mut Command::new("/no/such/program")).is_err());
    }

    /// NEW-113: what stayed in the group ends with the runner. The pipe closes when its last holder is gone.
    #[tokio::test]
    async fn group() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = shell("sleep 600 & exit 0");
        command.stdout(Stdio::from(writer));
        let mut process = Process::start(&mut command).unwrap();
        drop(command);
        end_of(&mut process).await;
        let closed = tokio::task::spawn_blocking(move || reader.read(&mut [0; 1]).unwrap());
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), closed).await.unwrap().unwrap(), 0);
    }
}
