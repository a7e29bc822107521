//! Bodies and headers of Connect unary as Gitea reads and writes them: JSON, proto, gzip, deadlines, error bodies.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::{CodecFormat, CompressionRegistry, ConnectError, ErrorCode, GzipProvider};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use runner_proto::runner::v1::{FetchTaskResponse, Result as TaskResult, UpdateTaskResponse};

use super::calls::{Method, Request};
use super::refusal::PANIC;

/// Replies of this size and more are gzipped if the client likes (§1).
const GZIP_FROM: usize = 1024;
const REQUEST_LIMIT: usize = 1024 * 1024 * 1024;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A reply before it is zipped.
pub(crate) struct Plain {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) fn decode(method: Method, format: CodecFormat, body: &[u8]) -> Request {
    fn message<M>(format: CodecFormat, body: &[u8], make: impl FnOnce(M) -> Request) -> Request
    where
        M: buffa::Message + serde::de::DeserializeOwned,
    {
        let message = match format {
            CodecFormat::Json => serde_json::from_slice(body).ok(),
            _ => M::decode_from_slice(body).ok(),
        };
        message.map_or(Request::Unreadable, make)
    }
    match method {
        Method::Ping => message(format, body, Request::Ping),
        Method::Register => message(format, body, Request::Register),
        Method::Declare => message(format, body, Request::Declare),
        Method::FetchTask => message(format, body, Request::FetchTask),
        Method::UpdateTask => message(format, body, Request::UpdateTask),
        Method::UpdateLog => message(format, body, Request::UpdateLog),
    }
}

/// The task that a reply to FetchTask hands out.
pub(crate) fn response_task(format: CodecFormat, body: &[u8]) -> Option<i64> {
    response::<FetchTaskResponse>(format, body)?.task.as_option().map(|task| task.id)
}

/// The result in a reply to UpdateTask.
pub(crate) fn response_result(format: CodecFormat, body: &[u8]) -> Option<TaskResult> {
    response::<UpdateTaskResponse>(format, body)?.state.as_option()?.result.as_known()
}

fn response<M: buffa::Message + serde::de::DeserializeOwned>(format: CodecFormat, body: &[u8]) -> Option<M> {
    match format {
        CodecFormat::Json => serde_json::from_slice(body).ok(),
        _ => M::decode_from_slice(body).ok(),
    }
}

/// Gitea's words for a body that is no message; the space after `proto:` does not break (§1).
pub(crate) fn unreadable(method: Method, format: CodecFormat, body: &[u8]) -> String {
    let package = if method == Method::Ping { "pingv1" } else { "runnerv1" };
    let cause = match (format, serde_json::from_slice::<serde_json::Value>(body)) {
        (CodecFormat::Json, Err(error)) if error.is_eof() => "unexpected EOF",
        (CodecFormat::Json, _) => "syntax error",
        _ => "cannot parse invalid wire-format data",
    };
    format!("unmarshal message: unmarshal into *{package}.{}Request: proto:\u{a0}{cause}", method.name())
}

/// `Connect-Timeout-Ms`, or why it is none.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, String> {
    let Some(value) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let value = value.to_str().unwrap_or_default();
    if value.len() > 10 {
        return Err(format!("parse timeout: {value:?} has >10 digits"));
    }
    let wrong = format!("parse timeout: strconv.ParseInt: parsing {value:?}: invalid syntax");
    value.parse().map(|millis| Some(Duration::from_millis(millis))).map_err(|_| wrong)
}

fn gzip() -> CompressionRegistry {
    CompressionRegistry::new().register(GzipProvider::new())
}

pub(crate) fn unzip(headers: &HeaderMap, body: Bytes) -> Result<Bytes, ConnectError> {
    match headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok()) {
        None => Ok(body),
        Some(encoding) => gzip().decompress_with_limit(encoding, body, REQUEST_LIMIT),
    }
}

pub(crate) fn zips(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|encoding| encoding.trim().starts_with("gzip"))
}

pub(crate) fn success(reply: Plain, format: CodecFormat, zip: bool) -> Response<Body> {
    let zipped = (zip && reply.body.len() >= GZIP_FROM).then(|| gzip().compress("gzip", &reply.body).ok()).flatten();
    let mut response = text(StatusCode::OK, format.content_type(), reply.body);
    if let Some(zipped) = zipped {
        *response.body_mut() = full(zipped);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response.headers_mut().extend(reply.headers);
    response
}

pub(crate) fn failure(error: &ConnectError) -> Response<Body> {
    if error.code == ErrorCode::Internal && error.message.as_deref() == Some(PANIC) {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "application/json", "Internal Server Error");
    }
    let body = serde_json::json!({"code": error.code.as_str(), "message": error.message});
    text(error.http_status(), "application/json", body.to_string())
}

pub(crate) fn bare(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// A complete answer.
pub(crate) fn text(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body.into()));
    *response.status_mut() = status;
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response
}

fn full(body: Bytes) -> Body {
    Full::new(body).boxed_unsync()
}
