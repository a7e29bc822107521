//! One connection of an executor, from its handshake to its end (SRV-1, NEW-103).
//!
//! It ends when its peer takes too long for a head, when nothing is asked for a while, when the peer's SVID ends, and
//! when the assignment it spoke for is over. The last two let the call under way come to its end, so that a runner is
//! told before its connection goes (NEW-159).

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::body::{Body, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use super::auth::{Caller, Peer};
use super::shares::{Seat, Shares};

/// How long a connection may take for what (requirements §1.4).
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For the head of a request, from its first byte; for the first one, from the handshake.
    pub(super) head: Duration,
    /// Without a request.
    pub(super) idle: Duration,
    /// For the call under way when its assignment is over.
    pub(super) last_call: Duration,
    /// How often it is looked whether the assignment is over.
    pub(super) look: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            last_call: Duration::from_secs(10),
            look: Duration::from_secs(2),
        }
    }
}

/// All heads of a request together.
const HEADER_SIZE: usize = 32 << 10;

/// What connections are served with.
#[derive(Clone)]
pub(super) struct House {
    pub(super) router: Router,
    /// Whether what somebody may do here is over.
    pub(super) is_over: Arc<dyn Fn(Caller) -> bool + Send + Sync>,
    pub(super) limits: Limits,
}

/// A connection as its watcher, its bytes and its calls see it.
pub(super) struct Line {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    /// Calls whose request or answer is not complete.
    under_way: usize,
    /// The first byte of a head is there, or is waited for.
    head: bool,
    /// When `head` or `under_way` changed.
    since: Instant,
    caller: Option<Caller>,
    seat: Option<Seat>,
}

/// A call under way; over when request and answer have let go of it.
struct UnderWay(Arc<Line>);

impl Line {
    fn new() -> Self {
        let state = State { under_way: 0, head: true, since: Instant::now(), caller: None, seat: None };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment after another, all valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection speaks for `caller` from here on; false when that job has too many connections.
    pub(super) fn speaks_for(&self, caller: Caller, shares: &Shares) -> bool {
        let mut state = self.state();
        if state.caller.is_none_or(|known| known.id() != caller.id()) {
            let Some(seat) = shares.seat(caller.id()) else { return false };
            state.seat = Some(seat);
        }
        state.caller = Some(caller);
        true
    }

    fn caller(&self) -> Option<Caller> {
        self.state().caller
    }

    fn begin(self: &Arc<Self>) -> UnderWay {
        let mut state = self.state();
        state.under_way += 1;
        state.head = false;
        drop(state);
        UnderWay(Arc::clone(self))
    }

    fn bytes_came(&self) {
        let mut state = self.state();
        if state.under_way == 0 && !state.head {
            state.head = true;
            state.since = Instant::now();
            drop(state);
            self.changed.notify_one();
        }
    }

    /// When it has waited long enough, if nothing changes; none while a call is under way.
    fn ends_at(&self, limits: &Limits) -> Option<Instant> {
        let state = self.state();
        let limit = if state.head { limits.head } else { limits.idle };
        (state.under_way == 0).then(|| state.since + limit)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        state.since = Instant::now();
        drop(state);
        self.0.changed.notify_one();
    }
}

/// Serves a connection to its end. `svid_ends` is when the peer's certificate does.
pub(super) async fn serve<S>(stream: S, peer: Peer, svid_ends: Instant, house: &House, stop: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let line = Arc::new(Line::new());
    let (router, of_service) = (house.router.clone(), Arc::clone(&line));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        let under_way = Arc::new(of_service.begin());
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(Arc::clone(&of_service));
        let answer = router.clone().call(request.map(|body| Watched { body, _under_way: Arc::clone(&under_way) }));
        async move { Ok::<_, std::convert::Infallible>(answer.await?.map(|body| Watched { body, _under_way: under_way })) }
    });
    let stream = TokioIo::new(Observed { stream, line: Arc::clone(&line) });
    let connection = http1::Builder::new().max_buf_size(HEADER_SIZE).serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    let mut looks = interval(house.limits.look);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // When it ends in any case, and whether it takes no further call.
    let (mut over, mut finishing) = (None, false);
    loop {
        tokio::select! {
            _ended = connection.as_mut() => return,
            () = at(over) => return,
            () = at(line.ends_at(&house.limits)), if over.is_none() => match line.state().head {
                true => return,
                false => over = Some(Instant::now() + house.limits.last_call),
            },
            () = sleep_until(svid_ends), if !finishing => finishing = true,
            () = stop.cancelled(), if !finishing => finishing = true,
            () = line.changed.notified() => {}
            _ = looks.tick() => {}
        }
        if over.is_none() && line.caller().is_some_and(|caller| (house.is_over)(caller)) {
            over = Some(Instant::now() + house.limits.last_call);
        }
        if finishing || over.is_some() {
            connection.as_mut().graceful_shutdown();
        }
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// A body that keeps its call under way.
struct Watched<B> {
    body: B,
    _under_way: Arc<UnderWay>,
}

impl<B: Body + Unpin> Body for Watched<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose first bytes between two calls are noticed.
struct Observed<S> {
    stream: S,
    line: Arc<Line>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.line.bytes_came();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
