//! A tiny Connect client of RunnerService, for tests that play a runner.
//!
//! It is written against the contract and shares nothing with the product's own client. Every call has a deadline.

use std::time::Duration;

use buffa::Message;
use bytes::Bytes;
use connectrpc::ErrorCode;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use runner_proto::runner::v1::{
    DeclareRequest, DeclareResponse, FetchTaskRequest, FetchTaskResponse, RegisterRequest, RegisterResponse,
    Result as TaskResult, Task, TaskState, UpdateLogRequest, UpdateLogResponse, UpdateTaskRequest, UpdateTaskResponse,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::gitea::{Method, grpc_error};

/// What a runner was given at its registration.
#[derive(Clone)]
pub struct Credentials {
    /// `x-runner-uuid`.
    pub uuid: String,
    /// `x-runner-token`.
    pub token: String,
}

impl Credentials {
    /// From both parts.
    #[must_use]
    pub fn new(uuid: impl Into<String>, token: impl Into<String>) -> Self {
        Self { uuid: uuid.into(), token: token.into() }
    }
}

/// The body's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/proto`.
    Proto,
    /// `application/json`.
    Json,
}

impl Encoding {
    fn content_type(self) -> &'static str {
        match self {
            Self::Proto => "application/proto",
            Self::Json => "application/json",
        }
    }
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct RawAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// Why a call gave no message.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server refused.
    #[error("HTTP {status}: {code:?}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The code that counts: the parsed one where Gitea hides it in a text (§3.2), else the one of the status.
        code: ErrorCode,
        /// The text without the gRPC prefix.
        message: String,
        /// The body as it came.
        body: String,
    },
    /// No answer: refused, cut or too late.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// An answer that is no message.
    #[error("unreadable answer: {0}")]
    Unreadable(String),
}

impl CallError {
    /// The code that counts, if the server refused.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::NoAnswer(_) | Self::Unreadable(_) => None,
        }
    }
}

/// A client for one base URL and one registration.
#[derive(Clone)]
pub struct RunnerClient {
    base: String,
    credentials: Option<Credentials>,
    encoding: Encoding,
    deadline: Duration,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl RunnerClient {
    /// A client that speaks proto and waits 10 s for an answer. `url` is the instance URL.
    #[must_use]
    pub fn new(url: &str, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..Self::anonymous(url) }
    }

    /// A client without credentials, for Register and Ping.
    #[must_use]
    pub fn anonymous(url: &str) -> Self {
        Self {
            base: url.trim_end_matches('/').to_owned(),
            credentials: None,
            encoding: Encoding::Proto,
            deadline: Duration::from_secs(10),
            http: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Speaks this encoding instead.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// Waits so long for an answer.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Registers, and returns a client with what it got.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn register(&self, name: &str, token: &str, labels: &[&str]) -> Result<Self, CallError> {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let request = RegisterRequest { name: name.into(), token: token.into(), labels, ..Default::default() };
        let response: RegisterResponse = self.call(Method::Register, &request).await?;
        let runner = response.runner.into_option().unwrap_or_default();
        Ok(Self { credentials: Some(Credentials::new(runner.uuid, runner.token)), ..self.clone() })
    }

    /// The credentials it uses.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// Declares labels and capabilities.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn declare(&self, labels: &[&str], capabilities: &[&str]) -> Result<DeclareResponse, CallError> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let version = "testkit".into();
        let (labels, capabilities) = (own(labels), own(capabilities));
        self.call(Method::Declare, &DeclareRequest { version, labels, capabilities, ..Default::default() }).await
    }

    /// Fetches with this tasks version.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn fetch(&self, tasks_version: i64) -> Result<FetchTaskResponse, CallError> {
        self.call(Method::FetchTask, &FetchTaskRequest { tasks_version, ..Default::default() }).await
    }

    /// Fetches with version 0; the task, if there is one.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn take(&self) -> Result<Option<Task>, CallError> {
        Ok(self.fetch(0).await?.task.into_option())
    }

    /// Sends a task's state; the result that the reply carries.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn update(&self, state: TaskState) -> Result<TaskResult, CallError> {
        let request = UpdateTaskRequest { state: Some(state).into(), ..Default::default() };
        let response = self.update_task(&request).await?;
        Ok(response.state.result.as_known().unwrap_or_default())
    }

    /// UpdateTask.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn update_task(&self, request: &UpdateTaskRequest) -> Result<UpdateTaskResponse, CallError> {
        self.call(Method::UpdateTask, request).await
    }

    /// UpdateLog; the number of rows stored.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn update_log(&self, request: &UpdateLogRequest) -> Result<i64, CallError> {
        let response: UpdateLogResponse = self.call(Method::UpdateLog, request).await?;
        Ok(response.ack_index)
    }

    /// Any call.
    ///
    /// # Errors
    ///
    /// As the server refuses.
    pub async fn call<Q, A>(&self, method: Method, request: &Q) -> Result<A, CallError>
    where
        Q: Message + Serialize,
        A: Message + DeserializeOwned,
    {
        let unreadable = |error: &dyn std::fmt::Display| CallError::Unreadable(error.to_string());
        let body = match self.encoding {
            Encoding::Proto => request.encode_to_vec(),
            Encoding::Json => serde_json::to_vec(request).map_err(|error| unreadable(&error))?,
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.encoding.content_type()));
        headers.insert("connect-protocol-version", HeaderValue::from_static("1"));
        let answer = self.raw(method, headers, body.into()).await?;
        if answer.status != StatusCode::OK {
            return Err(refused(&answer));
        }
        match self.encoding {
            Encoding::Proto => A::decode_from_slice(&answer.body).map_err(|error| unreadable(&error)),
            Encoding::Json => serde_json::from_slice(&answer.body).map_err(|error| unreadable(&error)),
        }
    }

    /// A POST with these headers, the credentials added, and this very body.
    ///
    /// # Errors
    ///
    /// Only if there is no answer.
    pub async fn raw(&self, method: Method, headers: HeaderMap, body: Bytes) -> Result<RawAnswer, CallError> {
        self.send(http::Method::POST, &format!("/api/actions/{}", method.path()), headers, body).await
    }

    /// Any verb and any path, with its query.
    ///
    /// # Errors
    ///
    /// Only if there is no answer.
    pub async fn send(
        &self,
        verb: http::Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<RawAnswer, CallError> {
        let none = |error: &dyn std::fmt::Debug| CallError::NoAnswer(format!("{error:?}"));
        let request = http::Request::builder().method(verb).uri(format!("{}{path}", self.base));
        let mut request = request.body(Full::new(body)).map_err(|error| none(&error))?;
        *request.headers_mut() = headers;
        if let Some(Credentials { uuid, token }) = &self.credentials {
            for (name, value) in [("x-runner-uuid", uuid), ("x-runner-token", token)] {
                let value = HeaderValue::from_str(value).map_err(|error| none(&error))?;
                request.headers_mut().insert(name, value);
            }
        }
        let exchange = async {
            let (parts, body) = self.http.request(request).await.map_err(|error| none(&error))?.into_parts();
            let body = body.collect().await.map_err(|error| none(&error))?.to_bytes();
            Ok(RawAnswer { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(self.deadline, exchange).await.map_err(|error| none(&error))?
    }
}

fn refused(answer: &RawAnswer) -> CallError {
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    let parsed: Option<serde_json::Value> = serde_json::from_str(&body).ok();
    let field = |name: &str| parsed.as_ref().and_then(|json| json.get(name)?.as_str().map(str::to_owned));
    let message = field("message").unwrap_or_else(|| body.clone());
    let status = answer.status.as_u16();
    if let Some((code, text)) = grpc_error(&message) {
        return CallError::Refused { status, code, message: text.into(), body };
    }
    let named = field("code")
        .and_then(|name| (1..=16).filter_map(ErrorCode::from_grpc_code).find(|code| code.as_str() == name));
    CallError::Refused { status, code: named.unwrap_or_else(|| of_status(status)), message, body }
}

/// The code of an answer that is no Connect error (§3.1).
fn of_status(status: u16) -> ErrorCode {
    match status {
        400 => ErrorCode::Internal,
        401 => ErrorCode::Unauthenticated,
        403 => ErrorCode::PermissionDenied,
        404 => ErrorCode::Unimplemented,
        429 | 502..=504 => ErrorCode::Unavailable,
        _ => ErrorCode::Unknown,
    }
}
