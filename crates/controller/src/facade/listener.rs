//! Accepts executors: handshake under a deadline, who the peer is, and one connection each (SRV-1, FAC-10, FAC-12).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Facade;
use super::auth::Peer;
use super::connection::{self, House};
use crate::identity::peer;

const HANDSHAKE: Duration = Duration::from_secs(10);

/// Serves the facade until `stop`; then no connection is accepted, idle ones end, and running calls are finished
/// within the caller's drain time. Whoever drops this ends the connections.
pub async fn serve(listener: TcpListener, acceptor: TlsAcceptor, facade: Arc<Facade>, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(facade.connections));
    let house = Arc::new(facade.house());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            Some(ended) = connections.join_next() => {
                noticed(ended);
                continue;
            }
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, place)) => {
                connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&house), stop.clone(), place));
            }
            // Out of file descriptors, or the peer gave up: neither is worth ending the facade.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    while let Some(ended) = connections.join_next().await {
        noticed(ended);
    }
}

/// The next connection that there is room for; the others wait in the kernel. The semaphore is never closed.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _address) = listener.accept().await?;
    Ok((stream, place))
}

/// A panic in a call ends its connection and nobody else's (NEW-150).
fn noticed(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection of the facade broke");
    }
}

/// Thousands of these wait for their next request: what they no longer need, or move about, lies outside of them.
async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    house: Arc<House>,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    // Small answers to a waiting runner must not wait for more.
    let _best_effort = stream.set_nodelay(true);
    let handshake = Box::pin(tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)));
    let Ok(Ok(stream)) = handshake.await else { return };
    let stream = Box::new(stream);
    let Some(peer) = peer(&stream) else { return };
    // By the wall clock, as the handshake judged the certificate: its issuer and both ends go by that one.
    let left = Duration::try_from(peer.expires_at.duration_since(Timestamp::now())).unwrap_or_default();
    connection::serve(stream, Peer(peer.id), Instant::now() + left, &house, &stop).await;
}
