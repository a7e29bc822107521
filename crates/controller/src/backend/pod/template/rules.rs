//! What a template may not touch (NEW-68): each rule with its place and its reason.

use domain::metadata::PREFIX;
use serde_json::Value;

use super::super::object::{
    CONTAINER, HOME, HOME_VOLUME, IDENTITY_VOLUME, SECRET_VOLUME, SECRETS, SOCKETS, TMP, TMP_VOLUME,
};

const FIXED: &str = "it is fixed";
const HOST: &str = "no job has a part of its node";
const OURS: &str = "it is ours";

/// Places, and why nothing may stand there.
const FORBIDDEN: &[(&str, &str)] = &[
    ("spec.restartPolicy", FIXED),
    ("spec.activeDeadlineSeconds", "it follows from RUN_LIMIT"),
    ("spec.terminationGracePeriodSeconds", FIXED),
    ("spec.serviceAccountName", "set POD_SERVICE_ACCOUNT"),
    ("spec.serviceAccount", "set POD_SERVICE_ACCOUNT"),
    ("spec.automountServiceAccountToken", FIXED),
    ("spec.enableServiceLinks", FIXED),
    ("spec.hostNetwork", HOST),
    ("spec.hostPID", HOST),
    ("spec.hostIPC", HOST),
    ("spec.nodeName", "use nodeSelector or affinity"),
    ("spec.shareProcessNamespace", "the executor must be the first process of its container"),
    ("spec.schedulingGates", "nobody would take them away"),
    ("spec.ephemeralContainers", "they are not for templates"),
    ("spec.securityContext.runAsUser", "set POD_EXECUTOR_UID"),
    ("spec.securityContext.runAsGroup", "set POD_EXECUTOR_UID"),
    ("spec.securityContext.runAsNonRoot", FIXED),
    ("spec.securityContext.fsGroup", "set POD_EXECUTOR_UID"),
    ("spec.securityContext.seccompProfile", FIXED),
    ("spec.securityContext.windowsOptions", FIXED),
    ("spec.securityContext.sysctls", HOST),
];

/// What the executor's own container may have from a template.
const OF_EXECUTOR: &[&str] =
    &["name", "resources", "env", "envFrom", "volumeMounts", "volumeDevices", "imagePullPolicy", "securityContext"];
/// What any container's security context may have from a template: what narrows it further.
const NARROWING: &[&str] = &["readOnlyRootFilesystem", "seLinuxOptions", "appArmorProfile"];
/// For containers beside the executor also a user, who is not root.
const OF_OTHERS: &[&str] = &["runAsUser", "runAsGroup"];
/// Annotations that we set.
const ANNOTATIONS: &[&str] = &["cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"];
const LABELS: &[&str] = &["app.kubernetes.io/name", "app.kubernetes.io/component"];
/// Annotations that set a container's AppArmor profile, as Kubernetes before 1.30 had it; the API server still heeds them.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Sources of a projected volume that make their reader the service account of the Pod (F67).
const CREDENTIALS: &[&str] = &["serviceAccountToken", "podCertificate"];

/// Adds every fault of the template.
pub(super) fn check(template: &Value, problems: &mut Vec<String>) {
    for (place, why) in FORBIDDEN {
        if template.pointer(&format!("/{}", place.replace('.', "/"))).is_some_and(|value| !value.is_null()) {
            problems.push(format!("{place}: {why}; take it out"));
        }
    }
    if template.pointer("/spec/hostUsers") == Some(&Value::Bool(true)) {
        problems.push(
            "spec.hostUsers: true would let root of a container be root of its node; set it to false, or take it out"
                .to_owned(),
        );
    }
    metadata(template, problems);
    if let Some(context) = template.pointer("/spec/securityContext") {
        confinement(context, "spec.securityContext", problems);
    }
    volumes(template, problems);
    for list in ["containers", "initContainers"] {
        let containers = template.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            let name = text(container, "name");
            let place = format!("spec.{list}[{name}]");
            if list == "containers" && name == CONTAINER {
                executor(container, &place, problems)
            } else {
                other(container, &place, problems)
            }
            mounts(container, &place, problems);
        }
    }
}

fn metadata(template: &Value, problems: &mut Vec<String>) {
    let fields = template.get("metadata").and_then(Value::as_object);
    for (field, value) in fields.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let ours = match field.as_str() {
            "labels" => LABELS,
            "annotations" => ANNOTATIONS,
            _ => {
                problems.push(format!("metadata.{field}: a template has labels and annotations only; take it out"));
                continue;
            }
        };
        for key in value.as_object().into_iter().flatten().map(|(key, _)| key) {
            if key.starts_with(PREFIX) || ours.contains(&key.as_str()) {
                problems.push(format!("metadata.{field}.{key}: {OURS}; take it out"));
            }
            if field == "annotations" && key.starts_with(APPARMOR) {
                problems.push(format!("metadata.{field}.{key}: use securityContext.appArmorProfile; take it out"));
            }
        }
    }
}

fn volumes(template: &Value, problems: &mut Vec<String>) {
    for volume in list(template, "/spec/volumes") {
        let name = text(volume, "name");
        let place = format!("spec.volumes[{name}]");
        if [IDENTITY_VOLUME, SECRET_VOLUME].contains(&name) {
            problems.push(format!("{place}: {OURS}; give yours another name"));
        }
        let has_more = fields(volume).any(|field| !["name", "emptyDir"].contains(&field));
        if [HOME_VOLUME, TMP_VOLUME].contains(&name) && has_more {
            problems.push(format!("{place}: {OURS}; it may have an emptyDir with a medium and a sizeLimit only"));
        }
        if fields(volume).any(|field| field == "hostPath") {
            problems.push(format!("{place}.hostPath: {HOST}; use a persistentVolumeClaim or an emptyDir"));
        }
        let credentials = list(volume, "/projected/sources").flat_map(fields);
        for source in credentials.filter(|source| CREDENTIALS.contains(source)) {
            problems.push(format!(
                "{place}.projected.{source}: no job is a service account towards the cluster; take it out"
            ));
        }
    }
}

fn executor(container: &Value, place: &str, problems: &mut Vec<String>) {
    for field in fields(container).filter(|field| !OF_EXECUTOR.contains(field)) {
        problems.push(format!("{place}.{field}: {FIXED}; take it out"));
    }
    for variable in list(container, "/env") {
        let name = text(variable, "name");
        let ours = name.starts_with("CI_") || ["SPIFFE_ENDPOINT_SOCKET", "HOME", "TMPDIR"].contains(&name);
        if ours {
            problems.push(format!("{place}.env[{name}]: {OURS}; take it out"));
        }
    }
    security(container, place, &[], problems);
}

fn other(container: &Value, place: &str, problems: &mut Vec<String>) {
    security(container, place, OF_OTHERS, problems);
    if container.pointer("/securityContext/runAsUser").and_then(Value::as_i64) == Some(0) {
        problems.push(format!("{place}.securityContext.runAsUser: 0 is root; choose another user"));
    }
    if container.pointer("/securityContext/runAsGroup").and_then(Value::as_i64) == Some(0) {
        problems.push(format!("{place}.securityContext.runAsGroup: 0 is the group of root; choose another"));
    }
    for port in list(container, "/ports").filter(|port| port.get("hostPort").is_some()) {
        problems.push(format!("{place}.ports[{}].hostPort: {HOST}; take it out", text(port, "name")));
    }
}

fn security(container: &Value, place: &str, more: &[&str], problems: &mut Vec<String>) {
    let Some(context) = container.get("securityContext") else { return };
    for field in fields(context).filter(|field| !NARROWING.contains(field) && !more.contains(field)) {
        problems
            .push(format!("{place}.securityContext.{field}: {FIXED}; privileged Pods are for PRIVILEGED_POLICY_FILE"));
    }
    confinement(context, &format!("{place}.securityContext"), problems);
}

/// The fields that may narrow a job further must not widen what it may do (NEW-69).
fn confinement(context: &Value, place: &str, problems: &mut Vec<String>) {
    if context.pointer("/appArmorProfile/type").and_then(Value::as_str) == Some("Unconfined") {
        problems.push(format!(
            "{place}.appArmorProfile: Unconfined takes AppArmor away; use RuntimeDefault or Localhost, or take it out"
        ));
    }
    let options = context.get("seLinuxOptions").into_iter().flat_map(fields);
    for option in options.filter(|option| *option != "level") {
        problems.push(format!(
            "{place}.seLinuxOptions.{option}: it decides what SELinux lets a job do; set a level only, or take it out"
        ));
    }
    if list(context, "/supplementalGroups").any(|group| group.as_i64() == Some(0)) {
        problems.push(format!("{place}.supplementalGroups: 0 is the group of root; choose another"));
    }
}

/// Nobody sees what is ours, or hides it.
fn mounts(container: &Value, place: &str, problems: &mut Vec<String>) {
    for mount in list(container, "/volumeMounts") {
        let (name, path) = (text(mount, "name"), text(mount, "mountPath"));
        let place = format!("{place}.volumeMounts[{path}]");
        if [IDENTITY_VOLUME, SECRET_VOLUME].contains(&name) {
            problems.push(format!("{place}: the volume {name} is ours; take it out"));
        }
        // A runtime cleans the path before it mounts there.
        let path: String =
            path.split('/').filter(|part| !["", "."].contains(part)).map(|part| format!("/{part}")).collect();
        let path = format!("{path}/");
        let near = |ours: &str| path.starts_with(&format!("{ours}/")) || format!("{ours}/").starts_with(&path);
        let at = |ours: &str| format!("{ours}/").starts_with(&path);
        if path.contains("/../") || near(SOCKETS) || near(SECRETS) || at(HOME) || at(TMP) {
            problems.push(format!(
                "{place}: one of {SOCKETS}, {SECRETS}, {HOME} and {TMP} would be hidden; mount it elsewhere"
            ));
        }
    }
}

fn fields(value: &Value) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(field, _)| field.as_str())
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
