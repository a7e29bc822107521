//! Why a machine cannot run the cluster. A test that needs it is then counted as absent, with these words.

use std::path::Path;

use crate::real::cache::{Cache, Program};

/// Debian's programs that the cluster is made of, and the packages that bring them.
pub const PACKAGES: &[(&str, &str)] = &[
    ("etcd", "etcd-server"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    // What Pods of tests are made of.
    ("/bin/busybox", "busybox-static"),
];

/// The packages that are missing here, each once.
#[must_use]
pub fn missing_packages() -> Vec<&'static str> {
    let mut missing: Vec<_> =
        PACKAGES.iter().filter(|(program, _)| !is_there(program)).map(|(_, name)| *name).collect();
    missing.dedup();
    missing
}

/// What this machine lacks to run the cluster, or `None` if it lacks nothing.
#[must_use]
pub fn absence() -> Option<String> {
    if let Some(reason) = machine() {
        return Some(reason);
    }
    if let missing @ [_, ..] = missing_packages().as_slice() {
        return Some(format!(
            "Debian packages are missing: {}; run `cargo xtask provision kubernetes`",
            missing.join(" ")
        ));
    }
    let programs = [
        Program::KubeApiserver,
        Program::KubeControllerManager,
        Program::KubeScheduler,
        Program::Kubelet,
        Program::Pause,
    ];
    let found =
        Cache::locate().and_then(|cache| programs.iter().try_for_each(|program| cache.program(*program).map(drop)));
    found.err().map(|error| error.to_string())
}

/// What provisioning could not change.
#[must_use]
pub fn machine() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a one-node Kubernetes needs root".to_owned());
    }
    let version = std::fs::read_to_string("/etc/debian_version").unwrap_or_default();
    if !version.starts_with("12.") {
        return Some("a one-node Kubernetes is known to run on Debian 12 only".to_owned());
    }
    let memory = ["/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/cgroup.controllers"];
    (!memory.iter().any(|path| Path::new(path).exists())).then(|| "no memory cgroup is mounted".to_owned())
}

/// Whether a program is in PATH, in the folders of the administrator's programs, or at its own path.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    Path::new(program).is_absolute() && Path::new(program).is_file()
        || folders.into_iter().any(|folder| folder.join(program).is_file())
}
