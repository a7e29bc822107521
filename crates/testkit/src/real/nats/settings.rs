//! What a throw-away NATS server is told, and its configuration file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::port::Port;

/// The server's own rule is three quarters of what the disk has free, and each stream of ours wants a GiB of that.
const ROOMY: u64 = 1 << 40;

/// How a server is started. The default: anybody may do anything, JetStream with the server's own limits.
#[derive(Debug, Clone, Default)]
pub struct NatsSettings {
    /// Who may connect; nobody named: anybody, without a password.
    pub users: Vec<NatsUser>,
    /// The largest message in bytes; none: the server's 1 MiB.
    pub max_payload: Option<u64>,
    /// Room for what JetStream stores in files, in bytes; none: more than any test needs.
    pub max_file_store: Option<u64>,
    /// Clients must use TLS.
    pub tls: Option<NatsTls>,
    /// Further lines of the configuration, as they are.
    pub further: String,
}

impl NatsSettings {
    /// Only this user may connect, and may do anything.
    #[must_use]
    pub fn with_user(mut self, name: &str, password: &str) -> Self {
        self.users.push(NatsUser { name: name.to_owned(), password: password.to_owned(), permissions: String::new() });
        self
    }

    /// This user may connect too, within the permissions.
    #[must_use]
    pub fn with_limited_user(mut self, name: &str, password: &str, permissions: &str) -> Self {
        let permissions = permissions.to_owned();
        self.users.push(NatsUser { name: name.to_owned(), password: password.to_owned(), permissions });
        self
    }
}

/// One who may connect.
#[derive(Debug, Clone)]
pub struct NatsUser {
    /// The name.
    pub name: String,
    /// The password, in clear.
    pub password: String,
    /// What stands in the user's `permissions` block, such as `publish: { deny: "$JS.API.STREAM.CREATE.>" }`; empty:
    /// everything is permitted.
    pub permissions: String,
}

/// TLS files in PEM.
#[derive(Debug, Clone)]
pub struct NatsTls {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Clients must show a certificate of this authority; none: they need not show any.
    pub client_authority: Option<PathBuf>,
}

/// A server's place in a cluster.
pub(super) struct Route {
    /// Where the others find it.
    pub(super) own: Port,
    /// The ports of all servers.
    pub(super) all: Vec<u16>,
}

impl NatsSettings {
    /// The configuration file of a server in `dir`, with its ports for clients and for monitoring.
    pub(super) fn text(&self, name: &str, ports: (&Port, &Port), dir: &Path, route: Option<&Route>) -> String {
        let (client, monitor) = (ports.0.number(), ports.1.number());
        let mut text = format!("server_name: {name}\nlisten: 127.0.0.1:{client}\nhttp: 127.0.0.1:{monitor}\n");
        let room = self.max_file_store.unwrap_or(ROOMY);
        let _ = writeln!(text, "jetstream {{ store_dir: {dir:?}, max_file_store: {room} }}");
        if let Some(bytes) = self.max_payload {
            let _ = writeln!(text, "max_payload: {bytes}");
        }
        if !self.users.is_empty() {
            let users: String = self.users.iter().map(NatsUser::text).collect();
            let _ = writeln!(text, "authorization {{ users: [\n{users}] }}");
        }
        if let Some(NatsTls { certificate, key, client_authority }) = &self.tls {
            let _ = write!(text, "tls {{ cert_file: {certificate:?}, key_file: {key:?}");
            if let Some(authority) = client_authority {
                let _ = write!(text, ", ca_file: {authority:?}, verify: true");
            }
            let _ = writeln!(text, " }}");
        }
        if let Some(Route { own, all }) = route {
            let routes: Vec<String> = all.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
            let (own, routes) = (own.number(), routes.join(", "));
            let _ = writeln!(text, "cluster {{ name: testbed, listen: 127.0.0.1:{own}, routes: [{routes}] }}");
        }
        text + &self.further + "\n"
    }
}

impl NatsUser {
    fn text(&self) -> String {
        let Self { name, password, permissions } = self;
        let permissions =
            if permissions.is_empty() { String::new() } else { format!(", permissions: {{ {permissions} }}") };
        format!("  {{ user: {name:?}, password: {password:?}{permissions} }}\n")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_is_not_asked_for_is_not_said() {
        let (client, monitor) = (Port::reserve().unwrap(), Port::reserve().unwrap());
        let ports = (&client, &monitor);
        let plain = NatsSettings::default().text("one", ports, Path::new("/d"), None);
        let listen = format!("listen: 127.0.0.1:{}\nhttp: 127.0.0.1:{}\n", client.number(), monitor.number());
        assert_eq!(
            plain,
            format!("server_name: one\n{listen}jetstream {{ store_dir: \"/d\", max_file_store: {ROOMY} }}\n\n")
        );
        let mut full = NatsSettings::default().with_user("a", "1").with_limited_user("b", "2", "publish: x");
        full.max_file_store = Some(7);
        let text = full.text("one", ports, Path::new("/d"), None);
        assert!(text.contains("{ store_dir: \"/d\", max_file_store: 7 }"), "{text}");
        assert!(text.contains("{ user: \"a\", password: \"1\" }\n"), "{text}");
        assert!(text.contains("{ user: \"b\", password: \"2\", permissions: { publish: x } }"), "{text}");
    }
}
