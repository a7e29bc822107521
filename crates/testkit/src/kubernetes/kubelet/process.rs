//! Containers as processes of this machine: started when a Pod runs, told SIGTERM when it goes, and all that they leave
//! behind is killed with them, as with the namespaces of a real container.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::container::Launch;
use crate::kubernetes::shared::Shared;
use crate::real::{Signal, of_folder, signal};

/// The program that every Pod's container runs, instead of its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The program; the container's `args` follow it.
    pub program: PathBuf,
    /// Below this folder each Pod has one of its own, named by its uid: home, files of Secrets, and the output in `log`.
    pub folder: PathBuf,
    /// What stands for volumes of the SPIFFE CSI driver and of the host: the folder of the Workload API's socket.
    pub sockets: Option<PathBuf>,
    /// More variables; they win over the Pod's.
    pub environment: Vec<(String, String)>,
    /// Whom to run it as; needs root.
    pub user: Option<u32>,
}

/// What is to be done to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Order {
    Start(Box<Launch>),
    /// SIGTERM, and SIGKILL after the grace period.
    Stop(String, Duration),
    Kill(String),
}

/// What a process has been told so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Stop(Duration),
    Kill,
}

/// The processes that run, by the uid of their Pod.
#[derive(Default)]
pub(crate) struct Processes(BTreeMap<String, watch::Sender<Told>>);

impl Processes {
    /// Carries out what the machine ordered.
    pub(crate) fn obey(&mut self, shared: &Arc<Shared>, orders: Vec<Order>) {
        self.0.retain(|_, told| !told.is_closed());
        for order in orders {
            match order {
                Order::Start(launch) => {
                    let (told, heard) = watch::channel(Told::Nothing);
                    self.0.insert(launch.uid.clone(), told);
                    tokio::spawn(live(shared.clone(), launch, heard));
                }
                Order::Stop(uid, grace) => self.tell(&uid, Told::Stop(grace)),
                Order::Kill(uid) => self.tell(&uid, Told::Kill),
            }
        }
    }

    fn tell(&self, uid: &str, what: Told) {
        if let Some(told) = self.0.get(uid) {
            told.send_if_modified(|told| {
                let new = *told != Told::Kill && *told != what;
                if new {
                    *told = what;
                }
                new
            });
        }
    }
}

/// From the start of a process to its end, which is told to the machine.
async fn live(shared: Arc<Shared>, launch: Box<Launch>, mut heard: watch::Receiver<Told>) {
    let (code, message) = match begin(&launch) {
        Ok(child) => {
            // A dropped child is killed.
            let code = tokio::select! {
                code = supervise(child, &mut heard) => code,
                () = shared.stop.cancelled() => 137,
            };
            (code, String::new())
        }
        Err(error) => (128, error.to_string()),
    };
    for process in of_folder(&launch.folder) {
        process.signal(Signal::Kill);
    }
    // What it wrote stays for whoever looks at a failed test.
    drop(heard);
    shared.change(|world| world.machine.process_ended(&world.store, &launch.uid, code, &message));
}

fn begin(launch: &Launch) -> std::io::Result<Child> {
    launch.prepare()?;
    let log = std::fs::File::create(launch.folder.join("log"))?;
    let mut command = Command::new(&launch.program);
    command.args(&launch.arguments).env_clear().envs(launch.environment.iter().cloned());
    // So that everything of this Pod can be found, however it moves.
    command.env("HOME", &launch.folder).env("TMPDIR", launch.folder.join("tmp"));
    let has_path = launch.environment.iter().any(|(name, _)| name == "PATH");
    if !has_path {
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    }
    command.current_dir(&launch.folder).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    if let Some(user) = launch.user {
        command.uid(user).gid(user);
    }
    command.spawn()
}

/// Waits for the end of a process, and hands on what it is told.
async fn supervise(mut child: Child, heard: &mut watch::Receiver<Told>) -> i32 {
    let pid = child.id().unwrap_or_default();
    let mut grace = Duration::MAX;
    loop {
        tokio::select! {
            status = child.wait() => return status.map_or(137, code),
            changed = heard.changed(), if heard.has_changed().is_ok() => {
                let told = *heard.borrow_and_update();
                match told {
                    Told::Nothing => {}
                    Told::Stop(seconds) => {
                        signal(pid, Signal::Terminate);
                        grace = seconds;
                    }
                    Told::Kill => signal(pid, Signal::Kill),
                }
                // The table of processes is gone with the double: so are its containers.
                if changed.is_err() {
                    signal(pid, Signal::Kill);
                }
            }
            () = tokio::time::sleep(grace) => {
                signal(pid, Signal::Kill);
                grace = Duration::MAX;
            }
        }
    }
}

/// As container runtimes tell it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(9))
}
