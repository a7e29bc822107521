//! The client of the facade: readiness, reports, RunnerService calls, over one pool of connections.
//!
//! Held here: every call carries the assignment id and the capability and nothing that the job sent along, and every
//! call has a deadline of our own (NEW-165).

use std::time::Duration;

use bytes::Bytes;
use domain::excerpt;
use domain::executor_api::{ASSIGNMENT_HEADER, CAPABILITY_HEADER, NotReady, READY_PATH, REPORT_PATH, Reply, Report};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use serde::Deserialize;

use crate::answer::Outcome;
use crate::link::Link;
use crate::proxy::paths::Procedure;

/// Longer texts of errors are cut.
const LONGEST_TEXT: usize = 200;

/// Largest reply that is read: a Task with large outputs of its needs.
const REPLY_LIMIT: usize = 64 << 20;

const AGENT: &str = concat!("gitea-task-executor/", env!("CARGO_PKG_VERSION"));

/// The two headers that make a call this assignment's.
#[derive(Clone)]
pub(crate) struct Credentials {
    assignment: HeaderValue,
    capability: HeaderValue,
}

impl Credentials {
    /// None when a text cannot stand in a header.
    pub(crate) fn new(assignment: &str, capability: &str) -> Option<Self> {
        let mut capability = HeaderValue::from_str(capability).ok()?;
        capability.set_sensitive(true);
        Some(Self { assignment: HeaderValue::from_str(assignment).ok()?, capability })
    }

    /// Replaces whatever the headers say about identity.
    pub(crate) fn put(&self, headers: &mut HeaderMap) {
        headers.insert(ASSIGNMENT_HEADER, self.assignment.clone());
        headers.insert(CAPABILITY_HEADER, self.capability.clone());
    }
}

/// See the module.
pub(crate) struct Facade {
    client: Client<Link, Full<Bytes>>,
    authority: Authority,
    credentials: Credentials,
}

/// What came back of a call.
pub(crate) struct Answer {
    /// None when nothing came.
    pub(crate) status: Option<StatusCode>,
    /// Headers of the reply.
    pub(crate) headers: HeaderMap,
    /// Body of the reply, or the text of the failure.
    pub(crate) body: Bytes,
    /// What the call carried, to be kept out of what is said about the answer.
    capability: HeaderValue,
}

/// An error as Connect writes it (Gitea contract §3.1).
#[derive(Deserialize)]
struct ConnectError {
    code: String,
    #[serde(default)]
    message: String,
}

impl Answer {
    /// What it means.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::of(self.status)
    }

    /// One line for the log. Of a body nothing is taken but the text of an error in Connect's form, so that no task
    /// gets into a log, whatever status it came with.
    pub(crate) fn problem(&self) -> String {
        let Some(status) = self.status else {
            return String::from_utf8_lossy(&self.body).into_owned();
        };
        match serde_json::from_slice::<ConnectError>(&self.body) {
            Ok(error) if !status.is_success() => {
                // Only visible ASCII was allowed into the header.
                let capability = self.capability.to_str().unwrap_or_default();
                let excerpt = |text: &str| excerpt::without(capability, text, LONGEST_TEXT);
                format!("{status}: {}: {}", excerpt(&error.code), excerpt(&error.message))
            }
            _ => status.to_string(),
        }
    }
}

impl Facade {
    /// A client of the facade at `authority`.
    pub(crate) fn new(link: Link, authority: Authority, credentials: Credentials) -> Self {
        Self { client: link.client(), authority, credentials }
    }

    /// Asks whether the facade is ready for us (NEW-105).
    ///
    /// # Errors
    /// What is missing, in one word of the facade, or why it cannot be asked.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), String> {
        let answer = self.call(Method::GET, READY_PATH, HeaderMap::new(), Bytes::new(), limit).await;
        if answer.status == Some(StatusCode::OK) {
            return Ok(());
        }
        match serde_json::from_slice::<NotReady>(&answer.body) {
            Ok(NotReady { missing }) => Err(format!("the facade says that this is not right yet: {missing}")),
            Err(_) => Err(answer.problem()),
        }
    }

    /// Tells the facade something about us. The outcome is `Accepted` with a reply only.
    pub(crate) async fn report(&self, report: &Report, limit: Duration) -> (Outcome, Option<Reply>) {
        let body = serde_json::to_vec(report).unwrap_or_default();
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let answer = self.call(Method::POST, REPORT_PATH, headers, body.into(), limit).await;
        let outcome = answer.outcome();
        if outcome != Outcome::Accepted {
            tracing::debug!(problem = %answer.problem(), "report not accepted");
            return (outcome, None);
        }
        match serde_json::from_slice(&answer.body) {
            Ok(reply) => (outcome, Some(reply)),
            Err(_) => (Outcome::Unavailable, None),
        }
    }

    /// Makes a RunnerService call with a body in protobuf form.
    pub(crate) async fn rpc(&self, procedure: Procedure, body: Bytes, limit: Duration) -> Answer {
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/proto")),
            (http::HeaderName::from_static("connect-protocol-version"), HeaderValue::from_static("1")),
        ]);
        self.call(Method::POST, procedure.path(), headers, body, limit).await
    }

    async fn call(&self, method: Method, path: &str, mut headers: HeaderMap, body: Bytes, limit: Duration) -> Answer {
        self.credentials.put(&mut headers);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let request = Request::builder().method(method).uri(format!("https://{}{path}", self.authority));
        let request = match request.body(Full::new(body)) {
            Ok(mut request) => {
                request.headers_mut().extend(headers);
                request
            }
            Err(error) => return self.none(&format!("the facade's address {}: {error}", self.authority)),
        };
        match tokio::time::timeout(limit, self.exchange(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(problem)) => self.none(&problem),
            Err(_) => self.none(&format!("no answer in {limit:?}")),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let response = self.client.request(request).await.map_err(|error| with_causes(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, REPLY_LIMIT).collect().await.map_err(|error| with_causes(error.as_ref()))?;
        Ok(self.answer(Some(parts.status), parts.headers, body.to_bytes()))
    }

    fn none(&self, problem: &str) -> Answer {
        self.answer(None, HeaderMap::new(), Bytes::copy_from_slice(problem.as_bytes()))
    }

    fn answer(&self, status: Option<StatusCode>, headers: HeaderMap, body: Bytes) -> Answer {
        Answer { status, headers, body, capability: self.credentials.capability.clone() }
    }
}

/// An error with everything below it, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const CAPABILITY: &str = "0123456789abcdef0123456789abcdef01234567";

    #[track_caller]
    fn check(status: Option<u16>, body: &str, problem: &str) {
        let status = status.map(|status| StatusCode::from_u16(status).unwrap());
        let (headers, capability) = (HeaderMap::new(), HeaderValue::from_static(CAPABILITY));
        let answer = Answer { status, headers, body: Bytes::copy_from_slice(body.as_bytes()), capability };
        assert_eq!(answer.problem(), problem);
    }

    /// Invariant 10: what an answer brings is not logged, only what a failure says about itself.
    #[test]
    fn what_is_said_of_an_answer() {
        check(None, "no answer in 5s", "no answer in 5s");
        check(
            Some(503),
            r#"{"code":"unavailable","message":"not yet"}"#,
            "503 Service Unavailable: unavailable: not yet",
        );
        check(Some(401), r#"{"code":"unauthenticated"}"#, "401 Unauthorized: unauthenticated: ");
        for status in [200, 206, 500] {
            let line = StatusCode::from_u16(status).unwrap().to_string();
            check(Some(status), "\u{8}l\u{12}PASSWORD=hunter2", &line);
        }
        check(Some(200), r#"{"code":"x","message":"hunter2"}"#, "200 OK");
    }

    /// NEW-141, F28: a capability across the limit of the text leaves nothing of itself.
    #[test]
    fn an_error_that_quotes_our_capability() {
        let before = "x".repeat(180);
        let body = format!(r#"{{"code":"unavailable","message":"{before}{CAPABILITY}"}}"#);
        check(Some(503), &body, &format!("503 Service Unavailable: unavailable: {before}[redacted]"));
    }
}
