#![expect(clippy::unwrap_used, reason = "tests")]
use serde_json::json;

use super::*;
use crate::backend::pod::tests::{launch, launch_of, recipe, record};

/// An hour before the deadline.
fn now() -> Timestamp {
    "2026-01-02T05:04:05Z".parse().unwrap()
}

fn made(launch: &Launch, recipe: &Recipe, grant: Option<&Grant>) -> Value {
    serde_json::to_value(pod(launch, recipe, grant, now()).unwrap()).unwrap()
}

/// POD-2, POD-11, NEW-68, NEW-69, NEW-71, NEW-77, F66, F67, F68, T51: the whole Pod, field by field.
#[test]
fn the_pod() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&made(&launch(7), &recipe(), None)).unwrap());
}

/// NEW-68, T51: over whatever template, the fixed fields are what they are without one.
#[test]
fn fixed_fields_lie_over_the_template() {
    let template = PodTemplate::parse(
        "metadata: {labels: {team: ci}, annotations: {note: x}}\nspec:\n  hostUsers: false\n  securityContext: \
         {supplementalGroups: [7]}\n  volumes: [{name: cache, emptyDir: {}}]\n  containers:\n  - name: side\n    image: i\n  - \
         name: executor\n    env: [{name: PROXY, value: p}]\n    volumeMounts: [{name: cache, mountPath: /cache}]\n",
    );
    let plain = made(&launch(7), &recipe(), None);
    let with = made(&launch(7), &Recipe { template: template.unwrap(), ..recipe() }, None);
    for field in
        ["restartPolicy", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "serviceAccountName", "hostNetwork"]
    {
        assert_eq!(with["spec"][field], plain["spec"][field], "{field}");
    }
    for (key, value) in plain["metadata"]["labels"].as_object().unwrap() {
        assert_eq!(with["metadata"]["labels"][key], *value);
    }
    let executor = &with["spec"]["containers"][0];
    for field in ["name", "image", "args", "securityContext"] {
        assert_eq!(executor[field], plain["spec"]["containers"][0][field], "{field}");
    }
    let mounts = executor["volumeMounts"].as_array().unwrap();
    assert!(mounts.contains(&json!({"name": "cache", "mountPath": "/cache"})) && mounts.len() == 5);
    assert_eq!(with["spec"]["securityContext"]["runAsUser"], 2000);
    assert_eq!(with["spec"]["securityContext"]["supplementalGroups"], json!([7]));
}

/// NEW-70, F66, T51: what a policy grants is a privileged Pod on the policy's nodes.
#[test]
fn a_privileged_pod() {
    let grant = Grant { node_selector: [("example.org/privileged".to_owned(), "true".to_owned())].into() };
    let pod = made(&launch(7), &recipe(), Some(&grant));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"example.org/privileged": "true"}));
    let context = &pod["spec"]["containers"][0]["securityContext"];
    assert_eq!(*context, json!({"privileged": true, "allowPrivilegeEscalation": true}));
    assert_eq!(
        pod["spec"]["securityContext"],
        json!({"runAsNonRoot": false, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 2000})
    );
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
}

/// NEW-72, F69, WRK-6, T52: the capability is in the Secret, which belongs to the Pod, and nowhere in the Pod.
#[test]
fn the_capability_is_in_the_secret_alone() {
    let launch = launch(7);
    let capability = launch.capability.expose();
    assert!(!made(&launch, &recipe(), None).to_string().contains(capability));
    let secret = secret(&launch, "u-1");
    assert_eq!(secret.data.unwrap()[KEY].0, capability.as_bytes());
    let metadata = serde_json::to_value(secret.metadata).unwrap();
    assert!(!metadata.to_string().contains(capability));
    assert_eq!(metadata["ownerReferences"][0]["uid"], "u-1");
    assert_eq!(metadata["ownerReferences"][0]["kind"], "Pod");
}

/// T35, NEW-71, F17: the kubelet ends what outlives its run deadline by 10 minutes; one that is late already has these.
#[test]
fn a_backstop() {
    let seconds = |deadline: &str| {
        let mut record = record(7);
        record.deadline = deadline.parse().unwrap();
        made(&launch_of(record), &recipe(), None)["spec"]["activeDeadlineSeconds"].clone()
    };
    assert_eq!(seconds("2026-01-02T06:04:05Z"), 4200);
    assert_eq!(seconds("2026-01-02T05:00:00Z"), 600);
}

/// A folder of the node, for clusters without the CSI driver.
#[test]
fn a_folder_with_the_socket() {
    let pod = made(&launch(7), &Recipe { volume: SpiffeVolume::HostPath("/run/spire/s".into()), ..recipe() }, None);
    let hosts = json!({"name": "spire-agent-socket", "hostPath": {"path": "/run/spire/s", "type": "Directory"}});
    assert_eq!(pod["spec"]["volumes"][0], hosts);
    let mount = json!({"name": "spire-agent-socket", "mountPath": "/run/spire/agent-sockets", "readOnly": true});
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0], mount);
}
