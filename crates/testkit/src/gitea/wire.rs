//! The HTTP side: Connect unary as Gitea speaks it, and the faults that a test ordered.
//!
//! What Gitea does below its handlers is here and in `codec`: verbs, content types, deadlines. Once a call was read it takes effect even if the client leaves, as in Gitea 1.26.0 (§4.1.5).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use connectrpc::{CodecFormat, ConnectError, Dispatcher as _, Payload, RequestContext};
use http::header::{ALLOW, CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use runner_proto::ping::v1::PingServiceServer;
use runner_proto::runner::v1::RunnerServiceServer;
use tokio::net::{TcpListener, TcpStream};

use super::area;
use super::calls::{Call, CallEnd, Method, Request};
use super::codec::{
    Body, Plain, bare, decode, failure, response_result, response_task, success, text, timeout, unreadable, unzip, zips,
};
use super::fault::{Away, FaultSpec, Moment, Symptom};
use super::service::Handlers;
use super::shared::Shared;

pub(super) const PREFIX: &str = "/api/actions/";

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
    let unary = Unary { method, format, timeout, request: decode(method, format, &body), headers: parts.headers, body };
    let guard = enter(shared, &unary);
    let outcome = carry_out(shared, &guard, unary).await;
    guard.end(&outcome);
    outcome.map(|(response, _)| response)
}

/// A call as it arrived.
struct Unary {
    method: Method,
    format: CodecFormat,
    timeout: Option<Duration>,
    request: Request,
    headers: HeaderMap,
    body: Bytes,
}

/// The call itself, between the faults that a test ordered for it.
async fn carry_out(shared: &Arc<Shared>, guard: &Entered, unary: Unary) -> Result<(Response<Body>, String), Cut> {
    let Unary { method, format, timeout, request, headers, body } = unary;
    // A deadline of a millisecond is over before the handler runs; longer ones do not stop 1.26.0 (§4.1.6).
    if timeout.is_some_and(|timeout| timeout <= Duration::from_millis(1)) {
        let error = ConnectError::deadline_exceeded("context deadline exceeded");
        return Ok((failure(&error), "context deadline exceeded".into()));
    }
    if request == Request::Unreadable {
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
        let reply = result.as_ref().map_or(&[][..], |reply| &reply.body);
        handled.change(|world| {
            world.book.leave(number);
            world.book.carried_out(number, |call| match method {
                Method::FetchTask => call.task = response_task(format, reply),
                Method::UpdateTask => call.result = response_result(format, reply),
                _ => {}
            });
        });
        result
    });
    let result = work.await.map_err(|_| Cut)?;
    if let Some(fault) = &fault {
        return strike(guard, fault).await;
    }
    Ok(match result {
        Ok(response) => {
            if method == Method::UpdateTask {
                guard.note_end();
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

    /// The task may have ended: then this answer says so.
    fn note_end(&self) {
        self.shared.change(|world| {
            let task = world.book.calls.get(self.number).and_then(|call| call.task);
            let ended = |task: &i64| world.server.tasks.get(task).is_some_and(|row| row.status.is_end());
            if let Some(task) = task.filter(ended) {
                world.book.end_told(task);
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

fn enter(shared: &Arc<Shared>, unary: &Unary) -> Entered {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let number = shared.change(|world| {
        world.book.enter(Call {
            number: 0,
            at: world.clock.now(),
            instant: Instant::now(),
            took: None,
            method: unary.method,
            runner: unary.headers.get("x-runner-uuid").map(text),
            task: unary.request.task(),
            summary: unary.request.summary(),
            request: unary.request.clone(),
            overlapping: false,
            timeout: unary.timeout,
            result: None,
            headers: unary.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            end: CallEnd::Pending,
        })
    });
    Entered { shared: shared.clone(), number }
}
