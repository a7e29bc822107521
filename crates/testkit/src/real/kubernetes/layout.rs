//! Where everything of one cluster is: its folder, its addresses, its names in the kernel.

use std::fs::{File, OpenOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use crate::real::Error;

/// The name of the only node.
pub(super) const NODE: &str = "node1";

/// A second number of 10.x.0.0/16 that one cluster has for itself while the lock is held.
pub(super) struct Net {
    number: u8,
    _lock: File,
}

impl Net {
    /// Takes the first that no cluster of this machine uses.
    pub(super) fn take() -> Result<Self, Error> {
        for number in 207..=222 {
            let path = format!("/run/lock/gdr-kubernetes-{number}");
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let lock = file.map_err(Error::system(format!("open {path}")))?;
            if lock.try_lock().is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        Err(Error::system("find a network for the cluster")("sixteen clusters run on this machine already"))
    }

    fn address(&self, third: u8, fourth: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, third, fourth)
    }

    /// This machine, as the node and its Pods see it.
    pub(super) fn host(&self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// The node: API server on 443, kubelet on 10250.
    pub(super) fn node(&self) -> Ipv4Addr {
        self.address(0, 2)
    }

    pub(super) fn pods(&self) -> String {
        format!("{}/24", self.address(1, 0))
    }

    pub(super) fn services(&self) -> String {
        format!("{}/24", self.address(2, 0))
    }

    /// The address of Service `default/kubernetes`.
    pub(super) fn api_service(&self) -> Ipv4Addr {
        self.address(2, 1)
    }

    /// The cgroup that holds all Pods.
    pub(super) fn cgroup(&self) -> String {
        format!("gdr-kube-{}", self.number)
    }

    /// This machine's end of the cable to the node.
    pub(super) fn cable(&self) -> String {
        format!("gdrkube{}", self.number)
    }

    pub(super) fn certified(&self) -> [IpAddr; 3] {
        [self.node(), self.api_service(), Ipv4Addr::LOCALHOST].map(IpAddr::V4)
    }
}

/// The folder of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Layout(PathBuf);

impl Layout {
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        let layout = Self(folder.to_owned());
        let folders = [
            "pki",
            "log/pods",
            "log/containers",
            "etcd",
            "kubelet",
            "containerd",
            "run",
            "cni/net.d",
            "pid",
            "images",
            "registries",
        ];
        for name in folders {
            let path = layout.path(name);
            std::fs::create_dir_all(&path).map_err(Error::system(format!("make {}", path.display())))?;
        }
        Ok(layout)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.path(name);
        std::fs::write(&path, text).map_err(Error::system(format!("write {}", path.display())))
    }
}
