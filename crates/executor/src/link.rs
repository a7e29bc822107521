//! One connection to the facade: how it is made is chosen once (mTLS; plain in tests), who uses it does not see.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use http_body::Body;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

/// Below the facade's 75 s, so that it is us who closes an idle connection.
const IDLE: Duration = Duration::from_secs(60);

/// A byte stream to the facade.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What is connected.
pub type BoxStream = Box<dyn Stream>;

type Dial = dyn Fn() -> BoxFuture<'static, io::Result<BoxStream>> + Send + Sync;

/// Makes connections to the one facade, whatever address a request names. Proxy settings of the environment are not
/// looked at (EXE-3).
#[derive(Clone)]
pub struct Link(Arc<Dial>);

impl Link {
    /// A link that calls `dial` for every new connection; it must come to an end by itself.
    pub fn new(dial: impl Fn() -> BoxFuture<'static, io::Result<BoxStream>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }

    /// An HTTP client over connections of this link, with a pool of its own.
    pub(crate) fn client<B>(self) -> Client<Self, B>
    where
        B: Body<Data: Send> + Send,
    {
        Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(self)
    }
}

impl tower_service::Service<Uri> for Link {
    type Response = FacadeConnection;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<FacadeConnection>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dial = (self.0)();
        Box::pin(async move { Ok(FacadeConnection(TokioIo::new(dial.await?))) })
    }
}

/// A connection as the HTTP client wants it.
pub struct FacadeConnection(TokioIo<BoxStream>);

impl Connection for FacadeConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for FacadeConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for FacadeConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }
}
