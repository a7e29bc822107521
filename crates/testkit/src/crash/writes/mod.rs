//! Watches a process change a folder: every system call of its threads that changes something there is a boundary, and is
//! struck before the kernel carries it out.
//!
//! It is a tracer (ptrace): the process stops at the entry of each system call until we say go on. A process that is
//! killed there has not made the call. Threads are followed, children are not: what the program starts runs untraced.
//!
//! All requests to the kernel about a traced process come from one thread, which lives as long as the process. We are the
//! parent of the process as well as its tracer, and for the kernel a wait of ours is a wait of the parent: while it is
//! traced nobody else may wait for it, and its end is left for the parent to collect.

mod change;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::sync::oneshot;

use super::{Moment, Register};

/// What a change is called, from its path in the folder.
pub(super) type PathName = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// A process that is watched until it ends.
pub(super) struct Tracer {
    folder: PathBuf,
    name: PathName,
    register: Arc<Register>,
    process: Pid,
}

impl Tracer {
    /// Watches a process from here on; returns when every further change will be seen.
    ///
    /// # Errors
    /// It may not be traced.
    pub(super) async fn follow(pid: u32, folder: &Path, name: PathName, register: Arc<Register>) -> io::Result<()> {
        let process = Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?);
        let tracer = Self { folder: folder.to_owned(), name, register, process };
        let (ready, seized) = oneshot::channel();
        let thread = std::thread::Builder::new().name("tracer".to_owned());
        thread.spawn(move || {
            let begun = tracer.seize();
            let goes_on = begun.is_ok();
            let _nobody_waits = ready.send(begun);
            if goes_on {
                tracer.watch();
            }
        })?;
        seized.await.map_err(io::Error::other)?
    }

    fn seize(&self) -> io::Result<()> {
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
        ptrace::seize(self.process, options)?;
        ptrace::interrupt(self.process)?;
        Ok(())
    }

    fn watch(&self) {
        while let Some((pid, ended)) = next() {
            // The last of its threads is gone: the rest is for its parent.
            if ended && pid == self.process {
                return;
            }
            if let Ok(status) = waitpid(pid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                self.met(status);
            }
        }
    }

    /// Looks at a stop and lets the thread go on. A thread that was killed meanwhile needs nothing more.
    fn met(&self, status: WaitStatus) {
        let gone_on = match status {
            WaitStatus::PtraceSyscall(thread) => {
                if self.enters(thread) && self.strikes(thread) {
                    return;
                }
                ptrace::syscall(thread, None)
            }
            WaitStatus::PtraceEvent(thread, _, _) => ptrace::syscall(thread, None),
            WaitStatus::Stopped(thread, signal) => ptrace::syscall(thread, Some(signal)),
            _ => Ok(()),
        };
        let _killed_meanwhile = gone_on;
    }

    fn enters(&self, thread: Pid) -> bool {
        ptrace::syscall_info(thread).is_ok_and(|info| info.op == libc::PTRACE_SYSCALL_INFO_ENTRY)
    }

    fn strikes(&self, thread: Pid) -> bool {
        let Some(change) = change::of(thread, &self.folder) else { return false };
        let name = format!("{} {}", change.call, (self.name)(&change.path));
        let boundary = self.register.meets(name);
        self.register.strikes(&boundary, Moment::Before)
    }
}

/// The next thread that has something to tell, and whether it is its end. The news stay where they are.
fn next() -> Option<(Pid, bool)> {
    let wanted = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
    loop {
        match waitid(Id::All, wanted | WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD) {
            Err(Errno::EINTR) => {}
            Err(_) => return None,
            Ok(status) => {
                let ended = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
                return status.pid().map(|pid| (pid, ended));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::process::Command;

    use super::super::Boundary;
    use super::*;

    /// A shell that changes the folder as `script` says, watched from its first system call on.
    async fn watched(folder: &Path, script: &str, register: &Arc<Register>) -> std::process::ExitStatus {
        let outside = tempfile::tempdir().unwrap();
        let gate = outside.path().join("gate");
        rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let script = format!("read -r _ < {}; cd {}; {script}", gate.display(), folder.display());
        let mut shell = Command::new("/bin/sh").args(["-c", &script]).spawn().unwrap();
        register.open();
        register.victim(Some(shell.id()));
        let name: PathName = Arc::new(str::to_owned);
        Tracer::follow(shell.id(), folder, name, Arc::clone(register)).await.unwrap();
        std::fs::write(gate, "\n").unwrap();
        let end = tokio::task::spawn_blocking(move || {
            // While it is traced, only its end may be waited for, and not by its stops.
            while !std::fs::read_to_string(format!("/proc/{}/stat", shell.id())).unwrap().contains(") Z ") {
                std::thread::yield_now();
            }
            shell.wait().unwrap()
        });
        end.await.unwrap()
    }

    /// Changes are seen with their paths, those of children and of other folders are not, and a struck one is not
    /// made.
    #[tokio::test]
    async fn a_change_is_struck_before_it_is_made() {
        let script = "echo one > a; (echo child > c); echo two > b; : > /dev/null";
        let folder = tempfile::tempdir().unwrap();
        let register = Arc::new(Register::new(None));
        assert!(watched(folder.path(), script, &register).await.success());
        let names: Vec<String> = register.met().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["open a #1", "write a #1", "open b #1", "write b #1"]);

        let folder = tempfile::tempdir().unwrap();
        let target = Boundary { name: "write b".to_owned(), nth: 1 };
        let register = Arc::new(Register::new(Some((target, Moment::Before))));
        assert!(!watched(folder.path(), script, &register).await.success() && register.struck());
        let content = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((content("a"), content("b")), ("one\n".to_owned(), String::new()));
    }
}
