//! The configuration files of the cluster's programs.

use super::keys::Keys;
use super::layout::{Layout, NODE, Net};
use crate::real::Error;

/// The image of the process that holds a Pod together.
pub(super) const PAUSE_IMAGE: &str = "local.test/pause:dev";

/// A kubeconfig with a token.
pub(super) fn kubeconfig(url: &str, ca: &str, token: &str, namespace: &str) -> String {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca);
    format!(
        "apiVersion: v1\nkind: Config\n\
         clusters: [{{name: testkit, cluster: {{server: \"{url}\", certificate-authority-data: {ca}}}}}]\n\
         users: [{{name: user, user: {{token: \"{token}\"}}}}]\n\
         contexts: [{{name: testkit, context: {{cluster: testkit, user: user, namespace: \"{namespace}\"}}}}]\n\
         current-context: testkit\n"
    )
}

/// Writes all of them.
pub(super) fn write(layout: &Layout, net: &Net, keys: &Keys, url: &str) -> Result<(), Error> {
    for (name, token) in [
        ("admin", &keys.admin),
        ("kube-controller-manager", &keys.controller_manager),
        ("kube-scheduler", &keys.scheduler),
        ("kubelet", &keys.kubelet),
        ("spire-server", &keys.spire_server),
    ] {
        layout.write(&format!("{name}.kubeconfig"), &kubeconfig(url, &keys.ca, token, "default"))?;
    }
    layout.write("audit.yaml", AUDIT)?;
    layout.write("containerd.toml", &containerd(layout))?;
    layout.write("cni/net.d/10-bridge.conflist", &network(layout, net))?;
    layout.write("kubelet.yaml", &kubelet(layout, net))
}

/// All but the cluster's own traffic.
const AUDIT: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ["system:nodes", "system:serviceaccounts:kube-system"]}
- {level: None, users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]}
- {level: None, nonResourceURLs: ["/*"]}
- {level: Metadata}
"#;

/// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE nobody gets a lower score than its parent's, and every sandbox
/// asks for one.
fn containerd(layout: &Layout) -> String {
    format!(
        r#"version = 2
root = "{root}"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{registries}"
"#,
        root = layout.text("containerd"),
        socket = layout.text("run/containerd.sock"),
        cni = layout.text("cni/net.d"),
        registries = layout.text("registries"),
    )
}

fn network(layout: &Layout, net: &Net) -> String {
    let ipam = serde_json::json!({
        "type": "host-local", "ranges": [[{"subnet": net.pods()}]], "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": layout.text("cni/ipam"),
    });
    let bridge =
        serde_json::json!({"type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true, "ipam": ipam});
    serde_json::json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}).to_string()
}

/// Its name server is this machine. Where none listens there, look-ups fail at once and do not hang.
fn kubelet(layout: &Layout, net: &Net) -> String {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(1_000_000);
    format!(
        r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {node}
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {ca}}}}}
authorization: {{mode: Webhook}}
containerRuntimeEndpoint: unix://{socket}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
volumePluginDir: {plugins}
failSwapOn: false
clusterDNS: [{host}]
clusterDomain: cluster.local
maxOpenFiles: {files}
oomScoreAdj: 0
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
"#,
        node = net.node(),
        host = net.host(),
        ca = layout.text("pki/ca.crt"),
        socket = layout.text("run/containerd.sock"),
        cgroup = net.cgroup(),
        plugins = layout.text("run/volume-plugins"),
    )
}

/// The command line of each program, without the program.
pub(super) fn arguments(service: super::Service, layout: &Layout, net: &Net) -> Vec<String> {
    use super::Service;
    let at = |name: &str| layout.text(name);
    let node = net.node();
    match service {
        Service::Etcd => vec![
            "--name=n1".into(),
            format!("--data-dir={}", at("etcd")),
            "--listen-client-urls=http://127.0.0.1:2379".into(),
            "--advertise-client-urls=http://127.0.0.1:2379".into(),
            "--listen-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-advertise-peer-urls=http://127.0.0.1:2380".into(),
            "--initial-cluster=n1=http://127.0.0.1:2380".into(),
            "--logger=zap".into(),
            "--log-level=warn".into(),
        ],
        Service::Containerd => vec!["--config".into(), at("containerd.toml")],
        Service::ApiServer => vec![
            "--etcd-servers=http://127.0.0.1:2379".into(),
            "--bind-address=0.0.0.0".into(),
            "--secure-port=443".into(),
            format!("--advertise-address={node}"),
            format!("--service-cluster-ip-range={}", net.services()),
            format!("--tls-cert-file={}", at("pki/apiserver.crt")),
            format!("--tls-private-key-file={}", at("pki/apiserver.key")),
            format!("--client-ca-file={}", at("pki/ca.crt")),
            format!("--token-auth-file={}", at("pki/tokens.csv")),
            "--kubelet-preferred-address-types=InternalIP".into(),
            format!("--kubelet-client-certificate={}", at("pki/kubelet-client.crt")),
            format!("--kubelet-client-key={}", at("pki/kubelet-client.key")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", at("pki/sa.pub")),
            format!("--service-account-signing-key-file={}", at("pki/sa.key")),
            "--allow-privileged=true".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            format!("--audit-policy-file={}", at("audit.yaml")),
            format!("--audit-log-path={}", at("log/audit.jsonl")),
        ],
        Service::ControllerManager => vec![
            "--bind-address=127.0.0.1".into(),
            format!("--kubeconfig={}", at("kube-controller-manager.kubeconfig")),
            "--use-service-account-credentials".into(),
            format!("--flex-volume-plugin-dir={}", at("run/volume-plugins")),
            format!("--service-account-private-key-file={}", at("pki/sa.key")),
            format!("--root-ca-file={}", at("pki/ca.crt")),
            // It throttles itself while its controllers start: half of the time that a cluster takes to come up.
            "--kube-api-qps=200".into(),
            "--kube-api-burst=400".into(),
            "--leader-elect=false".into(),
            "--node-monitor-period=2s".into(),
            "--node-monitor-grace-period=20s".into(),
        ],
        Service::Scheduler => vec![
            "--bind-address=127.0.0.1".into(),
            format!("--kubeconfig={}", at("kube-scheduler.kubeconfig")),
            "--leader-elect=false".into(),
        ],
        Service::Kubelet => vec![
            format!("--config={}", at("kubelet.yaml")),
            format!("--kubeconfig={}", at("kubelet.kubeconfig")),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={node}"),
        ],
    }
}
