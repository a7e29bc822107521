//! The two files the official runner reads: its registration (`.runner`, requirements §1.3) and its configuration.
//!
//! Held here: the registration carries the loopback token and never the capability, its address is http on loopback,
//! and every label is a host label, so that no job lands in Docker (BST-3, BST-4, NEW-118).

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::token::LoopbackToken;

const WARNING: &str = "Generated for one pre-assigned task. It is good for nothing else; do not edit it.";

/// What the files are made of.
pub(crate) struct Registration<'a> {
    /// uuid and name of the runner.
    pub(crate) assignment: &'a str,
    /// Where the proxy listens.
    pub(crate) proxy: SocketAddr,
    /// What the proxy accepts.
    pub(crate) token: &'a LoopbackToken,
    /// Labels of the job, without schema.
    pub(crate) labels: &'a [String],
}

/// Names of the files that were written.
pub(crate) struct Files {
    /// The registration.
    pub(crate) registration: PathBuf,
    /// The configuration.
    pub(crate) config: PathBuf,
}

/// The files could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    /// The proxy's address is no loopback address.
    #[error("proxy address {0}: the runner's registration may name a loopback address only")]
    NotLoopback(SocketAddr),
    /// The base configuration cannot be used.
    #[error("GITEA_RUNNER_CONFIG {}: {source}; it must be a YAML mapping as `gitea-runner generate-config` prints", path.display())]
    Base {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BaseError,
    },
    /// A file could not be written.
    #[error("write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A base configuration of the runner cannot be used. The texts hold nothing of the file, which may hold secrets.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// It is no YAML mapping.
    #[error("{0}")]
    Malformed(String),
}

/// Writes both files, mode 0600, into `dir`.
///
/// `timeout` is the remaining run time of the job; `base` the configuration that ours is laid over.
pub(crate) fn write(
    dir: &Path,
    registration: &Registration<'_>,
    timeout: Duration,
    base: Option<&Path>,
) -> Result<Files, FilesError> {
    let base = base.map(base_of).transpose()?.unwrap_or_default();
    let files = Files { registration: dir.join(".runner"), config: dir.join("config.yaml") };
    let config = config(base, &files.registration, &host_labels(registration.labels), timeout);
    write_new(&files.registration, &registration_text(registration)?)?;
    // JSON is YAML; so no emitter is needed.
    write_new(&files.config, &format!("{config:#}\n"))?;
    Ok(files)
}

/// The text of `.runner`.
fn registration_text(registration: &Registration<'_>) -> Result<String, FilesError> {
    #[derive(Serialize)]
    struct Text<'a> {
        #[serde(rename = "WARNING")]
        warning: &'a str,
        id: i64,
        uuid: &'a str,
        name: &'a str,
        token: &'a str,
        address: String,
        labels: Vec<String>,
        ephemeral: bool,
    }
    if !registration.proxy.ip().is_loopback() {
        return Err(FilesError::NotLoopback(registration.proxy));
    }
    let text = Text {
        warning: WARNING,
        id: 0,
        uuid: registration.assignment,
        name: registration.assignment,
        token: registration.token.expose(),
        address: format!("http://{}", registration.proxy),
        labels: host_labels(registration.labels),
        ephemeral: true,
    };
    let mut json = serde_json::to_string_pretty(&text).unwrap_or_default();
    json.push('\n');
    Ok(json)
}

fn host_labels(labels: &[String]) -> Vec<String> {
    labels.iter().map(|label| format!("{label}:host")).collect()
}

/// Defaults, then the base configuration, then what must hold (NEW-115).
fn config(base: Map<String, Value>, registration: &Path, labels: &[String], timeout: Duration) -> Value {
    let mut config = json!({
        "log": { "level": "info" },
        "runner": { "env_file": "" },
        "cache": { "enabled": false },
        "metrics": { "enabled": false },
    });
    merge(&mut config, Value::Object(base));
    let ours = json!({
        "runner": {
            "file": registration.to_string_lossy(),
            "capacity": 1,
            // Never 0: the runner reads that as its own default of 3 h.
            "timeout": format!("{}s", timeout.as_secs().max(1)),
            "shutdown_timeout": "0s",
            "fetch_timeout": "5s",
            "fetch_interval": "200ms",
            "fetch_interval_max": "1s",
            "report_close_timeout": "2m",
            "labels": labels,
        },
    });
    merge(&mut config, ours);
    config
}

/// Lays `over` over `under`; mappings are merged, everything else is replaced.
fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

/// Whether an executor could lay its own settings over the runner configuration at this path.
///
/// # Errors
/// [`BaseError`], the same that would end an executor before its runner starts.
pub fn check_base(path: &Path) -> Result<(), BaseError> {
    read_base(path).map(drop)
}

fn base_of(path: &Path) -> Result<Map<String, Value>, FilesError> {
    read_base(path).map_err(|source| FilesError::Base { path: path.to_owned(), source })
}

fn read_base(path: &Path) -> Result<Map<String, Value>, BaseError> {
    let text = std::fs::read_to_string(path).map_err(BaseError::Unreadable)?;
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    match serde_saphyr::from_str_with_options::<Value>(&text, options) {
        Ok(Value::Object(base)) => Ok(base),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(BaseError::Malformed("it is no mapping".to_owned())),
        Err(error) => Err(BaseError::Malformed(error.to_string())),
    }
}

fn write_new(path: &Path, text: &str) -> Result<(), FilesError> {
    let unwritable = |source| FilesError::Unwritable { path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
    file.write_all(text.as_bytes()).map_err(unwritable)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn written(proxy: &str, base: Option<&str>) -> Result<(String, Value, u32), FilesError> {
        let dir = tempfile::tempdir().unwrap();
        let base_file = dir.path().join("base.yaml");
        let base = base.map(|text| {
            std::fs::write(&base_file, text).unwrap();
            base_file.as_path()
        });
        let token = LoopbackToken::from_text("loopback");
        let labels = ["self-hosted".to_owned(), "pod-large".to_owned()];
        let registration =
            Registration { assignment: "gitea-task-42", proxy: proxy.parse().unwrap(), token: &token, labels: &labels };
        let files = write(dir.path(), &registration, Duration::from_secs(90), base)?;
        let config = serde_json::from_str(&std::fs::read_to_string(&files.config).unwrap()).unwrap();
        let mode = std::fs::metadata(&files.registration).unwrap().permissions().mode() & 0o777;
        Ok((std::fs::read_to_string(&files.registration).unwrap(), config, mode))
    }

    /// BST-3, §1.3: the very text, and who may read it.
    #[test]
    fn registration() {
        let (text, _, mode) = written("127.0.0.1:4711", None).unwrap();
        let expect = format!(
            r#"{{
  "WARNING": "{WARNING}",
  "id": 0,
  "uuid": "gitea-task-42",
  "name": "gitea-task-42",
  "token": "loopback",
  "address": "http://127.0.0.1:4711",
  "labels": [
    "self-hosted:host",
    "pod-large:host"
  ],
  "ephemeral": true
}}
"#
        );
        assert_eq!(text, expect);
        assert_eq!(mode, 0o600);
    }

    /// BST-4.
    #[test]
    fn loopback_only() {
        let error = written("192.0.2.1:80", None).unwrap_err();
        assert!(matches!(error, FilesError::NotLoopback(_)), "{error}");
    }

    /// T58, NEW-115, F81: what must hold.
    #[test]
    fn fixed_settings() {
        let (_, config, _) = written("127.0.0.1:1", None).unwrap();
        let runner = config.get("runner").unwrap();
        for (key, value) in [
            ("capacity", json!(1)),
            ("timeout", json!("90s")),
            ("shutdown_timeout", json!("0s")),
            ("report_close_timeout", json!("2m")),
            ("labels", json!(["self-hosted:host", "pod-large:host"])),
        ] {
            assert_eq!(runner.get(key), Some(&value), "{key}");
        }
        assert_eq!(config.pointer("/cache/enabled"), Some(&json!(false)));
    }

    /// T58, NEW-115, §2.2, F81: the base configuration is kept where nothing must hold, and cannot loosen what must.
    #[test]
    fn base_configuration() {
        let base = "runner:\n  capacity: 9\n  shutdown_timeout: 3h\n  labels: ['x:docker://y']\n  envs: {A: b}\n  \
                    hooks: {job_started: /hook}\ncache: {enabled: true, external_server: 'http://c/'}\n";
        let (_, config, _) = written("127.0.0.1:1", Some(base)).unwrap();
        for (pointer, value) in [
            ("/runner/capacity", json!(1)),
            ("/runner/shutdown_timeout", json!("0s")),
            ("/runner/labels", json!(["self-hosted:host", "pod-large:host"])),
            ("/runner/envs/A", json!("b")),
            ("/runner/hooks/job_started", json!("/hook")),
            ("/cache/enabled", json!(true)),
            ("/cache/external_server", json!("http://c/")),
        ] {
            assert_eq!(config.pointer(pointer), Some(&value), "{pointer}");
        }
        let error = written("127.0.0.1:1", Some("- a\n")).unwrap_err();
        assert!(error.to_string().contains("no mapping"), "{error}");
        let error = written("127.0.0.1:1", Some("runner:\n  envs: {TOKEN: hush\n")).unwrap_err().to_string();
        assert!(error.contains("line") && !error.contains("hush"), "{error}");
    }
}
