//! The supervisor and the two stages behind it as processes, with a shell script in the executor's place. The folder is
//! written by hand, as the backend writes it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(20);

/// Of one isolated executor; ends with the test, and all of it with its supervisor.
struct Supervisor {
    process: Child,
    state: tempfile::TempDir,
}

impl Supervisor {
    fn start(script: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("executors/one");
        // Root gives each job a user of its own, everybody else a user namespace.
        let (user, owner) =
            if geteuid().is_root() { (json!({ "own": JOB }), Some(JOB)) } else { (json!("ours"), None) };
        std::fs::create_dir_all(folder.join("api")).unwrap();
        for own in ["own", "work", "work/tmp"] {
            std::fs::create_dir(folder.join(own)).unwrap();
            std::os::unix::fs::chown(folder.join(own), owner, owner).unwrap();
        }
        let walls = json!({ "state": state.path(), "hidden": [], "blank": [], "shared": [], "processes": 4096 });
        let launch = json!({
            "program": "/bin/sh",
            "args": ["-c", script],
            "env": { "PATH": "/usr/local/bin:/usr/bin:/bin" },
            "isolation": { "walls": walls, "user": user },
            "open_files": FILES,
        });
        std::fs::write(folder.join("launch.json"), launch.to_string()).unwrap();
        std::fs::write(folder.join("lock"), "").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"));
        let process = command.arg("supervise").arg(&folder).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { process, state }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.state.path().join("executors/one").join(name)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Waits for a file of the executor's.
    fn made(&self, name: &str) {
        until(name, || self.path("work").join(name).exists());
    }

    /// Sends the signal and waits until its handler has run.
    fn told(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
        let status = Path::new("/proc").join(self.process.id().to_string()).join("status");
        until("handled", || {
            let status = std::fs::read_to_string(&status).unwrap();
            let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
            let pending =
                u64::from_str_radix(&of("ShdPnd:"), 16).unwrap() | u64::from_str_radix(&of("SigPnd:"), 16).unwrap();
            pending == 0 && of("State:").starts_with('S')
        });
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _ended = self.process.wait();
    }
}

const JOB: u32 = 2_000_000;
const FILES: u64 = 99;

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// EXE-6, NEW-158: SIGTERM that comes before the executor listens is told to it as soon as it does; the kernel keeps it
/// from the first process of a namespace until then.
#[test]
fn sigterm_waits_for_an_executor_that_does_not_listen_yet() {
    let script = "touch began; until [ -e gate ]; do sleep 0.01; done
        trap 'exit 7' TERM; touch listens; while :; do sleep 0.01; done";
    let mut supervisor = Supervisor::start(script);
    supervisor.made("began");
    supervisor.told(Signal::TERM);
    std::fs::write(supervisor.path("work/gate"), "").unwrap();
    supervisor.made("listens");
    until("the last word", || supervisor.path("exit.json").exists());
    let exit: serde_json::Value =
        serde_json::from_slice(&std::fs::read(supervisor.path("exit.json")).unwrap()).unwrap();
    assert_eq!((&exit["code"], &exit["signal"]), (&json!(7), &json!(null)));
    assert!(supervisor.process.wait().unwrap().success());
}

/// NEW-98: the limit of open files that the controller raised for itself is none of a job's.
#[test]
fn an_executor_has_the_limit_of_open_files_that_it_was_given() {
    let supervisor = Supervisor::start("ulimit -Sn > limit; touch told; sleep 60");
    supervisor.made("told");
    assert_eq!(std::fs::read_to_string(supervisor.path("work/limit")).unwrap().trim(), FILES.to_string());
}
