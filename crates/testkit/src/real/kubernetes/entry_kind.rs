//! The custom resources of spire-controller-manager that are used here, as it declares them: types, and no further checks.

use serde_json::{Value, json};

/// Their CustomResourceDefinitions.
pub(super) fn definitions() -> [Value; 2] {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let list = json!({"type": "array", "items": text});
    let entry = json!({
        "type": "object", "required": ["spiffeID", "parentID", "selectors"],
        "properties": {
            "spiffeID": text, "parentID": text, "selectors": list, "federatesWith": list, "dnsNames": list,
            "className": text, "hint": text, "x509SVIDTTL": text, "jwtSVIDTTL": text,
            "admin": flag, "downstream": flag, "storeSVID": flag,
        },
    });
    let said = json!({
        "type": "object", "required": ["rendered", "masked", "set"],
        "properties": {"rendered": flag, "masked": flag, "set": flag},
    });
    let selector = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let workload = json!({
        "type": "object", "required": ["spiffeIDTemplate"],
        "properties": {
            "spiffeIDTemplate": text, "className": text, "hint": text, "namespaceSelector": selector,
            "podSelector": selector, "workloadSelectorTemplates": list, "dnsNameTemplates": list,
            "federatesWith": list, "ttl": text, "jwtTtl": text, "admin": flag, "downstream": flag, "fallback": flag,
        },
    });
    [
        definition(["ClusterStaticEntry", "clusterstaticentries", "clusterstaticentry"], &entry, &said),
        definition(["ClusterSPIFFEID", "clusterspiffeids", "clusterspiffeid"], &workload, &selector),
    ]
}

fn definition([kind, plural, singular]: [&str; 3], spec: &Value, status: &Value) -> Value {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    });
    let names = json!({"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular});
    json!({
        "metadata": {"name": format!("{plural}.spire.spiffe.io")},
        "spec": {"group": "spire.spiffe.io", "scope": "Cluster", "versions": [version], "names": names},
    })
}
