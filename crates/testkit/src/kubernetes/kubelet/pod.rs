//! What the status of a Pod says in each state.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kubernetes::meta::{self, table, text};

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl End {
    /// With an exit code of its own.
    pub(crate) fn exit(code: i32) -> Self {
        let reason = if code == 0 { "Completed" } else { "Error" };
        Self { code, reason: reason.to_owned(), message: String::new() }
    }

    pub(crate) fn because(code: i32, reason: &str, message: &str) -> Self {
        Self { code, reason: reason.to_owned(), message: message.to_owned() }
    }
}

fn now() -> Value {
    meta::time(Timestamp::now()).into()
}

/// Sets a condition; its time moves only when its status does.
pub(crate) fn condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str) {
    let conditions = &mut table(object, "status")["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(list) = conditions else { return };
    let mut new = json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": now()});
    for (key, value) in [("reason", reason), ("message", message)] {
        if !value.is_empty() {
            new[key] = value.into();
        }
    }
    match list.iter_mut().find(|each| each["type"] == kind) {
        Some(old) => {
            if old["status"] == new["status"] {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
        None => list.push(new),
    }
}

pub(crate) fn scheduled(pod: &mut Value, node: &str) {
    table(pod, "spec")["nodeName"] = node.into();
    condition(pod, "PodScheduled", "True", "", "");
}

pub(crate) fn unschedulable(pod: &mut Value, message: &str) {
    condition(pod, "PodScheduled", "False", "Unschedulable", message);
}

/// The kubelet has it, and its containers wait for this reason.
pub(crate) fn waiting(pod: &mut Value, reason: &str, message: &str) {
    begin(pod);
    condition(pod, "Initialized", "True", "", "");
    unready(pod, "ContainersNotReady", "containers with unready status: [executor]");
    let mut state = json!({"waiting": {"reason": reason}});
    if !message.is_empty() {
        state["waiting"]["message"] = message.into();
    }
    containers(pod, &state, false);
}

pub(crate) fn running(pod: &mut Value, address: &str) {
    begin(pod);
    let status = table(pod, "status");
    status["phase"] = "Running".into();
    status["podIP"] = address.into();
    status["podIPs"] = json!([{"ip": address}]);
    condition(pod, "Initialized", "True", "", "");
    condition(pod, "PodReadyToStartContainers", "True", "", "");
    condition(pod, "ContainersReady", "True", "", "");
    condition(pod, "Ready", "True", "", "");
    containers(pod, &json!({"running": {"startedAt": now()}}), true);
}

/// The container has ended; the phase does not say so yet.
pub(crate) fn terminated(pod: &mut Value, end: &End) {
    begin(pod);
    let started = pod.pointer("/status/containerStatuses/0/state/running/startedAt").cloned();
    let mut state = json!({"terminated": {
        "exitCode": end.code, "reason": end.reason, "startedAt": started.unwrap_or(Value::Null), "finishedAt": now(),
        "containerID": "containerd://double",
    }});
    if !end.message.is_empty() {
        state["terminated"]["message"] = end.message.as_str().into();
    }
    containers(pod, &state, false);
}

/// The phase that its containers' ends amount to; it is never taken back.
pub(crate) fn finished(pod: &mut Value, end: &End) {
    let failed = end.code != 0 || !text(pod, "/status/reason").is_empty();
    let status = table(pod, "status");
    status["phase"] = if failed { "Failed" } else { "Succeeded" }.into();
    let reason = if failed { "PodFailed" } else { "PodCompleted" };
    unready(pod, reason, "");
}

/// Why the Pod as a whole was ended.
pub(crate) fn because(pod: &mut Value, reason: &str, message: &str) {
    let status = table(pod, "status");
    status["reason"] = reason.into();
    status["message"] = message.into();
}

pub(crate) fn unready(pod: &mut Value, reason: &str, message: &str) {
    condition(pod, "Ready", "False", reason, message);
    condition(pod, "ContainersReady", "False", reason, message);
}

/// Whether its container ran, or runs.
pub(crate) fn has_started(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running"
}

pub(crate) fn has_ended(pod: &Value) -> bool {
    ["Failed", "Succeeded"].contains(&text(pod, "/status/phase"))
}

fn begin(pod: &mut Value) {
    let status = table(pod, "status");
    if status.get("startTime").is_none() {
        status["startTime"] = now();
        status["hostIP"] = "127.0.0.1".into();
        status["hostIPs"] = json!([{"ip": "127.0.0.1"}]);
    }
}

/// All containers share one fate here.
fn containers(pod: &mut Value, state: &Value, ready: bool) {
    let of = |container: &Value| {
        json!({
            "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
            "ready": ready, "started": ready, "lastState": {}, "state": state,
        })
    };
    let list: Vec<_> = pod["spec"]["containers"].as_array().into_iter().flatten().map(of).collect();
    table(pod, "status")["containerStatuses"] = list.into();
}
