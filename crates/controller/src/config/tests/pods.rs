//! Settings of executors in Pods, and of who leads.

use super::*;
use crate::gitea::OnCancel;

const DIGEST: &str =
    "registry.example.org/ci/executor@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// What turns a configuration of one host into one of Pods with the queue in a file.
pub(super) const PODS: [(&str, &str); 6] = [
    ("COMPONENTS", "scheduler,pod-worker"),
    ("IDENTITY_ISSUER", "workload-api"),
    ("SPIFFE_ENDPOINT_SOCKET", "unix:///run/spire/agent-sockets/spire-agent.sock"),
    ("POD_EXECUTOR_IMAGE", DIGEST),
    ("SPIRE_CLASS", "spire-mgmt-spire"),
    ("SPIRE_CLUSTER", "prod"),
];

fn pods(changes: &[(&str, &str)]) -> Config {
    let dir = tempfile::tempdir().unwrap();
    let changes = [&PODS[..], changes].concat();
    load(&SettingsArgs::default(), with(complete(dir.path()), &changes)).1.unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn one_pod_error(changes: &[(&str, &str)], part: &str) {
    one_error(&[&PODS[..], changes].concat(), part);
}

/// CFG-5, CFG-14, NEW-67: defaults of a Pod, its identity from the node's agent.
#[test]
fn a_complete_configuration_of_pods() {
    let config = pods(&[]);
    assert_eq!((config.kind(), config.slots().get()), (Backend::Pod, 4));
    let pods = config.pods.unwrap();
    assert_eq!((pods.namespace.as_str(), pods.service_account.as_str()), ("gitea-actions", "gitea-task-executor"));
    assert_eq!((pods.uid.get(), pods.pending.as_secs()), (2000, 900));
    assert_eq!((pods.volume, pods.runner_version.on_cancel()), (SpiffeVolume::Csi, OnCancel::Stops));
    assert_eq!(pods.identity.means, IdentityMeans::Entries { class: "spire-mgmt-spire".to_owned() });
    assert_eq!(pods.identity.parent, EntryParent::OfNode { cluster: "prod".parse().unwrap() });
    assert_eq!(pods.access, ClusterAccess { api: None, ca: None, token: None });
}

/// CFG-5, CFG-9, CFG-14, NEW-67, NEW-68: each wrong or missing setting of Pods is one error that says what to do.
#[test]
fn wrong_settings_of_pods() {
    one_pod_error(&[("POD_EXECUTOR_IMAGE", "registry.example.org/ci/executor:1")], "has no digest");
    assert!(pods(&[("POD_EXECUTOR_IMAGE", "a.example.org/b:1"), ("ALLOW_IMAGE_TAG", "true")]).pods.is_some());
    one_pod_error(&[("POD_EXECUTOR_IMAGE", "")], "POD_EXECUTOR_IMAGE is required");
    one_pod_error(&[("POD_NAMESPACE", "Ci")], "POD_NAMESPACE");
    one_pod_error(&[("SPIRE_CLASS", "")], "SPIRE_CLASS is required");
    one_pod_error(&[("SPIRE_CLUSTER", "")], "SPIRE_CLUSTER is required");
    let alias = [("SPIRE_CLUSTER", ""), ("SPIRE_AGENT_ID", "spiffe://example.org/ci-nodes")];
    assert!(matches!(pods(&alias).pods.unwrap().identity.parent, EntryParent::Fixed(_)));
    one_pod_error(&[("POD_IDENTITY", "spire-server")], "POD_SPIRE_SERVER_SOCKET is required");
    one_pod_error(&[("POD_SPIFFE_VOLUME", "hostpath:run/spire")], "POD_SPIFFE_VOLUME");
    one_pod_error(&[("POD_RUNNER_VERSION", "3.0")], "POD_RUNNER_VERSION");
    one_pod_error(&[("KUBERNETES_API", "http://10.0.0.1:8080")], "it would carry our token in clear text");
    one_pod_error(&[("IDENTITY_ISSUER", "built-in")], "built-in issues on this host only");
    one_pod_error(&[("SPIFFE_ENDPOINT_SOCKET", "")], "SPIFFE_ENDPOINT_SOCKET is required");
    one_pod_error(&[("STATE_DIR", "")], "STATE_DIR is required");
    one_pod_error(&[("LEADER_ELECTION", "nats")], "nats needs QUEUE=jetstream");
    one_error(&[("LEADER_ELECTION", "kubernetes")], "kubernetes needs pod-worker");
    let both = errors(&[("COMPONENTS", "scheduler,pod-worker,local-worker")]);
    assert!(both.iter().any(|error| error.contains("one backend in a process")), "{both:#?}");
}

/// NEW-25: from 2.0.0 on the runner in the image reports the end of a cancelled job itself.
#[test]
fn the_runner_in_the_image_is_known_by_its_version() {
    for (version, wanted) in [("1.0.8", OnCancel::Stops), ("v2.0.0", OnCancel::Reports), ("3.1.0", OnCancel::Reports)] {
        assert_eq!(pods(&[("POD_RUNNER_VERSION", version)]).pods.unwrap().runner_version.on_cancel(), wanted);
    }
}

/// NEW-68, NEW-70, CFG-2, CFG-9: a template and a policy are read when the settings are, and each fault has its place.
#[test]
fn templates_and_policies_are_checked_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let template = file("good.yaml", "spec: {nodeSelector: {pool: ci}}");
    assert!(pods(&[("POD_TEMPLATE_FILE", &template)]).pods.unwrap().template.is_some());
    let hostile = file("bad.yaml", "spec: {hostNetwork: true}");
    one_pod_error(&[("POD_TEMPLATE_FILE", &hostile)], "spec.hostNetwork: no job has a part of its node");
    one_pod_error(&[("POD_TEMPLATE_FILE", "/no/such/file")], "POD_TEMPLATE_FILE");
    let policy = file(
        "policy.toml",
        "[[privileged]]\nrepository = \"acme/*\"\nlabel = \"docker\"\ntrust = \"trusted\"\nnode_selector = { a = \"b\" }\n",
    );
    let declared = [("PRIVILEGED_POLICY_FILE", policy.as_str()), ("EXTRA_LABELS", "docker=pod")];
    assert!(pods(&declared).pods.unwrap().privileged.is_some());
    one_pod_error(&declared[..1], "add docker=pod to EXTRA_LABELS");
    one_pod_error(&[("PRIVILEGED_POLICY_FILE", &file("empty.toml", ""))], "no [[privileged]] section");
}
