//! Volumes of the SPIFFE CSI driver, which is no package to be had: a small program of our own plays it on the node, and
//! gives Pods the folder of the agent's socket, read-only. Kubelet, API server and Pod security are the real ones.

use std::time::Duration;

use serde_json::json;

use super::layout::NODE;
use super::{Cluster, Identity, make};
use crate::real::cache::Program;
use crate::real::{Error, Seen, eventually};

const DRIVER: &str = "csi.spiffe.io";
/// The kubelet's own folder, as the node sees it.
const KUBELET: &str = "/var/lib/kubelet";
const LIMIT: Duration = Duration::from_secs(60);

impl Cluster {
    /// Starts the driver, and waits until the kubelet knows it.
    ///
    /// # Errors
    /// It is not installed, the API refused it, or the kubelet does not know it within 60 s.
    pub async fn spiffe_volumes(&mut self, identity: &Identity) -> Result<(), Error> {
        let spec = json!({"attachRequired": false, "podInfoOnMount": true, "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Ephemeral"]});
        let driver = json!({"metadata": {"name": DRIVER}, "spec": spec});
        make(&self.client, "/apis/storage.k8s.io/v1/csidrivers", &driver).await?;
        let program = self.cache.program(Program::SpiffeCsi)?.display().to_string();
        let folder = identity.socket_folder().display().to_string();
        let socket = format!("{KUBELET}/plugins/{DRIVER}/csi.sock");
        let registration = format!("{KUBELET}/plugins_registry/{DRIVER}-reg.sock");
        let line = [program, NODE.to_owned(), folder, socket, registration];
        self.programs.start(&self.layout, "spiffe-csi", self.room.inside("bash"), &line)?;
        self.driver_known().await
    }

    async fn driver_known(&self) -> Result<(), Error> {
        let path = format!("/apis/storage.k8s.io/v1/csinodes/{NODE}");
        eventually("the kubelet knows the CSI driver", LIMIT, async || {
            let node = self.client.get(&path).await?.body;
            let mut drivers = node["spec"]["drivers"].as_array().into_iter().flatten();
            if drivers.any(|driver| driver["name"] == DRIVER) {
                return Ok(Seen::Done(()));
            }
            let log = self.layout.path("log/spiffe-csi.log");
            Ok(Seen::NotYet(std::fs::read_to_string(log).unwrap_or_default()))
        })
        .await
    }
}
