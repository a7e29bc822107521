//! A second node in name only. Kubernetes takes a cluster whose every node is silent for a broken network and evicts
//! nothing; beside a node that is well it does.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::make;
use crate::kubernetes::Client;
use crate::real::Error;

const NAME: &str = "spare";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// Below the time after which a node counts as silent.
const BEAT: Duration = Duration::from_secs(3);

/// The node; nothing is ever placed on it. It falls silent when this is dropped.
pub struct SpareNode(JoinHandle<()>);

impl SpareNode {
    pub(super) async fn start(client: Client) -> Result<Self, Error> {
        let node = json!({"metadata": {"name": NAME}, "spec": {"unschedulable": true}});
        make(&client, "/api/v1/nodes", &node).await?;
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let ready = json!({"type": "Ready", "status": "True", "reason": "Spare", "message": "no kubelet",
            "lastHeartbeatTime": now, "lastTransitionTime": now});
        let path = format!("/api/v1/nodes/{NAME}/status");
        client.patch(&path, &json!({"status": {"conditions": [ready]}})).await?.object(&path)?;
        let lease = json!({"metadata": {"name": NAME}, "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 40}});
        make(&client, LEASES, &lease).await?;
        Ok(Self(tokio::spawn(async move {
            loop {
                let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
                // An API server that is away is told the next time.
                let _ = client.patch(&format!("{LEASES}/{NAME}"), &json!({"spec": {"renewTime": now}})).await;
                sleep(BEAT).await;
            }
        })))
    }
}

impl Drop for SpareNode {
    fn drop(&mut self) {
        self.0.abort();
    }
}
