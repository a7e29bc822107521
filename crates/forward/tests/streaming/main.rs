//! The forwarder between real HTTP servers and clients on the loopback address.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bodies;
mod failures;
mod heads;

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use forward::{Forwarder, Streamed};
use http::{Request, Response, StatusCode, uri::Scheme};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{net::TcpListener, time::timeout};

/// Longest wait for anything that must happen.
const DEADLINE: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;
const CHUNK: usize = 64 << 10;

type AnyBody = UnsyncBoxBody<Bytes, forward::BoxError>;

fn any<B>(body: B) -> AnyBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<forward::BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

fn full(text: &'static str) -> AnyBody {
    any(Full::new(Bytes::from_static(text.as_bytes())))
}

/// A server that answers every request with `handler`.
async fn serve<H, F>(handler: H) -> SocketAddr
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<AnyBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handler = handler.clone();
            let service = hyper::service::service_fn(move |request| {
                let response = handler(request);
                async move { Ok::<_, Infallible>(response.await) }
            });
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

type Upstream = Client<HttpConnector, Streamed<Incoming>>;

/// A proxy before `upstream`, and what it counts: bytes of request bodies, bytes of response bodies.
struct Proxy {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

impl Proxy {
    async fn before(upstream: SocketAddr) -> Self {
        Self::with_limit(upstream, forward::NO_PROGRESS).await
    }

    async fn with_limit(upstream: SocketAddr, limit: Duration) -> Self {
        let client: Upstream = Client::builder(TokioExecutor::new()).build_http();
        let (sent, received) = (Arc::default(), Arc::default());
        let forwarder = Forwarder::new(client).no_progress(limit).counting(Arc::clone(&sent), Arc::clone(&received));
        let address = serve(move |request| {
            let forwarder = forwarder.clone();
            async move {
                let sent = forwarder.forward(request, |head| {
                    let mut uri = std::mem::take(&mut head.uri).into_parts();
                    uri.scheme = Some(Scheme::HTTP);
                    uri.authority = Some(upstream.to_string().parse().unwrap());
                    head.uri = uri.try_into().unwrap();
                });
                match sent.await {
                    Ok(response) => response.map(any),
                    Err(error) => {
                        let mut response = Response::new(any(Full::new(Bytes::from(error.to_string()))));
                        *response.status_mut() = error.status();
                        response
                    }
                }
            }
        });
        Self { address: address.await, sent, received }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn client() -> Client<HttpConnector, AnyBody> {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn send(request: Request<AnyBody>) -> Response<Incoming> {
    timeout(DEADLINE, client().request(request)).await.unwrap().unwrap()
}

/// A body of `left` bytes in chunks of one and the same buffer; counts what was taken and tells when it is dropped.
struct Source {
    chunk: Bytes,
    left: u64,
    taken: Arc<AtomicU64>,
    alive: Arc<AtomicUsize>,
}

impl Source {
    fn new(length: u64, taken: &Arc<AtomicU64>, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self { chunk: Bytes::from(vec![7; CHUNK]), left: length, taken: taken.clone(), alive: alive.clone() }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Body for Source {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= CHUNK as u64;
        self.taken.fetch_add(CHUNK as u64, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(self.chunk.clone()))))
    }
}

/// Looks again until it holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(DEADLINE, wait).await.is_ok(), "{what}");
}

/// Waits until a counter rests for half a second and returns where.
async fn rest(counter: &AtomicU64) -> u64 {
    let (mut last, mut quiet) = (counter.load(Ordering::SeqCst), 0);
    let wait = async {
        while quiet < 10 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = counter.load(Ordering::SeqCst);
            quiet = if now == last && now > 0 { quiet + 1 } else { 0 };
            last = now;
        }
    };
    timeout(DEADLINE, wait).await.unwrap();
    last
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// The number of bytes of a body, read to its end.
async fn drain(mut body: Incoming) -> Result<u64, hyper::Error> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Ok(length)
}
