//! What jobs reach besides RunnerService: git, REST, artifacts. A stub that tells what it saw.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use jiff::Timestamp;
use serde_json::json;

use super::codec::{Body, text};
use super::rules::Rules;
use super::server::Status;
use super::shared::Shared;

const ARTIFACTS: &str = "/twirp/github.actions.results.api.v1.ArtifactService/";
const DOWNLOAD: &str = "/-/bytes/";
const CHUNK: usize = 64 * 1024;

/// A request that was no RunnerService call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When its body had arrived, on Gitea's clock.
    pub at: Timestamp,
    /// Its verb.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query, without the question mark; empty if there is none.
    pub query: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The bytes of its body.
    pub body_bytes: u64,
    /// The status it was answered with.
    pub status: u16,
}

impl Seen {
    /// The first value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(each, _)| each == name).map(|(_, value)| value.as_str())
    }
}

/// Answers and records it. `GET /-/bytes/N` answers N bytes; everything unknown is answered with what was seen.
pub(crate) async fn answer(shared: &Arc<Shared>, parts: http::request::Parts, body: Incoming) -> Response<Body> {
    let body_bytes = count(body).await;
    let value = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut seen = Seen {
        at: shared.look(|world| world.clock.now()),
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers.iter().map(|(name, header)| (name.to_string(), value(header))).collect(),
        body_bytes,
        status: 200,
    };
    let rules = shared.look(|world| world.server.rules.clone());
    let response = refusal(shared, &parts.headers).unwrap_or_else(|| reply(&seen, &parts.headers, &rules));
    seen.status = response.status().as_u16();
    shared.change(|world| world.seen.push(seen));
    response
}

async fn count(mut body: Incoming) -> u64 {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    bytes
}

/// The tokens of a job die with it (§8, §12).
fn refusal(shared: &Shared, headers: &HeaderMap) -> Option<Response<Body>> {
    let token = credential(headers)?;
    shared.look(|world| {
        let tasks = &world.server.tasks;
        let job_token = tasks.values().find(|task| task.token == token);
        let runtime = tasks.values().find(|task| task.runtime_token == token);
        if job_token.is_some_and(|task| task.status.is_end() && world.server.rules.job_token_dies) {
            let body = r#"{"message":"invalid username, password or token"}"#;
            return Some(text(StatusCode::UNAUTHORIZED, "application/json", body));
        }
        let running = runtime.is_none_or(|task| task.status == Status::Running);
        (!running && world.server.rules.artifacts_want_running)
            .then(|| text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "task is not running"))
    })
}

/// The secret in `Authorization`, whatever the scheme.
fn credential(headers: &HeaderMap) -> Option<String> {
    let (scheme, rest) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Some(rest.trim().to_owned());
    }
    let pair = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (user, password) = pair.split_once(':')?;
    Some(if password.is_empty() || password == "x-oauth-basic" { user } else { password }.to_owned())
}

fn reply(seen: &Seen, headers: &HeaderMap, rules: &Rules) -> Response<Body> {
    let ok = |body: serde_json::Value| text(StatusCode::OK, "application/json", body.to_string());
    if let Some(bytes) = seen.path.strip_prefix(DOWNLOAD).and_then(|bytes| bytes.parse().ok()) {
        return download(bytes);
    }
    match (seen.path.as_str(), seen.path.strip_prefix(ARTIFACTS)) {
        ("/api/v1/version", _) => ok(json!({"version": "1.26.0"})),
        ("/api/healthz", _) => ok(json!({"status": "pass"})),
        (_, Some("CreateArtifact")) => {
            ok(json!({"ok": true, "signedUploadUrl": signed(headers, rules, "UploadArtifact")}))
        }
        (_, Some("GetSignedArtifactURL")) => ok(json!({"signedUrl": signed(headers, rules, "DownloadArtifact")})),
        (path, None) if is_third_version(path) => {
            let url = format!("{}{path}/0f5a/upload", origin(headers, rules));
            ok(json!({"fileContainerResourceUrl": url}))
        }
        (_, Some("UploadArtifact")) => text(StatusCode::CREATED, "application/json", "\"success\""),
        _ => ok(json!({
            "method": seen.method, "path": seen.path, "query": seen.query,
            "headers": seen.headers, "bodyBytes": seen.body_bytes,
        })),
    }
}

/// `…/workflows/{run}/artifacts`, which begins an artifact of the third version (§12).
fn is_third_version(path: &str) -> bool {
    path.starts_with("/api/actions_pipeline/_apis/pipelines/workflows/") && path.ends_with("/artifacts")
}

/// An absolute URL made from what the request was sent to (§12).
fn signed(headers: &HeaderMap, rules: &Rules, method: &str) -> String {
    format!("{}{ARTIFACTS}{method}?sig=c2ln&artifactName=art&taskID=1&artifactID=1", origin(headers, rules))
}

/// Scheme and host as the request names them.
fn origin(headers: &HeaderMap, rules: &Rules) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let told = header("x-forwarded-proto").filter(|_| rules.artifact_urls_follow_scheme);
    let host = header(HOST.as_str()).filter(|_| rules.artifact_urls_follow_host);
    format!("{}://{}", told.unwrap_or("http"), host.unwrap_or("gitea.invalid"))
}

fn download(bytes: usize) -> Response<Body> {
    let chunks = (0..bytes.div_ceil(CHUNK)).map(move |chunk| {
        let size = CHUNK.min(bytes - chunk * CHUNK);
        Ok(Frame::data(Bytes::from(vec![0; size])))
    });
    Response::new(StreamBody::new(futures::stream::iter(chunks)).boxed_unsync())
}
