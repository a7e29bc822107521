//! The local backend with real processes. The executor is a shell script; the supervisor is this test program, started
//! as [`supervisor_process`].

#![expect(clippy::unwrap_used, reason = "tests")]

mod endings;
mod folders;
mod lives;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::id::{Backend as BackendKind, PayloadDigest};
use domain::metadata::ExecutorRecord;
use futures::FutureExt as _;
use tempfile::TempDir;

use super::process::{Process, signal};
use super::*;
use crate::backend::samples::{PATIENCE, launch_of, name, state, state_after_nudge, until};
use crate::backend::{contract, samples};

/// Not a test of its own: the supervisors of the other tests.
#[test]
#[ignore = "started by other tests"]
fn supervisor_process() {
    if let Some(dir) = std::env::args().next_back().filter(|last| last.starts_with('/')) {
        let _ = supervisor::run(Path::new(&dir));
    }
}

/// A state folder and what a controller on it would be made with.
struct Host {
    state: TempDir,
    served: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// How often an identity was served, and how often one was taken away from an executor that ran.
    binds: Arc<AtomicUsize>,
    taken_alive: Arc<AtomicUsize>,
    /// So many of them, from the first, have ended by themselves.
    broken: Arc<AtomicUsize>,
}

impl Host {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        Self {
            state,
            served: Arc::default(),
            binds: Arc::default(),
            taken_alive: Arc::default(),
            broken: Arc::default(),
        }
    }

    fn config(&self, script: &str) -> LocalConfig {
        let entry = "backend::local::tests::supervisor_process";
        LocalConfig {
            state: self.state.path().to_owned(),
            instance: "here".parse().unwrap(),
            facade_url: "https://127.0.0.1:1".to_owned(),
            facade_spiffe_id: "spiffe://example.org/facade".parse().unwrap(),
            runner_binary: None,
            runner_config: None,
            environment: [("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())].into(),
            program: Some(Program { path: "/bin/sh".into(), args: vec!["-c".to_owned(), script.to_owned()] }),
            supervise: [entry, "--exact", "--ignored", "--nocapture"].map(str::to_owned).to_vec(),
            walls: None,
            users: 2_000_000..=2_001_023,
            open_files: None,
        }
    }

    /// A controller that starts now; the one before it is gone.
    fn controller(&self, script: &str) -> LocalBackend {
        self.controller_with(self.config(script))
    }

    fn controller_with(&self, config: LocalConfig) -> LocalBackend {
        let (served, binds) = (Arc::clone(&self.served), Arc::clone(&self.binds));
        let (taken_alive, broken) = (Arc::clone(&self.taken_alive), Arc::clone(&self.broken));
        let bind: Bind = Arc::new(move |_, socket| {
            let lives = Lives {
                socket: socket.to_owned(),
                served: Arc::clone(&served),
                taken_alive: Arc::clone(&taken_alive),
                number: binds.fetch_add(1, Ordering::SeqCst),
                broken: Arc::clone(&broken),
            };
            served.lock().unwrap().insert(lives.socket.clone());
            futures::future::ready(Ok(Box::new(lives) as Box<dyn Serving>)).boxed()
        });
        LocalBackend::new(config, bind).unwrap()
    }

    fn folder(&self, name: &str) -> Folder {
        Folder::new(self.state.path().join("executors").join(name))
    }

    fn is_served(&self, name: &str) -> bool {
        self.served.lock().unwrap().contains(&self.folder(name).socket())
    }

    /// A number that the script wrote into a file of its working directory.
    async fn number(&self, name: &str, file: &str) -> i32 {
        let path = self.folder(name).work().join(file);
        let mut number = None;
        until(&format!("there is a number in {file}"), async || {
            number = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            number.is_some()
        })
        .await;
        number.unwrap()
    }

    fn supervisor(&self, name: &str) -> Process {
        self.folder(name).supervisor().unwrap()
    }
}

impl Drop for Host {
    /// A failed test leaves no processes behind.
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.state.path().join("executors")).into_iter().flatten().flatten() {
            let folder = Folder::new(entry.path());
            let (supervisor, marks) = (folder.supervisor().ok(), starting::marks(&folder));
            process::stop_and_kill(|| process::leftovers(supervisor.as_ref(), &marks));
        }
    }
}

/// Served for as long as it lives.
struct Lives {
    socket: PathBuf,
    served: Arc<Mutex<BTreeSet<PathBuf>>>,
    taken_alive: Arc<AtomicUsize>,
    number: usize,
    broken: Arc<AtomicUsize>,
}

impl Serving for Lives {
    fn has_ended(&self) -> bool {
        self.number < self.broken.load(Ordering::SeqCst)
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        self.served.lock().unwrap().remove(&self.socket);
        let folder = self.socket.parent().unwrap().parent().unwrap();
        if Folder::new(folder.to_owned()).supervisor().is_ok_and(|supervisor| supervisor.runs()) {
            self.taken_alive.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn record(n: i64) -> ExecutorRecord {
    samples::record(BackendKind::Local, n)
}

fn launch(n: i64) -> Launch {
    launch_of(record(n))
}

async fn exit_after_nudge(backend: &LocalBackend, name: &str) -> crate::backend::Exit {
    match state_after_nudge(backend, name, |state| matches!(state, ExecutorState::Ended(_))).await {
        ExecutorState::Ended(exit) => exit,
        other => unreachable!("{other:?}"),
    }
}

fn runs(pid: i32) -> bool {
    process::is_running(pid)
}

fn kill(pid: i32) {
    signal(pid, rustix::process::Signal::KILL);
}
