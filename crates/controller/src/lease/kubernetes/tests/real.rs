//! The Lease on a real API server, with the rights of the shipped manifests and no others.

use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::config::ClusterAccess;
use crate::lease::contract;

const MANIFESTS: &str = include_str!("../../../../../../packaging/kubernetes/hostpath.yaml");
/// Of controllers.
const ACCOUNT: &str = "contender";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";

/// An API server, and how the account reaches it.
struct Real {
    server: testkit::real::kubernetes::Cluster,
    access: ClusterAccess,
    _folder: TempDir,
}

impl Real {
    async fn start() -> Self {
        let mut server = testkit::real::kubernetes::Cluster::start_without_node().await.unwrap();
        server.namespace(NAMESPACE).await.unwrap();
        let token = server.token(NAMESPACE, ACCOUNT).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let api = Some(server.url().parse().unwrap());
        let access = ClusterAccess { api, ca: file("ca.pem", server.ca_pem()), token: file("token", &token) };
        let real = Self { server, access, _folder: folder };
        real.grant().await;
        real
    }

    /// Gives the account what the manifests give to a controller in the namespace of executors. The authorizer learns of it
    /// a moment later, which a contender bears.
    async fn grant(&self) {
        let roles = MANIFESTS.split("\n---\n").filter(|text| text.contains("\nkind: Role\n"));
        let role: Value = serde_saphyr::from_str(roles.last().unwrap()).unwrap();
        let metadata = json!({"name": ACCOUNT});
        let of = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT});
        let subject = json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE});
        self.made("roles", &json!({"metadata": metadata, "rules": role["rules"]})).await;
        self.made("rolebindings", &json!({"metadata": metadata, "roleRef": of, "subjects": [subject]})).await;
    }

    async fn made(&self, kind: &str, object: &Value) {
        let path = format!("{RBAC}/{NAMESPACE}/{kind}");
        self.server.admin().post(&path, object).await.unwrap().object(&path).unwrap();
    }

    /// A replica with a connection of its own.
    fn contender(&self, name: &str, place: Option<&str>) -> Arc<dyn Leadership> {
        let cluster = Cluster::connect(&self.access, NAMESPACE).unwrap();
        Arc::new(KubernetesLease::new(cluster, &name.parse().unwrap(), "same").at(place).with_times(LONG))
    }

    /// The Lease of this name.
    async fn object(&self, name: &str) -> Value {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}");
        self.server.admin().get(&path).await.unwrap().object(&path).unwrap()
    }
}

/// NEW-59, NEW-60, SCH-10, NEW-78, F48, F50, T16: what every leadership keeps, and that a place is known again; two that
/// begin at once are one leader, and what is written is the object that every tool shows.
#[tokio::test]
#[ignore = "needs a real Kubernetes: cargo xtask test --only kubernetes"]
async fn keeps_the_contract_on_a_real_api_server() {
    let real = Real::start().await;
    contract::all(async |name: &str| real.contender(name, None)).await;
    contract::places(async |name: &str, place: Option<&str>| real.contender(name, place)).await;
    one_of_many_leads(&real).await;
}

/// All find nothing, and all write at once.
async fn one_of_many_leads(real: &Real) {
    let contenders: Vec<_> = (0..8).map(|_| real.contender("many", None)).collect();
    let all = contenders.iter().map(|contender| timeout(Duration::from_secs(5), contender.acquire()));
    let held: Vec<Held> = futures::future::join_all(all).await.into_iter().flatten().flatten().collect();
    assert_eq!(held.len(), 1);
    still_leads(&held[0].tenure());
    let spec = real.object("dynamic-runner-scheduler-many").await["spec"].clone();
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(60), &json!(0)), "{spec}");
    assert!(spec["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with("same")), "{spec}");
}
