//! The HTTP server on loopback that the runner and its job believe to be Gitea.
//!
//! Held here: it listens on loopback only (EXE-2); RunnerService needs the loopback token; what a job sends can reach
//! the facade as this job's call and nothing else (NEW-117).

pub(crate) mod artifacts;
pub(crate) mod paths;
mod reply;
mod rpc;
mod stream;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::uri::Authority;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::deliver::Outbox;
use crate::facade::{Credentials, Facade};
use crate::limits::Limits;
use crate::link::Link;
use crate::token::LoopbackToken;
use paths::Route;
use reply::Body;
use stream::Streamer;

/// How long a client may take for the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// What passes the proxy and matters to the runner's supervision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The runner asks for its task: it has read its registration and declared itself.
    Polling,
    /// `unauthenticated` on Declare or FetchTask.
    SentHome,
    /// FetchTask was answered with success.
    Welcome,
    /// UpdateLog or UpdateTask passed.
    JobSeen,
}

/// What the proxy is made of.
pub(crate) struct Parts {
    /// The client for RunnerService.
    pub(crate) facade: Arc<Facade>,
    /// The spool.
    pub(crate) outbox: Arc<Outbox>,
    /// For everything that is streamed.
    pub(crate) link: Link,
    /// Where the facade is.
    pub(crate) authority: Authority,
    /// Put on every streamed request.
    pub(crate) credentials: Credentials,
    /// What `.runner` holds as uuid.
    pub(crate) assignment: String,
    /// What `.runner` holds as token.
    pub(crate) token: Arc<LoopbackToken>,
    /// Where notices go.
    pub(crate) notices: mpsc::UnboundedSender<Notice>,
    /// Time limits.
    pub(crate) limits: Limits,
}

/// A bound, not yet serving proxy.
pub(crate) struct Proxy {
    listener: TcpListener,
    shared: Arc<Shared>,
    begun: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>,
}

/// What every connection uses.
struct Shared {
    facade: Arc<Facade>,
    outbox: Arc<Outbox>,
    streamer: Streamer,
    assignment: String,
    token: Arc<LoopbackToken>,
    notices: mpsc::UnboundedSender<Notice>,
    limits: Limits,
    /// Calls that are finished whatever becomes of who made them.
    begin: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
    polled: AtomicBool,
    job_seen: AtomicBool,
    declare_failed: Arc<AtomicBool>,
}

impl Proxy {
    /// Takes a free port of the loopback address.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn bind(parts: Parts) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let own = format!("http://{}", listener.local_addr()?);
        let (begin, begun) = mpsc::unbounded_channel();
        let shared = Shared {
            facade: parts.facade,
            outbox: parts.outbox,
            streamer: Streamer::new(parts.link, parts.authority, parts.credentials, own, parts.limits.no_progress),
            assignment: parts.assignment,
            token: parts.token,
            notices: parts.notices,
            limits: parts.limits,
            begin,
            polled: AtomicBool::new(false),
            job_seen: AtomicBool::new(false),
            declare_failed: Arc::default(),
        };
        Ok(Self { listener, shared: Arc::new(shared), begun })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system does not say.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Set once a Declare was given up: the runner ends of it.
    pub(crate) fn declare_failed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.declare_failed)
    }

    /// Serves for ever. Connections, and calls that were begun, end with this.
    pub(crate) async fn serve(mut self) {
        let mut work = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => drop(work.spawn(connection(stream, Arc::clone(&self.shared)))),
                    Err(error) => {
                        // Out of file descriptors or a connection that was gone at once: both pass.
                        tracing::warn!(%error, "loopback proxy cannot accept");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(call) = self.begun.recv() => drop(work.spawn(call)),
                Some(ended) = work.join_next() => if let Err(error) = ended {
                    tracing::error!(%error, "a call or a connection of the loopback proxy broke");
                },
            }
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(answer(shared, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "loopback connection ended");
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if let Err(refused) = forward::check(&head) {
        return reply::text(refused.status(), &refused.to_string());
    }
    let request = Request::from_parts(head, body);
    match paths::route(request.method(), request.uri().path()) {
        Route::Rpc(procedure) => rpc::answer(shared, procedure, request).await,
        Route::Stream => shared.streamer.stream(request).await,
        Route::Artifacts => shared.streamer.artifacts(request).await,
        Route::Malformed(problem) => reply::text(StatusCode::BAD_REQUEST, &problem.to_string()),
        Route::Forbidden => reply::text(StatusCode::FORBIDDEN, "this path is not for jobs"),
    }
}

impl Shared {
    /// Carries out a call to its end, also when nobody waits for it any more; none when the executor ends before.
    async fn finish<T: Send + 'static>(&self, call: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (tell, told) = oneshot::channel();
        let call = async move { drop(tell.send(call.await)) };
        self.begin.send(call.boxed()).ok()?;
        told.await.ok()
    }

    fn notice(&self, notice: Notice) {
        // The receiver goes when the runner has ended; then nobody needs to know.
        let _ = self.notices.send(notice);
    }

    fn notice_once(&self, seen: &AtomicBool, notice: Notice) {
        if !seen.swap(true, Ordering::Relaxed) {
            self.notice(notice);
        }
    }
}
