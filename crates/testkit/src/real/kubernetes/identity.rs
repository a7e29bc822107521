//! SPIRE on the cluster: the server on this machine, an agent on the node, entries from ClusterStaticEntry objects.
//!
//! Pods mount the folder of the agent's socket by hostPath (never the socket itself: each start of the agent makes a
//! new one), or as a volume of the CSI driver ([`Cluster::spiffe_volumes`]).

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::entry_manager::EntryManager;
use super::layout::NODE;
use super::{Cluster, Image, Service, make, run};
use crate::kubernetes::{Client, Content};
use crate::real::cache::Program;
use crate::real::spire::{SpireAgent, SpireCluster, SpireServer, SpireSettings, files};
use crate::real::{Error, Seen, eventually};

/// The name of the cluster in the agents' IDs.
pub const CLUSTER: &str = "ci-nodes";
/// The class of entries that are taken.
pub const CLASS: &str = "spire-mgmt-spire";
/// The name of the socket in the folder that Pods mount.
pub const SOCKET: &str = "spire-agent.sock";

const IMAGE: &str = "local.test/spire-agent:dev";
const LIMIT: Duration = Duration::from_secs(120);

/// SPIRE on a cluster; drop it before the cluster.
pub struct Identity {
    entries: Option<EntryManager>,
    agent: SpireAgent,
    server: std::sync::Arc<SpireServer>,
    sockets: PathBuf,
    node_uid: String,
}

impl Identity {
    /// Starts server, agents and what plays spire-controller-manager; waits until the node's agent has attested.
    ///
    /// # Errors
    /// SPIRE is not installed, the API refused something, or an agent is not ready within 120 s.
    pub async fn start(cluster: &mut Cluster, sync: Duration) -> Result<Self, Error> {
        cluster.install_entries().await?;
        let client = cluster.admin().clone();
        prepare(&client).await?;
        let settings = SpireSettings {
            address: cluster.host_address().into(),
            sync,
            cluster: Some(SpireCluster {
                name: CLUSTER.to_owned(),
                kubeconfig: cluster.layout.path("spire-server.kubeconfig"),
            }),
            ..SpireSettings::default()
        };
        let server = std::sync::Arc::new(SpireServer::start(settings).await?);
        let agent = SpireAgent::start(&server).await?;
        let sockets = cluster.layout.path("spire");
        std::fs::create_dir_all(&sockets).map_err(Error::system("make the folder of the sockets"))?;
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&sockets, open).map_err(Error::system("open the folder of the sockets"))?;
        import_agent(cluster).await?;
        let config = files::node_agent(server.settings(), server.address(), CLUSTER);
        let map = json!({"metadata": {"name": "spire-agent"}, "data": {"agent.conf": config}});
        make(&client, "/api/v1/namespaces/spire/configmaps", &map).await?;
        let set = daemon_set(&sockets.display().to_string(), &cluster.net.node().to_string());
        make(&client, "/apis/apps/v1/namespaces/spire/daemonsets", &set).await?;
        let entries = EntryManager::start(client.clone(), server.clone(), CLASS);
        attested(cluster, &server).await?;
        let node = client.get(&format!("/api/v1/nodes/{NODE}")).await?.object("get the node")?;
        let node_uid = node["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Self { entries: Some(entries), agent, server, sockets, node_uid })
    }

    /// From now on no object becomes an entry, and no entry is deleted, as on a site without spire-controller-manager.
    pub fn end_entry_manager(&mut self) {
        self.entries = None;
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &SpireServer {
        &self.server
    }

    /// The agent of this machine, for programs outside of the cluster.
    #[must_use]
    pub fn host_agent(&self) -> &SpireAgent {
        &self.agent
    }

    /// The folder of the node that Pods mount.
    #[must_use]
    pub fn socket_folder(&self) -> &std::path::Path {
        &self.sockets
    }

    /// The ID of the node's agent: computed from the Node, as a controller computes it.
    #[must_use]
    pub fn node_parent(&self) -> String {
        let domain = &self.server.settings().trust_domain;
        format!("spiffe://{domain}/spire/agent/k8s_psat/{CLUSTER}/{}", self.node_uid)
    }
}

async fn attested(cluster: &mut Cluster, server: &SpireServer) -> Result<(), Error> {
    let client = cluster.admin().clone();
    eventually("the node's SPIRE agent is ready", LIMIT, async || {
        let set = client.get("/apis/apps/v1/namespaces/spire/daemonsets/spire-agent").await?.body;
        if set["status"]["numberReady"].as_u64().unwrap_or_default() > 0 {
            return Ok(Seen::Done(()));
        }
        let pods = client.get("/api/v1/namespaces/spire/pods").await?.body;
        let log = server.log();
        let end = crate::real::error::tail(&log, 500);
        Ok(Seen::NotYet(format!("{} {end}", pods["items"][0]["status"])))
    })
    .await?;
    debug_assert!(cluster.runs(Service::Kubelet), "a ready Pod without a kubelet");
    Ok(())
}

/// The agent with the libraries it is linked to.
async fn import_agent(cluster: &Cluster) -> Result<(), Error> {
    let program = cluster.cache.program(Program::SpireAgent)?;
    let root = cluster.layout.path("images/spire-agent");
    let copy = |from: &str, to: PathBuf| -> Result<(), Error> {
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder).map_err(Error::system("make a folder"))?;
        }
        std::fs::copy(from, to).map(drop).map_err(Error::system(format!("copy {from}")))
    };
    copy(&program.display().to_string(), root.join("bin/spire-agent"))?;
    std::fs::create_dir_all(root.join("tmp")).map_err(Error::system("make a folder"))?;
    let mut ldd = std::process::Command::new("ldd");
    ldd.arg(&program);
    // A static program has none, and `ldd` fails to say so.
    let libraries = run(ldd, LIMIT).await.unwrap_or_default();
    for word in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        copy(word, root.join(word.trim_start_matches('/')))?;
    }
    cluster.import_root(&Image { name: IMAGE, root: &root, entrypoint: "/bin/spire-agent", user: 0 }).await.map(drop)
}

/// Namespace, account and rights.
async fn prepare(client: &Client) -> Result<(), Error> {
    let privileged = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    make(client, "/api/v1/namespaces", &json!({"metadata": {"name": "spire", "labels": privileged}})).await?;
    let account = json!({"metadata": {"name": "spire-agent"}});
    make(client, "/api/v1/namespaces/spire/serviceaccounts", &account).await?;
    // The server fills it; it does not make it.
    make(client, "/api/v1/namespaces/spire/configmaps", &json!({"metadata": {"name": "spire-bundle"}})).await?;
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let server = json!({"kind": "User", "name": "spire-server", "apiGroup": "rbac.authorization.k8s.io"});
    let agent = json!({"kind": "ServiceAccount", "name": "spire-agent", "namespace": "spire"});
    let reviews = rule("authentication.k8s.io", &["tokenreviews"], &["create"]);
    let seen = rule("", &["pods", "nodes"], &["get"]);
    grant(client, "", "spire-server", &json!([reviews, seen]), &server).await?;
    let mut bundle = rule("", &["configmaps"], &["get", "patch"]);
    bundle["resourceNames"] = json!(["spire-bundle"]);
    grant(client, "spire", "spire-server", &json!([bundle]), &server).await?;
    // What the agent asks the kubelet; those before 1.33 want `nodes/proxy`.
    grant(client, "", "spire-agent", &json!([rule("", &["nodes/pods"], &["get"])]), &agent).await
}

/// A role and its binding, of a namespace or of the whole cluster.
async fn grant(client: &Client, namespace: &str, name: &str, rules: &Value, subject: &Value) -> Result<(), Error> {
    let base = "/apis/rbac.authorization.k8s.io/v1";
    let (kind, roles, bindings) = match namespace {
        "" => ("ClusterRole", format!("{base}/clusterroles"), format!("{base}/clusterrolebindings")),
        namespace => {
            let base = format!("{base}/namespaces/{namespace}");
            ("Role", format!("{base}/roles"), format!("{base}/rolebindings"))
        }
    };
    make(client, &roles, &json!({"metadata": {"name": name}, "rules": rules})).await?;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    make(client, &bindings, &json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})).await
}

fn daemon_set(sockets: &str, address: &str) -> Value {
    let token = json!({"serviceAccountToken": {"path": "spire-agent", "expirationSeconds": 7200,
        "audience": "spire-server"}});
    let volumes = json!([
        {"name": "config", "configMap": {"name": "spire-agent"}},
        {"name": "bundle", "configMap": {"name": "spire-bundle"}},
        {"name": "token", "projected": {"sources": [token]}},
        {"name": "sockets", "hostPath": {"path": sockets, "type": "DirectoryOrCreate"}},
        {"name": "data", "emptyDir": {}},
    ]);
    let mounts = json!([
        {"name": "config", "mountPath": "/run/spire/config", "readOnly": true},
        {"name": "bundle", "mountPath": "/run/spire/bundle", "readOnly": true},
        {"name": "token", "mountPath": "/var/run/secrets/tokens"},
        {"name": "sockets", "mountPath": "/run/spire/sockets"},
        {"name": "data", "mountPath": "/run/spire/data"},
    ]);
    let container = json!({
        "name": "spire-agent", "image": IMAGE, "imagePullPolicy": "Never",
        "command": ["/bin/spire-agent", "run", "-config", "/run/spire/config/agent.conf"],
        "env": [{"name": "MY_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 9982}, "periodSeconds": 1},
        "volumeMounts": mounts,
    });
    // Callers of the socket are known by their pid; the kubelet is called by the node's name.
    let spec = json!({
        "hostPID": true, "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": "spire-agent", "terminationGracePeriodSeconds": 10,
        "hostAliases": [{"ip": address, "hostnames": [NODE]}], "containers": [container], "volumes": volumes,
    });
    let labels = json!({"app": "spire-agent"});
    json!({
        "metadata": {"name": "spire-agent", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    })
}

/// Restarts the node's agent, as after an update.
///
/// # Errors
/// The API refused it.
pub async fn restart_node_agent(client: &Client) -> Result<(), Error> {
    let path = "/api/v1/namespaces/spire/pods";
    client.call(http::Method::DELETE, path, Content::Json, &Value::Null).await?.object(path).map(drop)
}
