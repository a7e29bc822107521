//! The Pod of an executor and its Secret: pure. Fixed fields lie over the operator's template (NEW-68).

use std::path::Path;

use domain::id::executor_name;
use domain::identity::SpiffeId;
use domain::launch_env::LaunchEnv;
use domain::metadata::{ExecutorRecord, Map};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::privileged::{Grant, PrivilegedPolicy};
use super::template::{PodTemplate, lay_over};
use crate::backend::Launch;
use crate::config::SpiffeVolume;

/// The executor's container; identity entries name it (requirements §1.3).
pub(super) const CONTAINER: &str = "executor";
/// Its argument.
const ARGUMENT: &str = "executor";
pub(super) const IDENTITY_VOLUME: &str = "spire-agent-socket";
pub(super) const SECRET_VOLUME: &str = "capability";
pub(super) const HOME_VOLUME: &str = "home";
pub(super) const TMP_VOLUME: &str = "tmp";
/// Where our volumes are; nothing of a template may be below these.
pub(super) const SOCKETS: &str = "/run/spire/agent-sockets";
pub(super) const SECRETS: &str = "/run/gitea-dynamic-runner";
pub(super) const HOME: &str = "/home/runner";
pub(super) const TMP: &str = "/tmp";
const SOCKET: &str = "unix:///run/spire/agent-sockets/spire-agent.sock";
const KEY: &str = "capability";
/// What the executor needs for SIGTERM, the last report and the end of its runner (requirements §1.4, NEW-71).
const GRACE: i64 = 420;
/// The kubelet ends what outlives its run deadline by this (requirements §1.4).
const BACKSTOP: i64 = 600;

/// What is the same in every Pod.
pub(super) struct Recipe {
    pub(super) image: String,
    pub(super) service_account: String,
    pub(super) uid: u32,
    pub(super) volume: SpiffeVolume,
    pub(super) facade_url: String,
    pub(super) facade_spiffe_id: SpiffeId,
    pub(super) template: PodTemplate,
    pub(super) privileged: PrivilegedPolicy,
}

pub(super) fn name_of(record: &ExecutorRecord) -> String {
    executor_name(record.id, &record.instance, record.epoch)
}

/// The Pod; `now` is what its deadline is counted from.
///
/// # Errors
/// The template makes something of it that is no Pod, which its check at the start should have found.
pub(super) fn pod(
    launch: &Launch,
    recipe: &Recipe,
    grant: Option<&Grant>,
    now: Timestamp,
) -> Result<Pod, serde_json::Error> {
    let record = &launch.record;
    let mut value = recipe.template.value().clone();
    lay_over(&mut value, fixed(launch, recipe, now));
    if let Some(grant) = grant {
        lay_over(&mut value, privileges(grant));
    }
    let mut pod: Pod = serde_json::from_value(value)?;
    pod.metadata.name = Some(name_of(record));
    pod.metadata.labels.get_or_insert_default().extend(labels(record, CONTAINER));
    pod.metadata.annotations.get_or_insert_default().extend(record.annotations());
    Ok(pod)
}

fn labels(record: &ExecutorRecord, component: &str) -> Map {
    let mut labels = record.labels();
    labels.insert("app.kubernetes.io/name".to_owned(), "gitea-dynamic-runner".to_owned());
    labels.insert("app.kubernetes.io/component".to_owned(), component.to_owned());
    labels
}

fn fixed(launch: &Launch, recipe: &Recipe, now: Timestamp) -> Value {
    let left = launch.record.deadline.duration_since(now).as_secs().max(0);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"annotations": {
            // An autoscaler does not know that a job cannot be moved (NEW-77).
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "karpenter.sh/do-not-disrupt": "true",
        }},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": left + BACKSTOP,
            "terminationGracePeriodSeconds": GRACE,
            "serviceAccountName": recipe.service_account,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "hostNetwork": false,
            "hostPID": false,
            "hostIPC": false,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": recipe.uid,
                "runAsGroup": recipe.uid,
                "fsGroup": recipe.uid,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": volumes(&launch.record, recipe),
            "containers": [executor(launch, recipe)],
        },
    })
}

fn volumes(record: &ExecutorRecord, recipe: &Recipe) -> Value {
    let identity = match &recipe.volume {
        SpiffeVolume::Csi => json!({"name": IDENTITY_VOLUME, "csi": {"driver": "csi.spiffe.io", "readOnly": true}}),
        SpiffeVolume::HostPath(path) => {
            json!({"name": IDENTITY_VOLUME, "hostPath": {"path": path, "type": "Directory"}})
        }
    };
    json!([
        identity,
        // Files of a Secret belong to root, whatever is asked for: what is 0400 for its owner is for the executor's
        // group, which nobody else has, alone (NEW-72).
        {"name": SECRET_VOLUME, "secret": {"secretName": name_of(record), "defaultMode": 0o440}},
        {"name": HOME_VOLUME, "emptyDir": {}},
        {"name": TMP_VOLUME, "emptyDir": {}},
    ])
}

fn executor(launch: &Launch, recipe: &Recipe) -> Value {
    let env: Vec<Value> =
        env(launch, recipe).into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({
        "name": CONTAINER,
        "image": recipe.image,
        "args": [ARGUMENT],
        "env": env,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "privileged": false,
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": IDENTITY_VOLUME, "mountPath": SOCKETS, "readOnly": true},
            {"name": SECRET_VOLUME, "mountPath": SECRETS, "readOnly": true},
            {"name": HOME_VOLUME, "mountPath": HOME},
            {"name": TMP_VOLUME, "mountPath": TMP},
        ],
    })
}

fn env(launch: &Launch, recipe: &Recipe) -> Map {
    let record = &launch.record;
    let told = LaunchEnv {
        id: record.id,
        facade_url: recipe.facade_url.clone(),
        facade_spiffe_id: recipe.facade_spiffe_id.clone(),
        spiffe_id: record.spiffe_id.clone(),
        backend: record.backend,
        workload_socket: SOCKET.to_owned(),
        capability_file: Some(Path::new(SECRETS).join(KEY)),
        labels: launch.labels.clone(),
        deadline: record.deadline,
        runner_binary: None,
        runner_config: None,
    };
    let mut env = told.to_env();
    env.insert("HOME".to_owned(), HOME.to_owned());
    env.insert("TMPDIR".to_owned(), TMP.to_owned());
    env
}

/// What a privileged executor is beyond the others: root, with everything that goes with it (NEW-70).
fn privileges(grant: &Grant) -> Value {
    json!({"spec": {
        "nodeSelector": grant.node_selector,
        "securityContext": {"runAsNonRoot": false, "runAsUser": 0, "runAsGroup": 0, "seccompProfile": null},
        "containers": [{
            "name": CONTAINER,
            "securityContext": {"privileged": true, "allowPrivilegeEscalation": true, "capabilities": null},
        }],
    }})
}

/// The Secret of a Pod. It belongs to it, so it goes with it, whoever removes the Pod (NEW-64).
pub(super) fn secret(launch: &Launch, uid: &str) -> Secret {
    let name = name_of(&launch.record);
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: name.clone(),
        uid: uid.to_owned(),
        controller: Some(true),
        // It would need a right over Pods' finalizers.
        block_owner_deletion: Some(false),
    };
    let capability = launch.capability.expose().as_bytes().to_vec();
    Secret {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels(&launch.record, "capability")),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        data: Some([(KEY.to_owned(), ByteString(capability))].into()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests;
