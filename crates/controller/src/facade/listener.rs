//! Accepts executors: handshake, who the peer is, and one HTTP connection each, under deadlines (SRV-1, FAC-10, FAC-12).

use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use super::auth::Peer;
use crate::identity::peer_id;

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADER_READ: Duration = Duration::from_secs(10);
const HEADER_SIZE: usize = 32 << 10;
const HEADER_SIZE_H2: u32 = 32 << 10;

/// Serves `router` until `stop`; then no connection is accepted, idle ones end, and running calls are finished
/// within the caller's drain time.
pub async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _address)) => {
                let connection = connection(stream, acceptor.clone(), router.clone(), stop.clone());
                connections.spawn(connection);
            }
            // Out of file descriptors, or the peer gave up: neither is worth ending the facade.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    connections.close();
    connections.wait().await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    // Small answers to a waiting runner must not wait for more.
    let _best_effort = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let Some(peer) = peer_id(&stream) else { return };
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(Peer(peer.clone()));
        router.clone().call(request)
    });
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_READ).max_buf_size(HEADER_SIZE);
    http.http2().timer(TokioTimer::new()).max_header_list_size(HEADER_SIZE_H2);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}
