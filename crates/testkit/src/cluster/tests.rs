//! What a container of this cluster gets.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::json;

use super::settings::IMAGE;
use super::*;

const SOON: Duration = Duration::from_secs(20);

/// A program that writes what it finds of its Pod's socket, and stays.
fn image(dir: &Path) -> Image {
    let program = dir.join("program");
    std::fs::write(
        &program,
        "#!/bin/sh\n[ -S \"${SPIFFE_ENDPOINT_SOCKET#unix://}\" ] && echo \"$1 $GITEA_RUNNER_BINARY\"\nsleep 60\n",
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    Image { program, runner: "/the/runner".into() }
}

fn pod(name: &str) -> serde_json::Value {
    let mount = json!({"name": "spire", "mountPath": "/run/spire/agent-sockets"});
    let socket = json!({"name": "SPIFFE_ENDPOINT_SOCKET", "value": "unix:///run/spire/agent-sockets/spire-agent.sock"});
    let container = json!({"name": "executor", "image": IMAGE, "args": ["executor"], "env": [socket],
        "volumeMounts": [mount]});
    json!({"metadata": {"name": name}, "spec": {"containers": [container],
        "volumes": [{"name": "spire", "csi": {"driver": "csi.spiffe.io"}}]}})
}

/// The socket of the agent is where the Pod says, a container is a process until its Pod goes, and nothing is left.
#[tokio::test]
async fn a_pod_is_a_process_with_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(image(dir.path()), dir.path()).await.unwrap();
    cluster.kubernetes.add(Resource::Pods, "gitea-actions", pod("one"));
    let end = tokio::time::Instant::now() + SOON;
    while cluster.logs() != ["executor /the/runner\n"] {
        assert!(tokio::time::Instant::now() < end, "{:?}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(cluster.objects(), ["Pod one"]);
    assert!(!cluster.processes().is_empty());
    cluster.kubernetes.force_delete("one");
    while !(cluster.processes().is_empty() && cluster.objects().is_empty()) {
        assert!(tokio::time::Instant::now() < end, "{:?}", cluster.processes());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
