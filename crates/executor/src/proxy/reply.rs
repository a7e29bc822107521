//! Replies that the proxy makes itself.

use bytes::Bytes;
use forward::BoxError;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

use crate::facade::Answer;

/// The body of every reply.
pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// What of the facade's reply headers a runner needs (NEW-25 for the second).
const PASSED: [HeaderName; 2] = [CONTENT_TYPE, HeaderName::from_static("x-gitea-actions-capabilities")];

/// A body that is already there.
pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A plain text.
pub(super) fn text(status: StatusCode, text: &str) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", text.to_owned())
}

/// A Connect error with the code that belongs to the status (Gitea contract §3.1).
pub(super) fn connect_error(status: StatusCode, code: &str, message: &str) -> Response<Body> {
    let body = serde_json::json!({ "code": code, "message": message });
    with_type(status, "application/json", body.to_string())
}

/// `unavailable`: every runner comes again.
pub(super) fn unavailable(message: &str) -> Response<Body> {
    connect_error(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
}

/// A successful protobuf message.
pub(super) fn message(bytes: Vec<u8>) -> Response<Body> {
    with_type(StatusCode::OK, "application/proto", bytes)
}

/// The facade's reply to a RunnerService call, or `unavailable` when there is none.
pub(super) fn passed(answer: Answer) -> Response<Body> {
    let Some(status) = answer.status else { return unavailable(&answer.problem()) };
    let mut response = Response::new(full(answer.body));
    *response.status_mut() = status;
    for name in PASSED {
        if let Some(value) = answer.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

fn with_type(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
