//! The programs of the cluster, each of which a test may take away and bring back.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::layout::Layout;
use super::room::Room;
use super::run;
use crate::real::cache::{Cache, Program};
use crate::real::{Error, Seen, eventually};

const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A program of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Keeps the objects, in memory. With it away, calls to the API hang rather than fail.
    Etcd,
    /// Runs the containers.
    Containerd,
    /// The API.
    ApiServer,
    /// Nodes, garbage, namespaces, service accounts.
    ControllerManager,
    /// Gives Pods their node.
    Scheduler,
    /// The node.
    Kubelet,
}

impl Service {
    /// All of them, in the order in which they start.
    pub const ALL: [Self; 6] =
        [Self::Etcd, Self::Containerd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kubelet];

    /// The name of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
        }
    }

    pub(super) fn program(self, cache: &Cache) -> Result<PathBuf, Error> {
        match self {
            Self::Etcd | Self::Containerd => Ok(PathBuf::from(self.name())),
            Self::ApiServer => cache.program(Program::KubeApiserver),
            Self::ControllerManager => cache.program(Program::KubeControllerManager),
            Self::Scheduler => cache.program(Program::KubeScheduler),
            Self::Kubelet => cache.program(Program::Kubelet),
        }
    }
}

/// How a program is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    /// SIGTERM.
    Stop,
    /// SIGKILL.
    Kill,
}

/// What makes a program neither work nor end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frost {
    /// SIGSTOP.
    Freeze,
    /// SIGCONT.
    Thaw,
}

/// Programs that run in a room, by name. Their pid files hold pids of the room, so that a stale one hits nothing outside.
#[derive(Default)]
pub(super) struct Programs(BTreeMap<String, Child>);

impl Programs {
    /// Starts what `command` (a `nsenter … --`) is followed by. Starting what runs does nothing.
    pub(super) fn start(
        &mut self,
        layout: &Layout,
        name: &str,
        mut enter: Command,
        program: &[String],
    ) -> Result<(), Error> {
        if self.runs(name) {
            return Ok(());
        }
        let log = layout.path("log").join(format!("{name}.log"));
        let log = OpenOptions::new().create(true).append(true).open(&log).map_err(Error::system("open a log"))?;
        let second = log.try_clone().map_err(Error::system("duplicate a descriptor"))?;
        enter.args(["-c", r#"echo $$ > "$0"; exec "$@""#]).arg(layout.path("pid").join(name)).args(program);
        enter.stdin(Stdio::null()).stdout(log).stderr(second).process_group(0);
        let child = enter.spawn().map_err(Error::system(format!("start {name}")))?;
        self.0.insert(name.to_owned(), child);
        Ok(())
    }

    pub(super) fn runs(&mut self, name: &str) -> bool {
        self.0.get_mut(name).is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The first of these that has ended.
    pub(super) fn ended<'a>(&mut self, names: &[&'a str]) -> Option<&'a str> {
        names.iter().copied().find(|name| !self.runs(name))
    }

    /// Ends a program and waits for it. Ending what is ended does nothing.
    pub(super) async fn end(&mut self, layout: &Layout, room: &Room, name: &str, blow: Blow) -> Result<(), Error> {
        if !self.runs(name) {
            return Ok(());
        }
        // It may have ended meanwhile; the wait shows it.
        let _ = signal(layout, room, name, if blow == Blow::Stop { "-TERM" } else { "-KILL" }).await;
        self.wake(name);
        eventually(&format!("{name} has ended"), STOP_LIMIT, async || {
            Ok(if self.runs(name) { Seen::NotYet("it runs".to_owned()) } else { Seen::Done(()) })
        })
        .await?;
        self.0.remove(name);
        Ok(())
    }
    /// Makes a program stand still, or go on.
    pub(super) async fn frost(&self, layout: &Layout, room: &Room, name: &str, frost: Frost) -> Result<(), Error> {
        let sent = signal(layout, room, name, if frost == Frost::Freeze { "-STOP" } else { "-CONT" }).await;
        if frost == Frost::Thaw {
            self.wake(name);
        }
        sent
    }

    /// `nsenter` stands still with its program, and hears of nothing then.
    fn wake(&self, name: &str) {
        let pid = self.0.get(name).and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

async fn signal(layout: &Layout, room: &Room, name: &str, signal: &str) -> Result<(), Error> {
    let path = layout.path("pid").join(name);
    let pid = std::fs::read_to_string(&path).map_err(Error::system(format!("read {}", path.display())))?;
    let mut kill = room.inside("kill");
    kill.args([signal, pid.trim()]);
    run(kill, STOP_LIMIT).await.map(drop)
}
