//! The HTTP side: Connect unary as Gitea speaks it, and the faults that a test ordered.
//!
//! Everything that Gitea does below its handlers is here: verbs, content types, deadlines, gzip, panics, error bodies.
//! Once a call was read it takes effect even if the client leaves, as in Gitea 1.26.0 (§4.1.5).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use connectrpc::{
    CodecFormat, CompressionRegistry, ConnectError, Dispatcher, ErrorCode, GzipProvider, Payload, RequestContext,
};
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use runner_proto::ping::v1::PingServiceServer;
use runner_proto::runner::v1::RunnerServiceServer;
use tokio::net::{TcpListener, TcpStream};

use super::area;
use super::calls::{Call, CallEnd, Method, Request};
use super::fault::{Away, FaultSpec, Moment, Symptom};
use super::refusal::PANIC;
use super::service::Handlers;
use super::shared::Shared;

const PREFIX: &str = "/api/actions/";
/// Replies of this size and more are gzipped if the client likes (§1).
const GZIP_FROM: usize = 1024;
const REQUEST_LIMIT: usize = 1024 * 1024 * 1024;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut as ordered")]
pub(crate) struct Cut;

/// Answers connections until the double ends.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        shared.change(|world| world.connections += 1);
        tokio::spawn(connection(stream, shared.clone()));
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    // Small answers must not wait for each other.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answer(shared.clone(), request));
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        () = shared.stop.cancelled() => {}
        _ = served => {}
    }
}

async fn answer(shared: Arc<Shared>, request: http::Request<Incoming>) -> Result<Response<Body>, Cut> {
    match shared.look(|world| world.away) {
        Away::No => {}
        Away::Unavailable => return Ok(text(StatusCode::SERVICE_UNAVAILABLE, "text/html", "<h1>503</h1>")),
        Away::Hanging => return std::future::pending().await,
        Away::Refusing => return Err(Cut),
    }
    let (parts, body) = request.into_parts();
    let mut response = match parts.uri.path().strip_prefix(PREFIX) {
        Some(path) => match Method::from_path(path) {
            Some(method) => rpc(&shared, method, parts, body).await?,
            None => text(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "404 page not found\n"),
        },
        None => area::answer(&shared, parts, body).await,
    };
    let date =
        jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&shared.look(|world| world.clock.now()));
    if let Some(date) = date.ok().and_then(|date| HeaderValue::from_str(&date).ok()) {
        response.headers_mut().insert(DATE, date);
    }
    Ok(response)
}

async fn rpc(
    shared: &Arc<Shared>,
    method: Method,
    parts: http::request::Parts,
    body: Incoming,
) -> Result<Response<Body>, Cut> {
    if parts.method != http::Method::POST {
        let mut response = bare(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Ok(response);
    }
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = match content_type.split(';').next().unwrap_or_default().trim() {
        "application/json" => CodecFormat::Json,
        "application/proto" => CodecFormat::Proto,
        _ => return Ok(bare(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
    };
    let timeout = match timeout(&parts.headers) {
        Ok(timeout) => timeout,
        Err(message) => return Ok(failure(&ConnectError::invalid_argument(message))),
    };
    let Ok(body) = body.collect().await else { return Err(Cut) };
    let body = match unzip(&parts.headers, body.to_bytes()) {
        Ok(body) => body,
        Err(error) => return Ok(failure(&error)),
    };
    let request = decode(method, format, &body);
    let guard = enter(shared, method, &parts.headers, timeout, request.clone());
    let outcome = carry_out(shared, &guard, method, format, parts.headers, body, timeout, &request).await;
    guard.end(&outcome);
    outcome.map(|(response, _)| response)
}

/// The call itself, between the faults that a test ordered for it.
#[expect(clippy::too_many_arguments, reason = "the parts of one request")]
async fn carry_out(
    shared: &Arc<Shared>,
    guard: &Entered,
    method: Method,
    format: CodecFormat,
    headers: HeaderMap,
    body: Bytes,
    timeout: Option<Duration>,
    request: &Request,
) -> Result<(Response<Body>, String), Cut> {
    // A deadline of a millisecond is over before the handler runs; longer ones do not stop 1.26.0 (§4.1.6).
    if timeout.is_some_and(|timeout| timeout <= Duration::from_millis(1)) {
        let error = ConnectError::deadline_exceeded("context deadline exceeded");
        return Ok((failure(&error), "context deadline exceeded".into()));
    }
    if *request == Request::Unreadable {
        let error = ConnectError::invalid_argument(unreadable(method, format, &body));
        return Ok((failure(&error), "unreadable".into()));
    }
    let (fault, latency) = shared.change(|world| (world.faults.take(method), world.latency.next()));
    if let Some(fault) = fault.as_ref().filter(|fault| fault.moment == Moment::BeforeCommit) {
        return strike(guard, fault).await;
    }
    let (handled, number, zip) = (shared.clone(), guard.number, zips(&headers));
    // A task of its own: what was begun is finished even if the client leaves.
    let work = tokio::spawn(async move {
        tokio::time::sleep(latency).await;
        let result = call(&handled, method, format, headers, body).await;
        handled.change(|world| world.book.leave(number));
        result
    });
    let result = work.await.map_err(|_| Cut)?;
    if let Some(fault) = &fault {
        return strike(guard, fault).await;
    }
    Ok(match result {
        Ok(response) => {
            if method == Method::FetchTask {
                guard.note_task(response_task(format, &response.body));
            }
            (success(response, format, zip), String::new())
        }
        Err(error) => {
            let message = error.message.clone().unwrap_or_default();
            (failure(&error), message)
        }
    })
}

async fn call(
    shared: &Arc<Shared>,
    method: Method,
    format: CodecFormat,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Plain, ConnectError> {
    let context = RequestContext::new(headers);
    let payload = Payload::new(body, format);
    let handlers = Arc::new(Handlers(shared.clone()));
    let response = match method {
        Method::Ping => PingServiceServer::from_arc(handlers).call_unary(method.path(), context, payload, format),
        _ => RunnerServiceServer::from_arc(handlers).call_unary(method.path(), context, payload, format),
    };
    response.await.map(|response| Plain { headers: response.headers, body: response.body.into_contiguous() })
}

/// A reply before it is zipped.
struct Plain {
    headers: HeaderMap,
    body: Bytes,
}

async fn strike(guard: &Entered, fault: &FaultSpec) -> Result<(Response<Body>, String), Cut> {
    // Nothing works on this call any more, so a retry does not race it.
    guard.shared.change(|world| world.book.leave(guard.number));
    match &fault.symptom {
        Symptom::Answer { status, content_type, body } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok((text(status, content_type, body.clone()), body.clone()))
        }
        Symptom::Hang => std::future::pending().await,
        Symptom::Cut => Err(Cut),
    }
}

/// A call in the book; dropping it unended means that the client left.
struct Entered {
    shared: Arc<Shared>,
    number: usize,
}

impl Entered {
    fn end(&self, outcome: &Result<(Response<Body>, String), Cut>) {
        let end = match outcome {
            Ok((response, message)) => {
                CallEnd::Answered { status: response.status().as_u16(), message: message.clone() }
            }
            Err(Cut) => CallEnd::Cut,
        };
        self.shared.change(|world| world.book.end(self.number, end));
    }

    fn note_task(&self, task: Option<i64>) {
        self.shared.change(|world| {
            if let Some(call) = world.book.calls.get_mut(self.number) {
                call.task = task;
            }
        });
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared.change(|world| {
            let call = world.book.calls.get_mut(self.number).filter(|call| call.end == CallEnd::Pending);
            if let Some(call) = call {
                call.end = CallEnd::Left;
                call.took = Some(call.instant.elapsed());
            }
        });
    }
}

fn enter(
    shared: &Arc<Shared>,
    method: Method,
    headers: &HeaderMap,
    timeout: Option<Duration>,
    request: Request,
) -> Entered {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let number = shared.change(|world| {
        world.book.enter(Call {
            number: 0,
            at: world.clock.now(),
            instant: Instant::now(),
            took: None,
            method,
            runner: headers.get("x-runner-uuid").map(text),
            task: request.task(),
            summary: request.summary(),
            request,
            overlapping: false,
            timeout,
            headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            end: CallEnd::Pending,
        })
    });
    Entered { shared: shared.clone(), number }
}

fn decode(method: Method, format: CodecFormat, body: &[u8]) -> Request {
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

fn response_task(format: CodecFormat, body: &[u8]) -> Option<i64> {
    use buffa::Message as _;
    use runner_proto::runner::v1::FetchTaskResponse;
    let response: Option<FetchTaskResponse> = match format {
        CodecFormat::Json => serde_json::from_slice(body).ok(),
        _ => FetchTaskResponse::decode_from_slice(body).ok(),
    };
    response?.task.as_option().map(|task| task.id)
}

/// Gitea's words for a body that is no message; the space after `proto:` does not break (§1).
fn unreadable(method: Method, format: CodecFormat, body: &[u8]) -> String {
    let package = if method == Method::Ping { "pingv1" } else { "runnerv1" };
    let cause = match (format, serde_json::from_slice::<serde_json::Value>(body)) {
        (CodecFormat::Json, Err(error)) if error.is_eof() => "unexpected EOF",
        (CodecFormat::Json, _) => "syntax error",
        _ => "cannot parse invalid wire-format data",
    };
    format!("unmarshal message: unmarshal into *{package}.{}Request: proto:\u{a0}{cause}", method.name())
}

/// `Connect-Timeout-Ms`, or why it is none.
fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, String> {
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

fn unzip(headers: &HeaderMap, body: Bytes) -> Result<Bytes, ConnectError> {
    match headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok()) {
        None => Ok(body),
        Some(encoding) => gzip().decompress_with_limit(encoding, body, REQUEST_LIMIT),
    }
}

fn zips(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|encoding| encoding.trim().starts_with("gzip"))
}

fn success(reply: Plain, format: CodecFormat, zip: bool) -> Response<Body> {
    let zipped = (zip && reply.body.len() >= GZIP_FROM).then(|| gzip().compress("gzip", &reply.body).ok()).flatten();
    let mut response = text(StatusCode::OK, format.content_type(), reply.body);
    if let Some(zipped) = zipped {
        *response.body_mut() = full(zipped);
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response.headers_mut().extend(reply.headers);
    response
}

fn failure(error: &ConnectError) -> Response<Body> {
    if error.code == ErrorCode::Internal && error.message.as_deref() == Some(PANIC) {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "application/json", "Internal Server Error");
    }
    let body = serde_json::json!({"code": error.code.as_str(), "message": error.message});
    text(error.http_status(), "application/json", body.to_string())
}

fn bare(status: StatusCode) -> Response<Body> {
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

/// The moment a body was read, for the record of the area.
pub(crate) fn now(shared: &Shared) -> Timestamp {
    shared.look(|world| world.clock.now())
}
