//! What a controller is told that makes Pods on a double of Kubernetes, whoever gives it and them their identities.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The trust domain of all identities.
pub const TRUST_DOMAIN: &str = "td.test";

/// The identity of the controller.
pub const FACADE: &str = "spiffe://td.test/facade";

pub(super) const IMAGE: &str =
    "registry.example.org/ci/executor@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Below it are services that have names.
const LOWEST_PORT: u16 = 10_000;

/// Settings of a controller that is `registered` with a Gitea, by UUID and token, and talks to the API at the address and
/// with the token of `kubernetes`; secrets are in files in `dir`.
///
/// # Errors
/// They cannot be written, or there is no port.
pub fn of_controller(
    dir: &Path,
    registered: (&str, &str),
    kubernetes: (&str, &str),
) -> io::Result<Vec<(&'static str, String)>> {
    let file = |name: &str, content: &str| -> io::Result<String> {
        let path = dir.join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(path.display().to_string())
    };
    let port = steady_port()?;
    Ok(vec![
        ("COMPONENTS", "scheduler,pod-worker".to_owned()),
        ("DEFAULT_BACKEND", "pod".to_owned()),
        ("TRUST_DOMAIN", TRUST_DOMAIN.to_owned()),
        ("GITEA_RUNNER_UUID_FILE", file("uuid", registered.0)?),
        ("GITEA_RUNNER_TOKEN_FILE", file("token", registered.1)?),
        ("RUNNER_FACADE_URL", format!("https://127.0.0.1:{port}")),
        ("RUNNER_FACADE_LISTEN", format!("127.0.0.1:{port}")),
        ("RUNNER_FACADE_SPIFFE_ID", FACADE.to_owned()),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability", &"c".repeat(32))?),
        ("ENVELOPE_KEY_FILE", file("envelope", &"e".repeat(32))?),
        ("OPS_LISTEN", "127.0.0.1:0".to_owned()),
        ("POD_EXECUTOR_IMAGE", IMAGE.to_owned()),
        ("SPIRE_CLASS", "spire-mgmt-spire".to_owned()),
        ("SPIRE_CLUSTER", "ci-nodes".to_owned()),
        ("KUBERNETES_API", kubernetes.0.to_owned()),
        ("KUBERNETES_TOKEN_FILE", file("kubernetes-token", kubernetes.1)?),
    ])
}

/// A free port that stays free while a controller is away: the kernel gives none below its range to whoever connects to
/// somewhere. Another listener may still take it, which the controller then says.
fn steady_port() -> io::Result<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let first = range.split_whitespace().next().and_then(|first| first.parse::<u16>().ok()).unwrap_or(32_768);
    let below = first.saturating_sub(1).max(LOWEST_PORT + 1);
    let drawn = || LOWEST_PORT + (uuid::Uuid::new_v4().as_u128() % u128::from(below - LOWEST_PORT)) as u16;
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..100).map(|_| drawn()).find(free).ok_or_else(|| io::Error::other("no port of loopback is free"))
}
