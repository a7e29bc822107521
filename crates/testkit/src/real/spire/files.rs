//! Configuration files of SPIRE.

use std::net::SocketAddr;
use std::path::Path;

use super::SpireSettings;

pub(super) fn server(settings: &SpireSettings, port: u16, dir: &Path) -> String {
    let dir = dir.display();
    let cluster = settings.cluster.as_ref().map(|cluster| {
        let (name, kubeconfig) = (&cluster.name, cluster.kubeconfig.display());
        format!(
            r#"
  NodeAttestor "k8s_psat" {{ plugin_data {{ clusters = {{ "{name}" = {{
    service_account_allow_list = ["spire:spire-agent"]
    kube_config_file = "{kubeconfig}"
  }} }} }} }}
  # Agents trust the server on their first contact by what it writes into the ConfigMap spire/spire-bundle.
  Notifier "k8sbundle" {{ plugin_data {{ kube_config_file_path = "{kubeconfig}" }} }}"#
        )
    });
    format!(
        r#"server {{
  bind_address = "{address}"
  bind_port = "{port}"
  socket_path = "{dir}/server.sock"
  trust_domain = "{domain}"
  data_dir = "{dir}"
  log_level = "INFO"
  experimental {{ cache_reload_interval = "{sync}ms" }}
}}
plugins {{
  DataStore "sql" {{ plugin_data {{ database_type = "sqlite3"  connection_string = "{dir}/db.sqlite3" }} }}
  KeyManager "disk" {{ plugin_data {{ keys_path = "{dir}/keys.json" }} }}
  NodeAttestor "join_token" {{ plugin_data {{}} }}{cluster}
}}
"#,
        address = settings.address,
        domain = settings.trust_domain,
        sync = settings.sync.as_millis(),
        cluster = cluster.unwrap_or_default(),
    )
}

pub(super) fn agent(settings: &SpireSettings, server: SocketAddr, token: &str, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        r#"agent {{
  server_address = "{address}"
  server_port = "{port}"
  socket_path = "{dir}/api/agent.sock"
  trust_domain = "{domain}"
  trust_bundle_path = "{dir}/bootstrap.crt"
  data_dir = "{dir}/data"
  log_level = "INFO"
  join_token = "{token}"
  experimental {{ sync_interval = "{sync}ms" }}
}}
plugins {{
  NodeAttestor "join_token" {{ plugin_data {{}} }}
  KeyManager "disk" {{ plugin_data {{ directory = "{dir}/data" }} }}
  WorkloadAttestor "unix" {{ plugin_data {{}} }}
}}
"#,
        address = server.ip(),
        port = server.port(),
        domain = settings.trust_domain,
        sync = settings.sync.as_millis(),
    )
}

/// The agent of a cluster's node; the folders are those of its Pod.
pub(crate) fn node_agent(settings: &SpireSettings, server: SocketAddr, cluster: &str) -> String {
    format!(
        r#"agent {{
  server_address = "{address}"
  server_port = "{port}"
  socket_path = "/run/spire/sockets/spire-agent.sock"
  trust_domain = "{domain}"
  trust_bundle_path = "/run/spire/bundle/bundle.crt"
  data_dir = "/run/spire/data"
  log_level = "INFO"
  experimental {{ sync_interval = "{sync}ms" }}
}}
health_checks {{ listener_enabled = true  bind_address = "0.0.0.0"  bind_port = "9982" }}
plugins {{
  NodeAttestor "k8s_psat" {{ plugin_data {{ cluster = "{cluster}" }} }}
  KeyManager "memory" {{ plugin_data {{}} }}
  # Kubelets sign their own certificates: nothing on a node can check them without their help.
  WorkloadAttestor "k8s" {{ plugin_data {{ skip_kubelet_verification = true }} }}
}}
"#,
        address = server.ip(),
        port = server.port(),
        domain = settings.trust_domain,
        sync = settings.sync.as_millis(),
    )
}
