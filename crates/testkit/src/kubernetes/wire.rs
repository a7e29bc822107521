//! The HTTP side: URLs, verbs, bodies, and the faults that a test ordered.
//!
//! Once a call was read it takes effect even if the client leaves.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::calls::{Call, Verb};
use super::fault::{Fault, Symptom, Target};
use super::handle::{Answer, Request};
use super::refusal::Refusal;
use super::route::{Route, route};
use super::shared::Shared;
use super::{handle, meta, review, watch};
use crate::gitea::CallEnd;
use crate::gitea::{Away, Moment};

/// The connection ends without an answer, or in the middle of one.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut as ordered")]
pub(crate) struct Cut;

pub(crate) type Body = UnsyncBoxBody<Bytes, Cut>;

/// Answers connections until the double ends.
pub(crate) async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    loop {
        let accepted = tokio::select! {
            () = shared.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        // Small answers must not wait for each other.
        let _ = stream.set_nodelay(true);
        let (shared, acceptor) = (shared.clone(), acceptor.clone());
        tokio::spawn(async move {
            match acceptor {
                None => connection(stream, shared).await,
                Some(acceptor) => {
                    // Who cannot shake hands is gone.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection(stream, shared).await;
                    }
                }
            }
        });
    }
}

/// Answers the calls of one connection.
pub(crate) async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
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
        Away::Unavailable => return Ok(page(StatusCode::SERVICE_UNAVAILABLE, "text/html", "<h1>503</h1>")),
        Away::Hanging => return std::future::pending().await,
        Away::Refusing => return Err(Cut),
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Err(Cut) };
    let body = body.to_bytes();
    let route = match route(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default()) {
        Ok(route) => route,
        Err(refusal) => {
            return Ok(review::answer(&shared, &parts, &body).unwrap_or_else(|| refused(&refusal, None)));
        }
    };
    let number = enter(&shared, &route, &parts.headers, &body);
    let entered = Entered { shared, number };
    let outcome = carry_out(&entered, route, &parts.headers, body).await;
    entered.end(&outcome);
    outcome.map(|(response, _)| response)
}

type Outcome = Result<(Response<Body>, String), Cut>;

/// The call itself, between the faults that a test ordered for it.
async fn carry_out(entered: &Entered, route: Route, headers: &HeaderMap, body: Bytes) -> Outcome {
    let shared = &entered.shared;
    if let Err(refusal) = authorize(shared, &route, headers) {
        return Ok((refused(&refusal, None), refusal.message));
    }
    let name = shared.look(|world| world.calls.get(entered.number).map(|call| call.name.clone())).unwrap_or_default();
    let target = Target { verb: route.verb, resource: route.resource, name: &name, subresource: &route.subresource };
    let (fault, latency) = shared.change(|world| (world.faults.take(&target), world.faults.latency.next()));
    if let Some(fault) = fault.as_ref().filter(|fault| fault.moment == Moment::BeforeCommit) {
        return strike(&route, &name, fault).await;
    }
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    if route.verb == Verb::Watch {
        return Ok(match watch::open(shared, &route) {
            Ok(body) => (json(StatusCode::OK, body), String::new()),
            Err(refusal) => (refused(&refusal, None), refusal.message),
        });
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let request = Request { route: route.clone(), content_type: text(CONTENT_TYPE), body };
    let result = handle::handle(shared, &request);
    if let Some(fault) = &fault {
        return strike(&route, &name, fault).await;
    }
    Ok(match result {
        Ok(Answer { status, object }) => {
            let object = review::shaped(&route, &text(http::header::ACCEPT), object);
            (json(status, whole(object.to_string())), String::new())
        }
        Err(refusal) => (refused(&refusal, None), refusal.message),
    })
}

fn authorize(shared: &Shared, route: &Route, headers: &HeaderMap) -> Result<(), Refusal> {
    shared.look(|world| {
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        if bearer != Some(&world.token) {
            return Err(Refusal::unauthorized());
        }
        if world.faults.may(route.verb, route.resource) {
            return Ok(());
        }
        let (verb, resource) = (route.verb.name(), route.resource);
        let place = match route.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let path = if route.subresource.is_empty() { String::new() } else { format!("/{}", route.subresource) };
        let why = format!(
            "User \"{}\" cannot {verb} resource \"{}{path}\" in API group \"{}\" {place}",
            world.user,
            resource.plural(),
            resource.group()
        );
        Err(Refusal::forbidden(resource, &route.name, &why))
    })
}

async fn strike(route: &Route, name: &str, fault: &Fault) -> Outcome {
    match &fault.symptom {
        Symptom::Refusal { refusal, retry_after } => Ok((refused(refusal, *retry_after), refusal.message.clone())),
        Symptom::Forbidden(why) => {
            let refusal = Refusal::forbidden(route.resource, name, why);
            Ok((refused(&refusal, None), refusal.message))
        }
        Symptom::Page { status, body } => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok((page(status, "text/html", body.clone()), body.clone()))
        }
        Symptom::Hang if route.verb == Verb::Watch => Ok((json(StatusCode::OK, watch::silence()), String::new())),
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
    fn end(&self, outcome: &Outcome) {
        let end = match outcome {
            Ok((response, message)) => {
                CallEnd::Answered { status: response.status().as_u16(), message: message.clone() }
            }
            Err(Cut) => CallEnd::Cut,
        };
        self.shared.change(|world| world.end(self.number, end));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shared.change(|world| world.end(self.number, CallEnd::Left));
    }
}

fn enter(shared: &Shared, route: &Route, headers: &HeaderMap, body: &Bytes) -> usize {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let name = if route.verb == Verb::Create { meta::name(&body).to_owned() } else { route.name.clone() };
    shared.change(|world| {
        world.enter(Call {
            number: 0,
            instant: Instant::now(),
            took: None,
            verb: route.verb,
            resource: route.resource,
            namespace: route.namespace.clone(),
            name,
            subresource: route.subresource.clone(),
            query: route.query.clone(),
            user_agent: text(USER_AGENT),
            content_type: text(CONTENT_TYPE),
            body,
            end: CallEnd::Pending,
        })
    })
}

pub(crate) fn whole(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn json(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = json(status, whole(body));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// The answer of a refusal.
pub(crate) fn refused(refusal: &Refusal, retry_after: Option<u64>) -> Response<Body> {
    let status = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, whole(refusal.status().to_string()));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Which verb a method is.
pub(crate) fn verb(method: &Method, named: bool, watches: bool) -> Option<Verb> {
    Some(match (method.as_str(), named) {
        ("GET", true) => Verb::Get,
        ("GET", false) if watches => Verb::Watch,
        ("GET", false) => Verb::List,
        ("POST", false) => Verb::Create,
        ("PUT", true) => Verb::Update,
        ("PATCH", true) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return None,
    })
}
