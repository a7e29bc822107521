//! A controller's account with the rights of the shipped manifests, in roles of its own, and the rooms of a controller
//! that talk to the API as this account.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use controller::args::SettingsArgs;
use controller::backend::pod::PodBackend;
use controller::backend::{Backend as _, BackendError, Ensured, Launch};
use controller::config::raw::Raw;
use controller::config::{Config, Supplied, validate};
use controller::identity::entry::{BoundPod, IdentityIssuer, PodKey, issuer};
use controller::kubernetes::Cluster as Access;
use controller::lease::{KubernetesLease, Times};
use domain::capability::{Key, KeyRing};
use domain::id::{AssignmentId, Backend, Epoch, PayloadDigest, TaskId};
use domain::metadata::ExecutorRecord;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::kubernetes::Client;
use testkit::real::kubernetes::Cluster;
use testkit::real::{Seen, eventually};

use crate::manifests;
use crate::site::NAMESPACE;

/// Of controllers.
const HOME: &str = "gitea-runners";
/// What nobody's kubelet runs; it only has a name and a UID.
pub(crate) const NODE: &str = "node-a";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// For what the authorizer learns through a watch of its own.
const SOON: Duration = Duration::from_secs(30);

/// One verb on one kind of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) verb: String,
    /// Which role has it: `Role`, in the namespace of executors, or `ClusterRole`.
    pub(crate) role: &'static str,
}

/// Every right of the manifests.
pub(crate) fn rights() -> Vec<Right> {
    let mut rights = Vec::new();
    for role in ["Role", "ClusterRole"] {
        for rule in manifests::rules(role).as_array().unwrap() {
            let list = |key: &str| rule[key].as_array().unwrap().iter().map(|each| each.as_str().unwrap().to_owned());
            for (group, resource) in
                list("apiGroups").flat_map(|group| list("resources").map(move |r| (group.clone(), r)))
            {
                let right = |verb| Right { group: group.clone(), resource: resource.clone(), verb, role };
                rights.extend(list("verbs").map(right));
            }
        }
    }
    rights
}

/// The account, and what a controller of it is made of.
pub(crate) struct Seat {
    pub(crate) name: String,
    admin: Client,
    own: Client,
    config: Config,
    access: Access,
    _folder: TempDir,
}

impl Seat {
    /// An account of this name with all rights.
    pub(crate) async fn take(cluster: &Cluster, name: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = cluster.token(HOME, &name).await.unwrap();
        let settings = settings(folder.path(), cluster, &name, &token);
        let config = validate(&Raw::collect(&SettingsArgs::default(), settings.into_iter()), Supplied::default());
        let config = config.unwrap_or_else(|errors| panic!("{errors}"));
        let access = Access::connect(&config.pods.as_ref().unwrap().access, NAMESPACE).unwrap();
        let admin = cluster.admin().clone();
        let seat = Self { own: admin.with_token(&token), name, admin, config, access, _folder: folder };
        seat.bind_roles().await;
        seat.grant(None).await;
        seat
    }

    async fn bind_roles(&self) {
        let subject = json!({"kind": "ServiceAccount", "name": self.name, "namespace": HOME});
        for (role, path) in [("Role", self.roles("Role")), ("ClusterRole", self.roles("ClusterRole"))] {
            let metadata = json!({"name": self.name});
            self.made(&path, &json!({"metadata": metadata, "rules": []})).await;
            let of = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": self.name});
            let bindings = path.replace("roles", "rolebindings");
            self.made(&bindings, &json!({"metadata": metadata, "roleRef": of, "subjects": [subject]})).await;
        }
    }

    fn roles(&self, role: &str) -> String {
        if role == "Role" { format!("{RBAC}/namespaces/{NAMESPACE}/roles") } else { format!("{RBAC}/clusterroles") }
    }

    /// Makes an object as somebody who may do anything.
    pub(crate) async fn made(&self, path: &str, object: &Value) {
        self.admin.post(path, object).await.unwrap().object(path).unwrap();
    }

    /// Changes an object as somebody who may do anything.
    pub(crate) async fn changed(&self, path: &str, patch: &Value) {
        self.admin.patch(path, patch).await.unwrap().object(path).unwrap();
    }

    pub(crate) async fn seen(&self, path: &str) -> Value {
        self.admin.get(path).await.unwrap().body
    }

    /// Gives the account all rights but this one, and waits until the authorizer keeps to it.
    pub(crate) async fn grant(&self, without: Option<&Right>) {
        for role in ["Role", "ClusterRole"] {
            let mut rules = manifests::rules(role);
            for rule in rules.as_array_mut().unwrap() {
                let has = |key: &str, value: &str| rule[key].as_array().unwrap().contains(&value.into());
                let lacks = without.filter(|right| has("resources", &right.resource) && has("apiGroups", &right.group));
                if let Some(right) = lacks {
                    rule["verbs"].as_array_mut().unwrap().retain(|verb| verb != right.verb.as_str());
                }
            }
            // A rule without a verb is none.
            rules.as_array_mut().unwrap().retain(|rule| rule["verbs"] != json!([]));
            let path = format!("{}/{}", self.roles(role), self.name);
            self.changed(&path, &json!({"rules": rules})).await;
        }
        for right in rights() {
            let wanted = Some(&right) != without;
            eventually(&format!("{right:?}: {wanted}"), SOON, async || {
                let may = self.may(&right.group, &right.resource, &right.verb, right.role == "Role").await;
                Ok(if may == wanted { Seen::Done(()) } else { Seen::NotYet(may.to_string()) })
            })
            .await
            .unwrap();
        }
    }

    /// Whether the authorizer lets the account do this, in the namespace of executors or everywhere.
    pub(crate) async fn may(&self, group: &str, resource: &str, verb: &str, namespaced: bool) -> bool {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let namespace = if namespaced { NAMESPACE } else { "" };
        let asked = json!({"group": group, "resource": resource, "verb": verb, "namespace": namespace});
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked}});
        self.own.post(path, &review).await.unwrap().object(path).unwrap()["status"]["allowed"] == true
    }

    /// A controller's Pods, from its start.
    pub(crate) fn pods(&self) -> PodBackend {
        PodBackend::new(self.access.clone(), &self.config, self.issuer()).unwrap()
    }

    pub(crate) fn issuer(&self) -> Arc<dyn IdentityIssuer> {
        issuer(&self.config, self.access.clone()).unwrap()
    }

    /// With a length that a test can wait for.
    pub(crate) fn lease(&self) -> KubernetesLease {
        let [lease, renew_deadline, retry] = [2000, 1500, 100].map(Duration::from_millis);
        let times = Times { lease, renew_deadline, retry };
        KubernetesLease::new(self.access.clone(), &self.config.instance, "test").with_times(times)
    }

    /// The name of the Lease and of what [`Seat::launch`] makes.
    pub(crate) fn lease_name(&self) -> String {
        format!("dynamic-runner-scheduler-{}", self.name)
    }

    pub(crate) fn pod_name(&self) -> String {
        format!("gitea-task-7-{}-e1", self.name)
    }

    pub(crate) fn record(&self) -> ExecutorRecord {
        ExecutorRecord {
            id: AssignmentId::of(TaskId::try_from(7).unwrap()),
            instance: self.config.instance.clone(),
            backend: Backend::Pod,
            epoch: Epoch::FIRST,
            digest: PayloadDigest::of(b"task"),
            repository: "acme/app".parse().unwrap(),
            job_key: "build".parse().unwrap(),
            spiffe_id: "spiffe://td.test/ci/acme/app/build".parse().unwrap(),
            fetched_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            deadline: "2026-01-02T06:04:05Z".parse().unwrap(),
            claim: None,
            interrupted_at: None,
            steps: None,
            terminal: false,
        }
    }

    pub(crate) async fn ensure(&self, backend: &PodBackend) -> Result<Ensured, BackendError> {
        let record = self.record();
        let key = Key::new("k".repeat(32).as_bytes()).unwrap();
        let capability = KeyRing::new(key, None).issue(&record.instance, record.id, record.epoch, record.deadline);
        backend.ensure(Launch { labels: vec!["pod".to_owned()], record, capability }).await
    }

    /// A Pod on the node, as an entry is made for.
    pub(crate) fn bound(&self) -> BoundPod {
        let record = self.record();
        let key = PodKey { name: self.pod_name(), uid: "6d3a7a4e-0f3c-4a53-9c39-0a7d5f1f2c11".to_owned() };
        BoundPod { key, node: NODE.to_owned(), assignment: record.id, spiffe_id: record.spiffe_id }
    }
}

fn settings(folder: &Path, cluster: &Cluster, name: &str, token: &str) -> Vec<(String, String)> {
    let file = |name: &str, content: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let image = format!("registry.example.org/executor@sha256:{}", "a".repeat(64));
    [
        ("COMPONENTS", "scheduler,pod-worker".to_owned()),
        ("INSTANCE_ID", name.to_owned()),
        ("QUEUE", "embedded".to_owned()),
        ("STATE_DIR", folder.join("state").display().to_string()),
        ("IDENTITY_ISSUER", "workload-api".to_owned()),
        ("SPIFFE_ENDPOINT_SOCKET", "unix:///nobody".to_owned()),
        ("TRUST_DOMAIN", "td.test".to_owned()),
        ("GITEA_INSTANCE_URL", "http://127.0.0.1:1".to_owned()),
        ("GITEA_RUNNER_UUID_FILE", file("uuid", "8f3a7a4e-0f3c-4a53-9c39-0a7d5f1f2c11")),
        ("GITEA_RUNNER_TOKEN_FILE", file("token", &"a".repeat(40))),
        ("RUNNER_FACADE_URL", "https://127.0.0.1:8443".to_owned()),
        ("RUNNER_FACADE_SPIFFE_ID", "spiffe://td.test/facade".to_owned()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability", &"c".repeat(32))),
        ("ENVELOPE_KEY_FILE", file("envelope", &"e".repeat(32))),
        ("DEFAULT_BACKEND", "pod".to_owned()),
        ("POD_EXECUTOR_IMAGE", image),
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
        ("POD_SPIFFE_VOLUME", "hostpath:/nothing".to_owned()),
        ("SPIRE_CLASS", "testkit".to_owned()),
        ("SPIRE_CLUSTER", "testkit".to_owned()),
        ("KUBERNETES_API", cluster.url()),
        ("KUBERNETES_CA_FILE", file("ca.pem", cluster.ca_pem())),
        ("KUBERNETES_TOKEN_FILE", file("kubernetes-token", token)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
