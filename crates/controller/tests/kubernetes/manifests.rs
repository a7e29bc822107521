//! The shipped manifests, as the real API server takes them.

use serde_json::Value;
use testkit::kubernetes::Client;

const MANIFESTS: &str = include_str!("../../../../packaging/kubernetes/hostpath.yaml");

/// Where objects of a kind are made; none for kinds of others, which this cluster does not have.
fn collection(object: &Value) -> Option<String> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let of = |group: &str, plural: &str| format!("/apis/{group}/namespaces/{namespace}/{plural}");
    Some(match object["kind"].as_str().unwrap_or_default() {
        "Namespace" => "/api/v1/namespaces".to_owned(),
        "ServiceAccount" => core("serviceaccounts"),
        "ConfigMap" => core("configmaps"),
        "Service" => core("services"),
        "Role" => of("rbac.authorization.k8s.io/v1", "roles"),
        "RoleBinding" => of("rbac.authorization.k8s.io/v1", "rolebindings"),
        "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        "ClusterRoleBinding" => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        "NetworkPolicy" => of("networking.k8s.io/v1", "networkpolicies"),
        "PodDisruptionBudget" => of("policy/v1", "poddisruptionbudgets"),
        "Deployment" => of("apps/v1", "deployments"),
        "ClusterSPIFFEID" => return None,
        kind => panic!("no test knows where a {kind} is made"),
    })
}

/// The rules of the only object of this kind, `Role` or `ClusterRole`.
pub(crate) fn rules(kind: &str) -> Value {
    let objects = MANIFESTS.split("\n---\n").filter(|text| text.contains("rules:"));
    let objects = objects.map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let mut found: Vec<Value> = objects.filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found.remove(0)["rules"].take()
}

/// Makes every object of the manifests; the controllers themselves run on this machine, so that there are none of them.
pub(crate) async fn apply(client: &Client) {
    for text in MANIFESTS.split("\n---\n").filter(|text| text.contains("kind:")) {
        let mut object: Value = serde_saphyr::from_str(text).unwrap();
        let Some(path) = collection(&object) else { continue };
        if object["kind"] == "Deployment" {
            object["spec"]["replicas"] = 0.into();
        }
        let path = format!("{path}?fieldValidation=Strict");
        let reply = client.post(&path, &object).await.unwrap();
        assert!(reply.status == 201 || reply.status == 409, "{path}: {} {}\n{text}", reply.status, reply.body);
    }
}
