//! The environment of an executor: written by the controller, read by the executor (requirements §2.2, BST-1, EXE-1).

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use zeroize::Zeroizing;

use crate::id::{AssignmentId, Backend};
use crate::identity::SpiffeId;

const ASSIGNMENT: &str = "CI_ASSIGNMENT_ID";
const CAPABILITY: &str = "CI_RUNNER_CAPABILITY";
const CAPABILITY_FILE: &str = "CI_RUNNER_CAPABILITY_FILE";
const FACADE_URL: &str = "CI_RUNNER_FACADE_URL";
const FACADE_ID: &str = "CI_RUNNER_FACADE_SPIFFE_ID";
const SPIFFE_ID: &str = "CI_SPIFFE_ID";
const BACKEND: &str = "CI_RUNNER_BACKEND";
const SOCKET: &str = "SPIFFE_ENDPOINT_SOCKET";
const LABELS: &str = "CI_RUNNER_LABELS";
const DEADLINE: &str = "CI_RUNNER_DEADLINE";
const BINARY: &str = "GITEA_RUNNER_BINARY";
const CONFIG: &str = "GITEA_RUNNER_CONFIG";

/// Whether jobs see this variable of the controller's, or of a container's, environment: what a program expects of its
/// host, and nothing else (NEW-116).
#[must_use]
pub fn is_inherited(name: &str) -> bool {
    ["PATH", "LANG", "TZ", "USER", "LOGNAME", "SHELL"].contains(&name) || name.starts_with("LC_")
}

/// What an executor is told. Nothing in it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchEnv {
    /// Whose executor it is.
    pub id: AssignmentId,
    /// `https://host[:port]`, without a trailing `/`.
    pub facade_url: String,
    /// The only server it talks to.
    pub facade_spiffe_id: SpiffeId,
    /// The only identity it uses.
    pub spiffe_id: SpiffeId,
    /// Where it runs.
    pub backend: Backend,
    /// `unix:///absolute/path` or `tcp://IP:port` of the Workload API.
    pub workload_socket: String,
    /// 0400 file with the capability, removed once it was read.
    pub capability_file: Option<PathBuf>,
    /// What the runner declares, each with `:host`; never empty.
    pub labels: Vec<String>,
    /// The run deadline.
    pub deadline: Timestamp,
    /// The official runner; default `gitea-runner` in PATH.
    pub runner_binary: Option<String>,
    /// Base configuration of the runner, merged under ours.
    pub runner_config: Option<String>,
}

/// Where the capability comes from. No `Debug`.
pub enum CapabilitySource {
    /// A file, removed once it was read.
    File(PathBuf),
    /// The environment (VM).
    Inline(Zeroizing<String>),
}

/// One variable that is missing or malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct EnvError {
    /// The variable.
    pub name: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl LaunchEnv {
    /// The variables of an executor, the inline capability excepted.
    #[must_use]
    pub fn to_env(&self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let mut put = |name: &str, value: String| drop(env.insert(name.to_owned(), value));
        put(ASSIGNMENT, self.id.to_string());
        put(FACADE_URL, self.facade_url.clone());
        put(FACADE_ID, self.facade_spiffe_id.to_string());
        put(SPIFFE_ID, self.spiffe_id.to_string());
        put(BACKEND, self.backend.to_string());
        put(SOCKET, self.workload_socket.clone());
        put(LABELS, self.labels.join(","));
        put(DEADLINE, self.deadline.to_string());
        if let Some(file) = &self.capability_file {
            put(CAPABILITY_FILE, file.to_string_lossy().into_owned());
        }
        if let Some(binary) = &self.runner_binary {
            put(BINARY, binary.clone());
        }
        if let Some(config) = &self.runner_config {
            put(CONFIG, config.clone());
        }
        env
    }

    /// Reads the variables through `get`.
    ///
    /// # Errors
    ///
    /// Every variable that is missing or malformed, at once.
    pub fn parse(get: impl Fn(&str) -> Option<String>) -> Result<(Self, CapabilitySource), Vec<EnvError>> {
        let mut reader = Reader { get, errors: Vec::new() };
        let id = reader.parsed::<AssignmentId>(ASSIGNMENT);
        let facade_url = reader.checked(FACADE_URL, "must be https://host[:port]", is_https);
        let facade_spiffe_id = reader.parsed::<SpiffeId>(FACADE_ID);
        let spiffe_id = reader.parsed::<SpiffeId>(SPIFFE_ID);
        let backend = reader.parsed::<Backend>(BACKEND);
        let workload_socket = reader.checked(SOCKET, "must be unix:///absolute/path or tcp://IP:port", is_endpoint);
        let labels = reader.checked(LABELS, "must be a comma list without empty labels", is_label_list);
        let deadline = reader.parsed::<Timestamp>(DEADLINE);
        let capability_file = (reader.get)(CAPABILITY_FILE).filter(|text| !text.is_empty()).map(PathBuf::from);
        let inline = (reader.get)(CAPABILITY).filter(|text| !text.is_empty()).map(Zeroizing::new);
        let source = match (&capability_file, inline) {
            (Some(file), _) => Some(CapabilitySource::File(file.clone())),
            (None, Some(text)) => Some(CapabilitySource::Inline(text)),
            (None, None) => reader.fail(CAPABILITY_FILE, "is required (or CI_RUNNER_CAPABILITY)"),
        };
        let optional = |name: &str| (reader.get)(name).filter(|text| !text.is_empty());
        let (runner_binary, runner_config) = (optional(BINARY), optional(CONFIG));
        let fields = (id, facade_url, facade_spiffe_id, spiffe_id, backend, workload_socket, labels, deadline, source);
        let (
            Some(id),
            Some(facade_url),
            Some(facade_spiffe_id),
            Some(spiffe_id),
            Some(backend),
            Some(workload_socket),
            Some(labels),
            Some(deadline),
            Some(source),
        ) = fields
        else {
            return Err(reader.errors);
        };
        let env = Self {
            id,
            facade_url: facade_url.trim_end_matches('/').to_owned(),
            facade_spiffe_id,
            spiffe_id,
            backend,
            workload_socket,
            capability_file,
            labels: labels.split(',').map(str::to_owned).collect(),
            deadline,
            runner_binary,
            runner_config,
        };
        Ok((env, source))
    }
}

struct Reader<F> {
    get: F,
    errors: Vec<EnvError>,
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    fn fail<T>(&mut self, name: &'static str, problem: impl Into<String>) -> Option<T> {
        self.errors.push(EnvError { name, problem: problem.into() });
        None
    }

    fn text(&mut self, name: &'static str) -> Option<String> {
        match (self.get)(name).filter(|text| !text.trim().is_empty()) {
            Some(text) => Some(text),
            None => self.fail(name, "is required"),
        }
    }

    fn checked(&mut self, name: &'static str, rule: &str, good: impl Fn(&str) -> bool) -> Option<String> {
        let text = self.text(name)?;
        if good(&text) { Some(text) } else { self.fail(name, format!("{rule}, not {text:?}")) }
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(&mut self, name: &'static str) -> Option<T> {
        let text = self.text(name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => self.fail(name, format!("is malformed: {error}")),
        }
    }
}

/// Labels hold no comma: [`crate::assignment`] refuses jobs that ask for such (BST-3).
fn is_label_list(text: &str) -> bool {
    text.split(',').all(|label| !label.trim().is_empty())
}

/// `https://host[:port][/]`, the host a name or an address (BST-2).
fn is_https(text: &str) -> bool {
    let Some(authority) = text.strip_prefix("https://").map(|rest| rest.strip_suffix('/').unwrap_or(rest)) else {
        return false;
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let named = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let literal = address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    (named || literal) && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// The forms of the SPIFFE Workload Endpoint standard, §4.
fn is_endpoint(text: &str) -> bool {
    let address = |text: &str| text.parse::<std::net::SocketAddr>().is_ok();
    text.strip_prefix("unix://").is_some_and(|path| path.starts_with('/') && path.len() > 1)
        || text.strip_prefix("tcp://").is_some_and(address)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn env() -> LaunchEnv {
        LaunchEnv {
            id: "gitea-task-42".parse().unwrap(),
            facade_url: "https://facade.ci.example:8443".to_owned(),
            facade_spiffe_id: "spiffe://example.org/gitea-dynamic-runner".parse().unwrap(),
            spiffe_id: "spiffe://example.org/ci/owner/repo/publish".parse().unwrap(),
            backend: Backend::Local,
            workload_socket: "unix:///run/spire/agent-sockets/api.sock".to_owned(),
            capability_file: Some("/run/capability".into()),
            labels: vec!["self-hosted".to_owned(), "local".to_owned()],
            deadline: "2026-11-29T14:55:00Z".parse().unwrap(),
            runner_binary: Some("/usr/bin/gitea-runner".to_owned()),
            runner_config: Some("/etc/runner.yaml".to_owned()),
        }
    }

    fn parse(vars: &BTreeMap<String, String>) -> Result<(LaunchEnv, CapabilitySource), Vec<EnvError>> {
        LaunchEnv::parse(|name| vars.get(name).cloned())
    }

    fn with(name: &str, value: &str) -> Vec<&'static str> {
        let mut vars = env().to_env();
        vars.insert(name.to_owned(), value.to_owned());
        parse(&vars).err().unwrap_or_default().into_iter().map(|error| error.name).collect()
    }

    /// BST-1, EXE-8: the names of requirements §2.2, complete and always the same.
    #[test]
    fn the_environment_is_that_of_the_specification() {
        let vars = env().to_env();
        let names: Vec<_> = vars.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "CI_ASSIGNMENT_ID",
                "CI_RUNNER_BACKEND",
                "CI_RUNNER_CAPABILITY_FILE",
                "CI_RUNNER_DEADLINE",
                "CI_RUNNER_FACADE_SPIFFE_ID",
                "CI_RUNNER_FACADE_URL",
                "CI_RUNNER_LABELS",
                "CI_SPIFFE_ID",
                "GITEA_RUNNER_BINARY",
                "GITEA_RUNNER_CONFIG",
                "SPIFFE_ENDPOINT_SOCKET",
            ]
        );
        assert_eq!(vars["CI_RUNNER_LABELS"], "self-hosted,local");
        assert_eq!(vars["CI_RUNNER_DEADLINE"], "2026-11-29T14:55:00Z");
    }

    /// BST-1: what was written is read again, with and without what is optional.
    #[test]
    fn an_environment_survives_the_way() {
        let (read, source) = parse(&env().to_env()).ok().unwrap();
        assert_eq!(read, env());
        assert!(matches!(source, CapabilitySource::File(path) if path.as_os_str() == "/run/capability"));
        let bare = LaunchEnv { capability_file: None, runner_binary: None, runner_config: None, ..env() };
        let mut vars = bare.to_env();
        vars.insert("CI_RUNNER_CAPABILITY".to_owned(), "c2.x".to_owned());
        vars.insert("GITEA_RUNNER_BINARY".to_owned(), String::new());
        let (read, source) = parse(&vars).ok().unwrap();
        assert_eq!(read, bare);
        assert!(matches!(source, CapabilitySource::Inline(text) if *text == "c2.x"));
    }

    /// EXE-1: each variable that is missing is named, all of them at once.
    #[test]
    fn missing_variables_are_named() {
        let optional = ["GITEA_RUNNER_BINARY", "GITEA_RUNNER_CONFIG"];
        for name in env().to_env().keys().filter(|name| !optional.contains(&name.as_str())) {
            for empty in [None, Some("")] {
                let mut vars = env().to_env();
                vars.remove(name);
                vars.extend(empty.map(|value| (name.clone(), value.to_owned())));
                let errors = parse(&vars).err().unwrap();
                assert_eq!(errors.len(), 1, "{errors:?}");
                assert_eq!(errors[0].name, name);
            }
        }
        assert_eq!(parse(&BTreeMap::new()).err().unwrap().len(), 9);
    }

    /// EXE-1, BST-2: what is malformed is named.
    #[test]
    fn malformed_variables_are_named() {
        for (name, values) in [
            ("CI_ASSIGNMENT_ID", &["gitea-task-0", "42"][..]),
            ("CI_RUNNER_BACKEND", &["docker", "Pod"]),
            ("CI_RUNNER_DEADLINE", &["tomorrow", "2026-11-29 14:55"]),
            ("CI_RUNNER_FACADE_SPIFFE_ID", &["facade", "spiffe://example.org"]),
            ("CI_SPIFFE_ID", &["spiffe://example.org/spire/agent"]),
            ("CI_RUNNER_LABELS", &[",", "pod,", "pod,,vm", "pod, "]),
            (
                "SPIFFE_ENDPOINT_SOCKET",
                &["/run/api.sock", "unix://run/api.sock", "unix:///", "tcp://host:1", "tcp://1"],
            ),
            (
                "CI_RUNNER_FACADE_URL",
                &[
                    "http://facade",
                    "https://",
                    "https:///",
                    "https://:8443",
                    "https://facade:0",
                    "https://facade:x",
                    "https://facade:99999",
                    "https://facade/path",
                    "https://facade//",
                    "https://user@facade",
                    "https://facade?x",
                    "https://fa cade",
                    "https://[::1",
                    "https://[facade]",
                ],
            ),
        ] {
            for value in values {
                assert_eq!(with(name, value), [name], "{name}={value}");
            }
        }
    }

    /// BST-2: every good form of the URL and of the socket.
    #[test]
    fn good_addresses_are_read() {
        for url in
            ["https://facade", "https://facade/", "https://127.0.0.1:8443", "https://[::1]:8443", "https://[::1]"]
        {
            assert!(with("CI_RUNNER_FACADE_URL", url).is_empty(), "{url}");
        }
        for socket in ["unix:///tmp/api.sock", "tcp://127.0.0.1:8081", "tcp://[::1]:8081"] {
            assert!(with("SPIFFE_ENDPOINT_SOCKET", socket).is_empty(), "{socket}");
        }
    }
}
