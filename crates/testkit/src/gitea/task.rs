//! Builds the message that FetchTask hands out.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use buffa::Message as _;
use buffa_types::google::protobuf::Struct;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use runner_proto::runner::v1::{Result as TaskResult, Task, TaskNeed};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use super::job::JobSpec;
use super::yaml;

/// What a task knows of the job it needs.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) result: TaskResult,
    pub(crate) outputs: BTreeMap<String, String>,
}

/// The numbers and secrets of one attempt.
#[derive(Clone)]
pub(crate) struct Attempt {
    pub(crate) task: i64,
    pub(crate) run: i64,
    pub(crate) run_number: i64,
    pub(crate) attempt: usize,
    pub(crate) base_url: String,
    pub(crate) token: String,
    pub(crate) runtime_token: String,
}

/// The whole task (§11).
pub(crate) fn message(spec: &JobSpec, attempt: &Attempt, needs: &BTreeMap<String, Need>) -> Task {
    let payload = spec.payload.clone().unwrap_or_else(|| yaml::payload(spec).into_bytes());
    let mut secrets: std::collections::HashMap<_, _> = spec.secrets.clone().into_iter().collect();
    secrets.insert("GITHUB_TOKEN".into(), attempt.token.clone());
    secrets.insert("GITEA_TOKEN".into(), attempt.token.clone());
    let need = |(key, need): (&String, &Need)| {
        let outputs = need.outputs.clone().into_iter().collect();
        (key.clone(), TaskNeed { outputs, result: need.result.into(), ..Default::default() })
    };
    let task = Task {
        id: attempt.task,
        workflow_payload: Some(payload),
        context: Some(context(spec, attempt)).into(),
        secrets: secrets.into_iter().collect(),
        needs: needs.iter().map(need).collect(),
        vars: spec.vars.clone().into_iter().collect(),
        ..Default::default()
    };
    with_unknown_fields(task, &spec.unknown_fields)
}

/// Appends fields that this build's messages do not know; they survive in the message.
fn with_unknown_fields(task: Task, wire: &[u8]) -> Task {
    if wire.is_empty() {
        return task;
    }
    let mut bytes = task.encode_to_vec();
    bytes.extend_from_slice(wire);
    Task::decode_from_slice(&bytes).unwrap_or(task)
}

/// The context as Gitea 1.26 fills it (§11.2).
fn context(spec: &JobSpec, attempt: &Attempt) -> Struct {
    let mut keys = Map::new();
    for empty in [
        "action",
        "action_path",
        "action_ref",
        "action_repository",
        "action_status",
        "base_ref",
        "env",
        "event_path",
        "graphql_url",
        "head_ref",
        "path",
        "retention_days",
        "triggering_actor",
        "workspace",
    ] {
        keys.insert(empty.into(), json!(""));
    }
    let base = attempt.base_url.trim_end_matches('/');
    for (key, value) in [
        ("actor", "dev".to_owned()),
        ("api_url", format!("{base}/api/v1")),
        ("event_name", spec.event_name.clone()),
        ("gitea_default_actions_url", base.to_owned()),
        ("gitea_runtime_token", attempt.runtime_token.clone()),
        ("job", spec.key.clone()),
        ("ref", "refs/heads/main".into()),
        ("ref_name", "main".into()),
        ("ref_type", "branch".into()),
        ("repository", spec.repository.clone()),
        ("repositoryUrl", format!("{base}/{}", spec.repository)),
        ("repository_owner", spec.owner().to_owned()),
        ("run_attempt", attempt.attempt.to_string()),
        ("run_id", attempt.run.to_string()),
        ("run_number", attempt.run_number.to_string()),
        ("secret_source", "Actions".into()),
        ("server_url", format!("{base}/")),
        ("sha", "4af1".repeat(10)),
        ("token", attempt.token.clone()),
        ("workflow", spec.workflow_file.clone()),
    ] {
        keys.insert(key.into(), Value::String(value));
    }
    keys.insert("ref_protected".into(), json!(false));
    keys.insert("event".into(), spec.event.clone().unwrap_or_else(|| default_event(spec, base)));
    keys.extend(spec.context.clone());
    serde_json::from_value(Value::Object(keys)).unwrap_or_default()
}

fn default_event(spec: &JobSpec, base: &str) -> Value {
    let repository = json!({
        "id": spec.ids.0, "full_name": spec.repository, "default_branch": "main", "private": true, "fork": false,
        "html_url": format!("{base}/{}", spec.repository), "owner": {"id": spec.ids.1, "login": spec.owner(), "username": spec.owner()},
    });
    json!({"ref": "refs/heads/main", "repository": repository, "sender": {"login": "dev", "username": "dev"}})
}

/// A token like `gitea_runtime_token`: HS256, claims as §11.2 names them.
pub(crate) fn runtime_token(key: &[u8], task: i64, job: i64, run: i64, now: Timestamp, endless_seconds: i64) -> String {
    let claims = json!({
        "scp": format!("Actions.Results:{run}:{job}"), "TaskID": task, "RunID": run, "JobID": job,
        "nbf": now.as_second(), "exp": now.as_second() + 3600 + endless_seconds, "ac": "",
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(&claims));
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(sign(key, text.as_bytes())))
}

/// HMAC-SHA256.
pub(crate) fn sign(key: &[u8], text: &[u8]) -> Vec<u8> {
    // An HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}
