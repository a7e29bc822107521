//! A proxy on the wire in front of a server that speaks HTTP: it carries each request and each answer whole, and strikes
//! between them. The answer to a watch of Kubernetes has no end: it is carried on as it comes, and what is struck is its
//! begin.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Response, request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::{Boundary, Moment, Register};

/// What a request is called; it is asked before the request is carried on.
pub type Name = Arc<dyn Fn(&request::Parts, &Bytes) -> String + Send + Sync>;

/// From the last byte of an answer on its way until the controller is killed after it: enough to have read it.
const TAKEN_IN: Duration = Duration::from_millis(5);

/// The running proxy; it ends with this.
pub struct Proxy {
    address: SocketAddr,
    doorkeeper: JoinHandle<()>,
    under_way: TaskTracker,
}

impl Proxy {
    /// Carries to `upstream` what comes to a loopback port of the kernel's choice.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(upstream: SocketAddr, name: Name, register: Arc<Register>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let under_way = TaskTracker::new();
        let way = Way { upstream, name, register, under_way: under_way.clone() };
        let doorkeeper = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                way.under_way.spawn(connection(stream, way.clone()));
            }
        });
        Ok(Self { address, doorkeeper, under_way })
    }

    /// Waits until nothing is on its way any more: what a dead caller had sent has reached the far side, or never will.
    pub async fn settled(&self) {
        self.under_way.close();
        self.under_way.wait().await;
        self.under_way.reopen();
    }

    /// Its URL, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.doorkeeper.abort();
    }
}

#[derive(Clone)]
struct Way {
    upstream: SocketAddr,
    name: Name,
    register: Arc<Register>,
    under_way: TaskTracker,
}

type Body = UnsyncBoxBody<Bytes, Cut>;

/// Why a connection ends without an answer.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("the controller was killed")]
    Struck,
    #[error(transparent)]
    Body(#[from] hyper::Error),
    #[error(transparent)]
    Upstream(#[from] io::Error),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

async fn connection(stream: TcpStream, way: Way) {
    // Small answers must not wait for each other.
    let _ = stream.set_nodelay(true);
    let told = watch::Sender::new(());
    let stream = Told { stream, unflushed: false, flushed: told.clone() };
    let service = service_fn(|request| carry(way.clone(), request, told.subscribe()));
    let _left_or_cut = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn carry(way: Way, request: Request<Incoming>, mut flushed: watch::Receiver<()>) -> Result<Response<Body>, Cut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let boundary = way.register.meets((way.name)(&head, &body));
    if way.register.strikes(&boundary, Moment::Before) {
        return Err(Cut::Struck);
    }
    // What was begun is finished, also when the caller dies meanwhile.
    let answer = way.under_way.spawn(ask(way.upstream, head, body)).await??;
    if way.register.strikes(&boundary, Moment::Between) {
        return Err(Cut::Struck);
    }
    if way.register.wants(&boundary, Moment::After) {
        flushed.borrow_and_update();
        tokio::spawn(strike_after(way.register, boundary, flushed));
    }
    Ok(answer)
}

/// One request on a connection of its own.
async fn ask(upstream: SocketAddr, mut head: request::Parts, body: Bytes) -> Result<Response<Body>, Cut> {
    let stream = TcpStream::connect(upstream).await?;
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer, or with whoever reads that.
    tokio::spawn(connection);
    let goes_on = has_no_end(&head);
    of_this_hop(&mut head.headers);
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let answer = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
    let (mut head, body) = answer.into_parts();
    of_this_hop(&mut head.headers);
    if goes_on {
        return Ok(Response::from_parts(head, body.map_err(Cut::from).boxed_unsync()));
    }
    let body = Full::new(body.collect().await?.to_bytes());
    Ok(Response::from_parts(head, body.map_err(|never| match never {}).boxed_unsync()))
}

/// Whether the answer goes on until somebody leaves.
fn has_no_end(head: &request::Parts) -> bool {
    let asks = |part: &str| ["watch=true", "watch=1"].contains(&part);
    head.uri.query().is_some_and(|query| query.split('&').any(asks))
}

/// What says how a body travels is said anew.
fn of_this_hop(headers: &mut HeaderMap) {
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(name);
    }
}

async fn strike_after(register: Arc<Register>, boundary: Boundary, mut flushed: watch::Receiver<()>) {
    if flushed.changed().await.is_ok() {
        tokio::time::sleep(TAKEN_IN).await;
        register.strikes(&boundary, Moment::After);
    }
}

/// A stream that tells when what was written to it is with the kernel.
struct Told<S> {
    stream: S,
    unflushed: bool,
    flushed: watch::Sender<()>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Told<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Told<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.unflushed = true;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) && std::mem::take(&mut self.unflushed) {
            self.flushed.send_replace(());
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use runner_proto::ping::v1::{PingRequest, PingResponse};

    use super::*;
    use crate::gitea::{Gitea, Method};
    use crate::kubernetes::{Client, Kubernetes, Resource};
    use crate::runner_client::RunnerClient;

    const WATCH: &str = "/api/v1/namespaces/gitea-actions/pods?watch=true";

    /// A watch is carried on while it goes on, and its end is known when its reader leaves.
    #[tokio::test]
    async fn a_watch_is_carried_on_as_it_comes() {
        let kubernetes = Kubernetes::start().await;
        let name: Name = Arc::new(|head, _| head.method.to_string());
        let proxy = Proxy::start(kubernetes.address(), name, Arc::new(Register::new(None))).await.unwrap();
        let client = Client::new(&proxy.url(), &kubernetes.token(), None).unwrap();
        let mut watch = client.watch(WATCH).await.unwrap();
        for pod in ["one", "two"] {
            let spec = serde_json::json!({"containers": [{"name": "c", "image": "i"}]});
            let object = serde_json::json!({"metadata": {"name": pod}, "spec": spec});
            kubernetes.add(Resource::Pods, "gitea-actions", object);
            while watch.next().await.unwrap().unwrap()["object"]["metadata"]["name"] != pod {}
        }
        assert!(tokio::time::timeout(Duration::from_millis(200), proxy.settled()).await.is_err(), "it goes on");
        drop((watch, client));
        tokio::time::timeout(Duration::from_secs(10), proxy.settled()).await.unwrap();
    }

    /// What the far side and the caller have seen when the controller is dead.
    #[tokio::test]
    async fn each_moment_leaves_its_own_traces() {
        for (moment, carried_out, answered) in
            [(Moment::Before, 0, false), (Moment::Between, 1, false), (Moment::After, 1, true)]
        {
            let mut victim = tokio::process::Command::new("sleep").arg("60").spawn().unwrap();
            let gitea = Gitea::start().await;
            let target = Boundary { name: "POST".to_owned(), nth: 1 };
            let register = Arc::new(Register::new(Some((target, moment))));
            register.open();
            register.victim(victim.id());
            let name: Name = Arc::new(|head, _| head.method.to_string());
            let proxy = Proxy::start(gitea.address(), name, Arc::clone(&register)).await.unwrap();
            let client = RunnerClient::anonymous(&proxy.url()).deadline(Duration::from_secs(10));
            let answer = client.call::<_, PingResponse>(Method::Ping, &PingRequest::default()).await;
            assert_eq!(answer.is_ok(), answered, "{moment:?}: {answer:?}");
            assert!(!victim.wait().await.unwrap().success());
            assert_eq!((gitea.calls().len(), register.struck()), (carried_out, true), "{moment:?}");
        }
    }
}
