//! What the committed manifests say; that they are what the chart renders is a check of `cargo xtask test`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn yaml(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The objects of one rendering.
struct Manifests(Vec<Value>);

impl Manifests {
    fn of(variant: &str) -> Self {
        Self(yaml(&manifest(&root(), variant)))
    }

    fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    #[track_caller]
    fn one<'a>(&'a self, kind: &'a str, name: &str) -> &'a Value {
        let mut found = self.all(kind).filter(|object| object["metadata"]["name"] == name);
        let one = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
        assert!(found.next().is_none(), "{kind} {name} twice");
        one
    }

    fn pod(&self) -> &Value {
        &self.one("Deployment", RELEASE)["spec"]["template"]["spec"]
    }

    fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        let env = self.pod()["containers"][0]["env"].as_array().unwrap();
        env.iter().map(|variable| (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap()))
    }
}

fn each(look: impl Fn(&str, &Manifests)) {
    VARIANTS.into_iter().for_each(|variant| look(variant, &Manifests::of(variant)));
}

/// What comes back when Kubernetes' own types have read an object.
fn read_as<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let read: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
    serde_json::to_value(read).unwrap()
}

/// The places of `object` that are not in `known`.
fn lost(object: &Value, known: &Value, at: &str) -> Vec<String> {
    match (object, known) {
        (Value::Object(fields), _) => {
            let given = fields.iter().filter(|(_, value)| !value.is_null());
            given.flat_map(|(name, value)| lost(value, &known[name], &format!("{at}.{name}"))).collect()
        }
        (Value::Array(items), Value::Array(_)) => {
            items.iter().enumerate().flat_map(|(n, item)| lost(item, &known[n], &format!("{at}[{n}]"))).collect()
        }
        _ if object == known => Vec::new(),
        _ => vec![at.to_owned()],
    }
}

/// NEW-146: every field of every object is one that Kubernetes has, in its place and of its type.
#[test]
fn every_field_is_known() {
    each(|variant, manifests| {
        for object in &manifests.0 {
            let kind = object["kind"].as_str().unwrap();
            let known = match kind {
                "ClusterRole" => read_as::<ClusterRole>(object),
                "ClusterRoleBinding" => read_as::<ClusterRoleBinding>(object),
                "ConfigMap" => read_as::<ConfigMap>(object),
                "Deployment" => read_as::<Deployment>(object),
                "Namespace" => read_as::<Namespace>(object),
                "NetworkPolicy" => read_as::<NetworkPolicy>(object),
                "PodDisruptionBudget" => read_as::<PodDisruptionBudget>(object),
                "Role" => read_as::<Role>(object),
                "RoleBinding" => read_as::<RoleBinding>(object),
                "Service" => read_as::<Service>(object),
                "ServiceAccount" => read_as::<ServiceAccount>(object),
                // SPIRE's.
                "ClusterSPIFFEID" => object.clone(),
                _ => panic!("{kind} is no kind that is expected here"),
            };
            assert_eq!(lost(object, &known, kind), Vec::<String>::new(), "{variant}");
        }
    });
}

/// NEW-78, F154, T77: what is bound is the one list of rights and no more; executors have none and no token.
#[test]
fn rights_are_the_list() {
    let list = yaml(&root().join(CHART).join("files/rights.yaml")).remove(0);
    each(|_, manifests| {
        let role = manifests.one("Role", RELEASE);
        assert_eq!(role["rules"], list["namespaced"]);
        assert_eq!(role["metadata"]["namespace"], "gitea-actions");
        let everywhere: Vec<Value> =
            ["nodes", "entries"].iter().flat_map(|part| list[part].as_array().unwrap().clone()).collect();
        let name = format!("{RELEASE}-{NAMESPACE}");
        assert_eq!(manifests.one("ClusterRole", &name)["rules"], json!(everywhere));
        for binding in [manifests.one("RoleBinding", RELEASE), manifests.one("ClusterRoleBinding", &name)] {
            let ours = json!([{ "kind": "ServiceAccount", "name": RELEASE, "namespace": NAMESPACE }]);
            assert_eq!(binding["subjects"], ours);
        }
        assert_eq!(manifests.all("Role").count() + manifests.all("ClusterRole").count(), 2);
        assert!(manifests.all("ServiceAccount").all(|account| account["automountServiceAccountToken"] == false));
        assert_eq!(manifests.pod()["automountServiceAccountToken"], true);
    });
    let verbs = list.as_object().unwrap().values().flat_map(|rules| rules.as_array().unwrap());
    assert!(verbs.flat_map(|rule| rule["verbs"].as_array().unwrap()).all(|verb| verb != "*"));
}

/// NEW-77, NEW-146, NEW-59: two replicas, one of them ready; drains move the leader, one at a time, and are never held up
/// for good; an orderly end has its time.
#[test]
fn replicas_probes_and_disruptions() {
    each(|_, manifests| {
        let deployment = &manifests.one("Deployment", RELEASE)["spec"];
        assert_eq!(deployment["replicas"], 2);
        let rolling = json!({ "maxUnavailable": "100%", "maxSurge": 0 });
        assert_eq!(deployment["strategy"]["rollingUpdate"], rolling);
        let budget = &manifests.one("PodDisruptionBudget", RELEASE)["spec"];
        assert_eq!(
            (&budget["minAvailable"], &budget["unhealthyPodEvictionPolicy"]),
            (&0.into(), &"IfHealthyBudget".into())
        );
        assert_eq!(budget["selector"], deployment["selector"]);
        let pod = manifests.pod();
        assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 115);
        assert_eq!(pod["topologySpreadConstraints"][0]["topologyKey"], "kubernetes.io/hostname");
        let container = &pod["containers"][0];
        assert_eq!(container["readinessProbe"]["tcpSocket"]["port"], "facade");
        assert_eq!(container["livenessProbe"]["httpGet"], json!({ "path": "/livez", "port": "ops" }));
        assert!(manifests.environment().any(|variable| variable == ("LEADER_ELECTION", "kubernetes")));
    });
}

/// IMG-1, NEW-70, F66: the controller's container may do nothing that it need not.
#[test]
fn the_controller_is_confined() {
    each(|_, manifests| {
        let (pod, container) = (manifests.pod(), &manifests.pod()["containers"][0]);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["runAsUser"], 65532);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let confined = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
        });
        assert_eq!(container["securityContext"], confined);
        assert!(["hostNetwork", "hostPID", "hostIPC"].iter().all(|share| pod[share].is_null()));
        let writable = container["volumeMounts"].as_array().unwrap().iter().filter(|mount| mount["readOnly"] != true);
        assert_eq!(writable.count(), 0);
    });
}

/// NEW-70, F66: beside a job the controller runs only where there is no other node.
#[test]
fn the_controller_keeps_off_jobs() {
    each(|_, manifests| {
        let jobs =
            json!({ "app.kubernetes.io/name": "gitea-dynamic-runner", "app.kubernetes.io/component": "executor" });
        let term = json!({
            "topologyKey": "kubernetes.io/hostname", "namespaces": ["gitea-actions"],
            "labelSelector": { "matchLabels": jobs },
        });
        let apart = json!({
            "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100, "podAffinityTerm": term }],
        });
        assert_eq!(manifests.pod()["affinity"], json!({ "podAntiAffinity": apart }));
    });
}

/// NEW-130, F150: alerts and dashboard ask for metrics that the program has; that nothing is fetched is a fault only while
/// there is room.
#[test]
fn alerts_fit_the_metrics() {
    let source = std::fs::read_to_string(root().join("crates/controller/src/ops/metrics.rs")).unwrap();
    for file in ["alerts.yaml", "dashboard.json"] {
        let text = std::fs::read_to_string(root().join(CHART).join("files").join(file)).unwrap();
        for metric in text.split("gdr_").skip(1) {
            let name: String = metric.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            let base = ["_total", "_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(source.contains(&format!("{:?}", base.unwrap_or(&name))), "{file}: gdr_{name}");
        }
    }
    let alerts = yaml(&root().join(CHART).join("files/alerts.yaml")).remove(0);
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let silent = rules.iter().find(|rule| rule["alert"] == "GiteaDynamicRunnerFetchesNothing").unwrap();
    assert!(
        silent["expr"]
            .as_str()
            .unwrap()
            .contains(r#"and on (namespace) sum by (namespace) (gdr_slots{kind="free"}) >"#)
    );
}

/// NEW-78, POD-11: with the CSI driver nothing on the node is mounted and the strictest level holds; with a host path the
/// namespaces say so.
#[test]
fn the_volume_decides_pod_security() {
    each(|variant, manifests| {
        let (level, setting) =
            if variant == "csi" { ("restricted", "csi") } else { ("privileged", "hostpath:/run/spire/agent-sockets") };
        for namespace in ["gitea-actions", NAMESPACE] {
            let labels = &manifests.one("Namespace", namespace)["metadata"]["labels"];
            assert_eq!(labels["pod-security.kubernetes.io/enforce"], level, "{variant} {namespace}");
        }
        assert!(manifests.environment().any(|variable| variable == ("POD_SPIFFE_VOLUME", setting)));
        let volumes = manifests.pod()["volumes"].as_array().unwrap();
        let of_the_node = volumes.iter().filter(|volume| !volume["hostPath"].is_null()).count();
        assert_eq!(of_the_node, usize::from(variant != "csi"));
    });
}

/// NEW-78: nobody reaches a job; a job reaches DNS, the facade and public addresses, not the cluster's own or the
/// machine's metadata.
#[test]
fn networks_of_jobs() {
    each(|_, manifests| {
        let policy = &manifests.one("NetworkPolicy", "gitea-dynamic-runner-executors");
        assert_eq!(policy["metadata"]["namespace"], "gitea-actions");
        let spec = &policy["spec"];
        assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
        assert!(spec["ingress"].is_null());
        let jobs =
            json!({ "app.kubernetes.io/name": "gitea-dynamic-runner", "app.kubernetes.io/component": "executor" });
        assert_eq!(spec["podSelector"]["matchLabels"], jobs);
        let to = spec["egress"].as_array().unwrap().iter().flat_map(|rule| rule["to"].as_array().unwrap());
        let blocks = to.filter_map(|peer| peer.get("ipBlock"));
        for block in blocks {
            let except = block["except"].as_array().unwrap();
            let kept_out = if block["cidr"] == "::/0" { "fc00::/7" } else { "169.254.0.0/16" };
            assert!(except.contains(&json!(kept_out)), "{block}");
        }
        let controller = &manifests.one("NetworkPolicy", "gitea-dynamic-runner-controller")["spec"];
        assert_eq!(controller["ingress"][0]["from"][0]["podSelector"]["matchLabels"], jobs);
    });
}

/// CFG-1, NEW-146: secrets are named and never contained, and every setting is one that the program knows.
#[test]
fn settings_and_secrets() {
    let table = std::fs::read_to_string(root().join("crates/controller/src/config/table.rs")).unwrap();
    let known: BTreeSet<&str> =
        table.lines().filter_map(|line| line.trim().split_once(": ")).map(|(name, _)| name).collect();
    each(|_, manifests| {
        assert_eq!(manifests.all("Secret").count(), 0);
        for (name, value) in manifests.environment() {
            assert!(known.contains(name), "{name} is no setting");
            let secret = ["TOKEN", "UUID", "KEY", "PASSWORD"].iter().any(|word| name.contains(word));
            assert!(!secret || value.starts_with("/run/secrets/gitea-dynamic-runner/"), "{name}");
        }
        let from = |kind: &str, key: &str| -> BTreeSet<String> {
            let volumes = manifests.pod()["volumes"].as_array().unwrap();
            volumes.iter().filter_map(|volume| volume[kind][key].as_str().map(str::to_owned)).collect()
        };
        let secrets = ["gitea-dynamic-runner-keys", "gitea-dynamic-runner-nats", "gitea-dynamic-runner-registration"];
        assert_eq!(from("secret", "secretName").into_iter().collect::<Vec<_>>(), secrets);
    });
}

/// WFL-1: the smoke workflow runs in a Pod and judges user and identity.
#[test]
fn the_smoke_workflow() {
    let workflow = yaml(&root().join("examples/smoke/.gitea/workflows/smoke.yml")).remove(0);
    let job = &workflow["jobs"]["smoke"];
    assert_eq!(job["runs-on"], "pod");
    let steps: String = job["steps"].as_array().unwrap().iter().map(|step| step["run"].as_str().unwrap()).collect();
    assert!(steps.contains(r#"test "$(id -u)" = 2000"#));
    assert!(steps.contains(r#"gitea-dynamic-runner svid | grep -Fx "$CI_SPIFFE_ID""#));
}

/// NEW-70, NEW-78, NEW-146: what nobody could work with is refused, with its name and what to do, before anything is made;
/// what can work is made. The same rows are a check of `cargo xtask test`.
#[tokio::test]
#[ignore = "needs `cargo xtask provision helm`"]
async fn values_are_refused_or_made() {
    let root = root();
    let rows = Helm::provisioned(&root).await.unwrap().values().await.unwrap();
    let failed: Vec<&str> = rows.iter().filter(|row| !row.passed).map(|row| row.what.as_str()).collect();
    assert_eq!((rows.len(), failed), (WRONG.len() + TOGETHER.len() + RIGHT.len(), Vec::new()));
}
