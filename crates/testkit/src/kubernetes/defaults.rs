//! What the server fills into objects that leave it out.

use serde_json::{Value, json};

use super::meta::{self, table, text};
use super::resource::Resource;

/// Fills the defaults of a resource.
pub(crate) fn fill(resource: Resource, object: &mut Value) {
    match resource {
        Resource::Pods => pod(object),
        Resource::Secrets => secret(object),
        Resource::ClusterStaticEntries => known_fields(object),
        // What is used is counted when it matters; nobody reads it here.
        Resource::ResourceQuotas => {
            let hard = object["spec"]["hard"].clone();
            object["status"] = json!({"hard": hard, "used": {}});
        }
        Resource::Namespaces => {
            default(object, "spec", json!({"finalizers": ["kubernetes"]}));
            default(object, "status", json!({"phase": "Active"}));
        }
        _ => {}
    }
}

fn default(object: &mut Value, key: &str, value: Value) {
    if object.get(key).is_none_or(Value::is_null) {
        object[key] = value;
    }
}

fn pod(pod: &mut Value) {
    let spec = table(pod, "spec");
    default(spec, "restartPolicy", "Always".into());
    default(spec, "terminationGracePeriodSeconds", 30.into());
    default(spec, "dnsPolicy", "ClusterFirst".into());
    default(spec, "schedulerName", "default-scheduler".into());
    default(spec, "securityContext", json!({}));
    default(spec, "enableServiceLinks", true.into());
    default(spec, "serviceAccountName", "default".into());
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    default(spec, "priority", 0.into());
    default(spec, "preemptionPolicy", "PreemptLowerPriority".into());
    let unreached = |taint: &str| {
        json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300})
    };
    default(spec, "tolerations", json!([unreached("not-ready"), unreached("unreachable")]));
    for list in ["initContainers", "containers"] {
        spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(container);
    }
    default(pod, "status", json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

fn container(container: &mut Value) {
    let image = text(container, "/image");
    let last = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" }.into());
    default(container, "resources", json!({}));
    default(container, "terminationMessagePath", "/dev/termination-log".into());
    default(container, "terminationMessagePolicy", "File".into());
}

/// `stringData` is written into `data` and not kept.
fn secret(secret: &mut Value) {
    use base64::Engine as _;
    default(secret, "type", "Opaque".into());
    if let Some(Value::Object(plain)) = meta::strip(secret, "stringData") {
        let data = table(secret, "data");
        for (key, value) in plain {
            let value = value.as_str().unwrap_or_default();
            data[key] = base64::engine::general_purpose::STANDARD.encode(value).into();
        }
    }
    if secret.get("data") == Some(&json!({})) {
        meta::strip(secret, "data");
    }
}

/// What the schema of the custom resource does not know is dropped without a word.
fn known_fields(entry: &mut Value) {
    const SPEC: [&str; 12] = [
        "spiffeID",
        "parentID",
        "selectors",
        "federatesWith",
        "dnsNames",
        "className",
        "hint",
        "x509SVIDTTL",
        "jwtSVIDTTL",
        "admin",
        "downstream",
        "storeSVID",
    ];
    if let Some(entry) = entry.as_object_mut() {
        entry.retain(|key, _| ["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str()));
    }
    if let Some(spec) = entry.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| SPEC.contains(&key.as_str()));
    }
}
