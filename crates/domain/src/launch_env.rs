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
        let labels = reader.text(LABELS).map(|text| text.split(',').map(str::to_owned).collect());
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
            labels,
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

fn is_https(text: &str) -> bool {
    let rest = text.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']))
}

fn is_endpoint(text: &str) -> bool {
    let address = |text: &str| text.parse::<std::net::SocketAddr>().is_ok();
    text.strip_prefix("unix://").is_some_and(|path| path.starts_with('/'))
        || text.strip_prefix("tcp://").is_some_and(address)
}
