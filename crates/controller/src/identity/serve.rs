//! One served identity: a socket, whoever is connected to it, and the SVID that all of them share.
//!
//! Hundreds of them idle at once, so that one costs a socket and one small task, and a key is made when somebody asks.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::identity::SpiffeId;
use hyper::{server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use tokio::{
    net::{UnixListener, UnixStream},
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    authority::Leaf,
    issuer::BuiltInIssuer,
    socket::{SocketAccess, SocketError, SocketFile, listen},
    workload_api::{Material, answer},
};

/// Connections one workload may hold. A client needs one; a job that opens more than this harms itself only.
const MOST_CONNECTIONS: usize = 16;
/// Calls at the same time on one connection.
const MOST_CALLS: u32 = 8;
/// Pause of the acceptor when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a withdrawn identity's streams may take to hear of it.
const FAREWELL: Duration = Duration::from_secs(1);

/// The Workload API for one ID on one socket.
///
/// Dropping it closes the socket and all connections, as if the process had ended: clients keep their SVID and try
/// again. [`ServedIdentity::stop`] withdraws the identity. Either removes the socket file.
pub struct ServedIdentity {
    file: SocketFile,
    served: Arc<Served>,
    task: JoinHandle<()>,
}

/// What the connections of one socket share.
pub(super) struct Served {
    id: SpiffeId,
    issuer: BuiltInIssuer,
    leaf: Mutex<Option<Arc<Leaf>>>,
    withdrawal: CancellationToken,
}

impl ServedIdentity {
    pub(super) async fn start(
        issuer: BuiltInIssuer,
        socket: PathBuf,
        id: SpiffeId,
        access: SocketAccess,
    ) -> Result<Self, SocketError> {
        let (listener, file) = listen(socket, access).await?;
        let withdrawal = CancellationToken::new();
        let served = Arc::new(Served { id, issuer, leaf: Mutex::new(None), withdrawal });
        let task = tokio::spawn(accept(listener, served.clone()));
        Ok(Self { file, served, task })
    }

    /// Where it is served.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.file.path()
    }

    /// The same as a value for `SPIFFE_ENDPOINT_SOCKET`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.file.path().display())
    }

    /// Whether nobody serves here any more, although nobody took the identity away (NEW-150).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends it as a fault of ours would.
    #[cfg(test)]
    pub(super) fn break_down(&self) {
        self.task.abort();
    }

    /// Withdraws the identity: open streams end with "no identity issued", within a second, and the socket goes. What
    /// was issued stays valid until it expires; a fence against it is the facade's own registry.
    pub async fn stop(mut self) {
        self.served.withdrawal.cancel();
        // A panic of the task ends its connections just as well.
        let _ = (&mut self.task).await;
    }
}

impl Drop for ServedIdentity {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    pub(super) fn id(&self) -> &SpiffeId {
        &self.id
    }

    pub(super) fn issuer(&self) -> &BuiltInIssuer {
        &self.issuer
    }

    /// Done when the identity is withdrawn.
    pub(super) fn withdrawal(&self) -> &CancellationToken {
        &self.withdrawal
    }

    /// The SVID and bundle that count at `now`. An SVID past half its life is replaced by one with a new key.
    pub(super) async fn material(&self, now: Timestamp) -> Result<Material, Status> {
        let authorities_due = self.issuer.advance(now).await;
        let leaf = self.leaf(now).map_err(|error| {
            tracing::error!(id = %self.id, %error, "no SVID could be issued");
            Status::unavailable("the issuer cannot sign at the moment")
        })?;
        // Read after signing: the bundle never lacks the authority that signed.
        let authorities = self.issuer.authorities().borrow().clone();
        Ok(Material { look_again: authorities_due.min(leaf.renew_at), leaf, authorities })
    }

    fn leaf(&self, now: Timestamp) -> Result<Arc<Leaf>, super::authority::AuthorityError> {
        let mut current = self.leaf.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(leaf) if leaf.renew_at > now => Ok(leaf.clone()),
            _ => Ok(current.insert(Arc::new(self.issuer.issue(&self.id, now)?)).clone()),
        }
    }
}

/// Accepts until the identity is withdrawn. Its connections end with it.
async fn accept(listener: UnixListener, served: Arc<Served>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = served.withdrawal.cancelled() => break,
            Some(ended) = connections.join_next() => if let Err(error) = ended {
                tracing::error!(id = %served.id, %error, "a connection of the Workload API broke");
            },
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => { connections.spawn(converse(stream, served.clone())); }
                Err(error) => pause(&served.id, &error).await,
            },
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(FAREWELL, connections.join_all()).await;
}

async fn pause(id: &SpiffeId, error: &io::Error) {
    tracing::warn!(%id, %error, "the Workload API could not accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

async fn converse(stream: UnixStream, served: Arc<Served>) {
    let withdrawal = served.withdrawal.clone();
    let service = service_fn(move |call| answer(served.clone(), call));
    let connection = http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(MOST_CALLS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // What goes wrong on a connection is the client's business; it comes again.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = withdrawal.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
