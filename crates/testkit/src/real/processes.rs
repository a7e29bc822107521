//! The processes of one state folder, found in `/proc`: those that name the folder in their arguments or environment,
//! and their descendants. Works from outside a job's PID namespace.

use std::collections::BTreeMap;
use std::path::Path;

use rustix::process::{Pid, kill_process};

/// What can be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

/// One process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its id as we see it, from outside any namespace.
    pub pid: u32,
    /// Its parent's id.
    pub parent: u32,
    /// Its arguments, the program first.
    pub arguments: Vec<String>,
    environment: Vec<u8>,
}

impl Process {
    /// The file name of the program.
    #[must_use]
    pub fn program(&self) -> &str {
        self.arguments.first().map_or("", |first| first.rsplit('/').next().unwrap_or(first))
    }

    /// Whether a word stands among the arguments.
    #[must_use]
    pub fn has_word(&self, word: &str) -> bool {
        self.arguments.iter().skip(1).any(|argument| argument == word)
    }

    /// Sends a signal; a process that is gone is no error.
    pub fn signal(&self, signal: Signal) {
        send(self.pid, signal);
    }

    /// The most memory it has had so far, in bytes (`VmHWM`); 0 when it is gone.
    #[must_use]
    pub fn peak_memory(&self) -> u64 {
        peak_memory(self.pid)
    }

    /// The task whose executor's folder it names in its arguments or environment.
    #[must_use]
    pub fn task(&self) -> Option<i64> {
        let environment = String::from_utf8_lossy(&self.environment);
        let mut texts = self.arguments.iter().map(String::as_str).chain([&*environment]);
        texts.find_map(|text| {
            let (_, rest) = text.split_once("gitea-task-")?;
            rest.split(|each: char| !each.is_ascii_digit()).next()?.parse().ok()
        })
    }

    fn names(&self, path: &str) -> bool {
        let in_environment = || self.environment.windows(path.len()).any(|window| window == path.as_bytes());
        self.arguments.iter().any(|argument| argument.contains(path)) || in_environment()
    }
}

/// Sends a signal; a process that is gone is no error.
pub fn send(pid: u32, signal: Signal) {
    let signal = match signal {
        Signal::Terminate => rustix::process::Signal::TERM,
        Signal::Interrupt => rustix::process::Signal::INT,
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Stop => rustix::process::Signal::STOP,
        Signal::Continue => rustix::process::Signal::CONT,
    };
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

pub(super) fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map_or(0, |kilobytes| kilobytes * 1024)
}

/// The processes that belong to a folder, by rising id. Zombies, the caller and its leashes are left out.
#[must_use]
pub fn of_folder(folder: &Path) -> Vec<Process> {
    let path = folder.display().to_string();
    let own = std::process::id();
    let all: BTreeMap<u32, Process> = all().into_iter().map(|process| (process.pid, process)).collect();
    let ours = |process: &Process| process.pid != own && !process.has_word("leash") && process.names(&path);
    let belongs = |process: &Process| {
        let mut next = Some(process);
        while let Some(process) = next.filter(|process| process.pid != own) {
            if ours(process) {
                return true;
            }
            next = all.get(&process.parent).filter(|parent| parent.pid != process.pid);
        }
        false
    };
    all.values().filter(|process| !process.has_word("leash") && belongs(process)).cloned().collect()
}

fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn read(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, blanks and parentheses included.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    if state == "Z" {
        return None;
    }
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = words.strip_suffix(b"\0").unwrap_or(&words);
    let arguments = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    Some(Process { pid, parent, arguments, environment })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_folder_has_those_that_name_it_and_their_children() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("exec 3< <(exec sleep 60); : {}; read -r _", folder.path().display());
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", &script]).stdin(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let found = loop {
            let found = of_folder(folder.path());
            if found.iter().any(|process| process.program() == "sleep") || std::time::Instant::now() > deadline {
                break found;
            }
            std::thread::yield_now();
        };
        let programs: Vec<_> = found.iter().map(Process::program).collect();
        for process in &found {
            process.signal(Signal::Kill);
        }
        assert!(!shell.wait().unwrap().success());
        assert_eq!(programs, ["bash", "sleep"]);
        assert!(of_folder(Path::new("/no/such/folder")).is_empty());
    }
}
