//! The namespaces, cgroups and cable of one cluster.
//!
//! Invariant: everything of the cluster runs below one process, the first of its PID namespace. When that is killed the
//! kernel ends all the rest, and mounts and interfaces go with their namespaces; only cgroups are removed by hand.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::layout::{Layout, NODE, Net};
use super::{command, run};
use crate::real::error::tail;
use crate::real::{Error, Seen, Signal, eventually, signal};

const SCRIPT: &str = include_str!("room.sh");
const PREPARE_LIMIT: Duration = Duration::from_secs(30);

/// The namespaces, alive.
pub(super) struct Room {
    /// `unshare`, which ends with the first process.
    outer: Child,
    /// The first process, as this machine sees it.
    first: u32,
    cgroup: String,
}

impl Room {
    pub(super) async fn open(layout: &Layout, net: &Net, pause: &Path) -> Result<Self, Error> {
        // Places that are mounted over inside must exist outside.
        for path in ["/run/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers"] {
            std::fs::create_dir_all(path).map_err(Error::system(format!("make {path}")))?;
        }
        clear_cgroups(&net.cgroup()).await?;
        let mut unshare = command("unshare");
        unshare.args(["--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]);
        unshare.args(["--propagation", "private"]).arg(pause);
        unshare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let outer = unshare.spawn().map_err(Error::system("start unshare"))?;
        let mut room = Self { outer, first: 0, cgroup: net.cgroup() };
        room.first = room.find_first().await?;
        make_cgroups(&room.cgroup)?;
        room.connect(layout, net).await?;
        Ok(room)
    }

    /// The process to kill so that everything ends.
    pub(super) fn pid(&self) -> u32 {
        self.outer.id()
    }

    async fn find_first(&mut self) -> Result<u32, Error> {
        let outer = self.outer.id();
        eventually("the cluster's namespaces", PREPARE_LIMIT, async || {
            let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap_or_default();
            let first = children.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok());
            let runs = |pid: &u32| {
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                program.ends_with("pause")
            };
            Ok(first.filter(runs).map_or_else(|| Seen::NotYet("no first process".to_owned()), Seen::Done))
        })
        .await
    }

    async fn connect(&self, layout: &Layout, net: &Net) -> Result<(), Error> {
        let ip = async |line: &str| {
            let mut command = super::command("ip");
            command.args(line.split(' '));
            run(command, PREPARE_LIMIT).await.map(drop)
        };
        let (cable, first) = (net.cable(), self.first);
        // The kernel takes the cable of an ended cluster away some time after its last process.
        eventually("the old cluster's cable is gone", PREPARE_LIMIT, async || {
            if !Path::new("/sys/class/net").join(&cable).exists() {
                return Ok(Seen::Done(()));
            }
            let deleted = ip(&format!("link delete {cable}")).await;
            Ok(Seen::NotYet(format!("{deleted:?}")))
        })
        .await?;
        ip(&format!("link add {cable} type veth peer name eth0 netns {first}")).await?;
        ip(&format!("addr add {}/30 dev {cable}", net.host())).await?;
        ip(&format!("link set {cable} up")).await?;
        let mut script = self.inside("bash");
        script.args(["-c", SCRIPT, "room"]).arg(layout.path("")).arg(NODE);
        script.arg(net.node().to_string()).arg(net.api_service().to_string());
        run(script, PREPARE_LIMIT).await?;
        ip(&format!("route add {} via {}", net.pods(), net.node())).await
    }

    /// A command that runs as a program of the node.
    pub(super) fn inside(&self, program: &str) -> Command {
        let mut nsenter = command("nsenter");
        nsenter.args(["--target", &self.first.to_string(), "--mount", "--net", "--pid", "--uts", "--", program]);
        nsenter
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        signal(self.first, Signal::Kill);
        signal(self.outer.id(), Signal::Kill);
        let _ = self.outer.wait();
        // The first process is reaped when all others in there have ended.
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while cgroups(&self.cgroup).iter().any(|path| !remove(path)) && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The cgroups of this name that exist: one for each controller, or the only one.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let folders = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = folders.chain([PathBuf::from("/sys/fs/cgroup")]).map(|path| path.join(name)).collect();
    paths.retain(|path| path.is_dir());
    paths.sort();
    paths.dedup();
    paths
}

/// Removes a cgroup with those in it; `false` while processes are left.
fn remove(path: &Path) -> bool {
    let inner = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    inner.filter(|path| path.is_dir()).for_each(|path| {
        remove(&path);
    });
    std::fs::remove_dir(path).is_ok() || !path.exists()
}

/// What a cluster left whose process was killed.
async fn clear_cgroups(name: &str) -> Result<(), Error> {
    eventually("the old cluster's cgroups are gone", PREPARE_LIMIT, async || {
        let left: Vec<_> = cgroups(name).into_iter().filter(|path| !remove(path)).collect();
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
    })
    .await
}

fn make_cgroups(name: &str) -> Result<(), Error> {
    let root = Path::new("/sys/fs/cgroup");
    let make = || -> std::io::Result<()> {
        if root.join("cgroup.controllers").exists() {
            std::fs::write(root.join("cgroup.subtree_control"), "+cpu +cpuset +memory +pids +io")?;
            return std::fs::create_dir_all(root.join(name));
        }
        for entry in std::fs::read_dir(root)? {
            let controller = entry?.path();
            if controller.join("cgroup.procs").is_file() {
                std::fs::create_dir_all(controller.join(name))?;
            }
        }
        // A new group of processors is empty and takes nobody.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let from = root.join("cpuset").join(file);
            if from.exists() {
                std::fs::write(root.join("cpuset").join(name).join(file), std::fs::read(from)?)?;
            }
        }
        Ok(())
    };
    make().map_err(Error::system(format!("make the cgroups {name}")))
}

/// The ends of the logs in a folder, for error messages.
pub(super) fn logs(folder: &Path) -> String {
    let mut text = String::new();
    let mut files: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|end| end == "log")) {
        let log = std::fs::read_to_string(path).unwrap_or_default();
        text.push_str(&format!("== {}\n{}\n", path.display(), tail(&log, 600)));
    }
    text
}
