//! What an operator asks a running controller: `/livez`, `/readyz`, `/healthz`, `/metrics`, `/status` (NEW-130,
//! NEW-131, NEW-134).
//!
//! The server reads shared values only; it can neither hold up nor change what the rooms do.

pub mod address;
pub mod client;
pub mod liveness;
pub mod metrics;
pub mod readiness;
pub mod status;
pub mod svid;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::liveness::Liveness;
use self::metrics::Metrics;
use self::readiness::Readiness;
use self::status::StatusSnapshot;
use crate::clock::Clock;

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 32;

/// For the header of a request, for a connection to end at the shutdown.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the server tells. Clones share everything.
#[derive(Clone)]
pub struct Ops {
    /// Set by the rooms.
    pub readiness: Readiness,
    /// Set by the rooms.
    pub metrics: Metrics,
    /// Set by the loops.
    pub liveness: Liveness,
    /// The time that everything here is judged by: the one of the rooms that set it.
    pub clock: Clock,
    /// Takes a snapshot of the board; quick, and never waits. `ready`, `not_ready` and `leader` are filled in here.
    pub snapshot: Arc<dyn Fn(Timestamp) -> StatusSnapshot + Send + Sync>,
}

/// Serves until `shutdown`; returns when the last connection has ended, at the latest after 10 s. Gives the listener back,
/// for the one who serves next: meanwhile connections wait in the kernel's queue.
pub async fn serve(listener: TcpListener, ops: Ops, shutdown: CancellationToken) -> TcpListener {
    let (router, connections) = (router(ops), TaskTracker::new());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = tokio::select! {
            () = shutdown.cancelled() => break,
            Ok(permit) = Arc::clone(&room).acquire_owned() => permit,
        };
        let stream = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file descriptors: the pause keeps the loop from burning a core.
                Err(_) => { tokio::time::sleep(Duration::from_millis(100)).await; continue; }
            },
        };
        let (router, shutdown) = (router.clone(), shutdown.clone());
        connections.spawn(async move {
            connection(stream, router, shutdown).await;
            drop(permit);
        });
    }
    connections.close();
    let _ = tokio::time::timeout(PATIENCE, connections.wait()).await;
    listener
}

async fn connection(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = shutdown.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    // An error of a connection that ends is the asker's affair.
    let _ = serving.await;
}

fn router(ops: Ops) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/status", get(status_json))
        .with_state(ops)
}

async fn livez(State(ops): State<Ops>) -> Response {
    let stuck = ops.liveness.stuck();
    let code = if stuck.is_empty() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (code, Json(json!({ "alive": stuck.is_empty(), "stuck": stuck }))).into_response()
}

async fn readyz(State(ops): State<Ops>) -> Response {
    let conditions = ops.readiness.conditions();
    let reasons = conditions.reasons(ops.clock.now());
    let code = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({ "ready": reasons.is_empty(), "reasons": reasons });
    (code, Json(body)).into_response()
}

async fn metrics_text(State(ops): State<Ops>) -> Response {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match ops.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn status_json(State(ops): State<Ops>) -> Json<StatusSnapshot> {
    let now = ops.clock.now();
    let (conditions, mut snapshot) = (ops.readiness.conditions(), (ops.snapshot)(now));
    snapshot.not_ready = conditions.reasons(now);
    snapshot.ready = snapshot.not_ready.is_empty();
    snapshot.leader = conditions.leader;
    Json(snapshot)
}
