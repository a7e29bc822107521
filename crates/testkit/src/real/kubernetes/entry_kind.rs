//! The custom resource ClusterStaticEntry as spire-controller-manager declares it: types, and no further checks.

use serde_json::{Value, json};

/// Its CustomResourceDefinition.
pub(super) fn definition() -> Value {
    let (text, flag) = (json!({"type": "string"}), json!({"type": "boolean"}));
    let list = json!({"type": "array", "items": text});
    let spec = json!({
        "type": "object", "required": ["spiffeID", "parentID", "selectors"],
        "properties": {
            "spiffeID": text, "parentID": text, "selectors": list, "federatesWith": list, "dnsNames": list,
            "className": text, "hint": text, "x509SVIDTTL": text, "jwtSVIDTTL": text,
            "admin": flag, "downstream": flag, "storeSVID": flag,
        },
    });
    let status = json!({
        "type": "object", "required": ["rendered", "masked", "set"],
        "properties": {"rendered": flag, "masked": flag, "set": flag},
    });
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    });
    json!({
        "metadata": {"name": "clusterstaticentries.spire.spiffe.io"},
        "spec": {
            "group": "spire.spiffe.io", "scope": "Cluster", "versions": [version],
            "names": {
                "kind": "ClusterStaticEntry", "listKind": "ClusterStaticEntryList",
                "plural": "clusterstaticentries", "singular": "clusterstaticentry",
            },
        },
    })
}
