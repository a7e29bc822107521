//! One direction of an exchange: a body that passes frames on as they are, counts them, and can be ended from outside.
//!
//! A body alone cannot notice that its *reader* stalls, because then nobody polls it. So its state can be seen and
//! closed by a watcher; closing drops the source at once, whether anybody polls or not.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{
    error::{BoxError, StreamError},
    hop::strip_hop_by_hop,
};

/// A body on its way through. Frames are those of the source, not copies; trailers lose what belongs to one hop.
pub struct Streamed<B> {
    lane: Arc<Lane<B>>,
    bytes: Arc<AtomicU64>,
    _watched: Arc<Leash>,
}

/// The task that watches an exchange; it ends at the latest with the bodies that it watches.
#[derive(Default)]
pub(crate) struct Leash(OnceLock<AbortHandle>);

impl Leash {
    pub(crate) fn hold(&self, watch: AbortHandle) {
        // There is one watch; what is set first stays.
        let _ = self.0.set(watch);
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(watch) = self.0.get() {
            watch.abort();
        }
    }
}

/// What a watcher sees of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Frames still pass.
    Open,
    /// Everything passed, or the reader has had enough.
    Closed,
    /// The source failed.
    Failed,
    /// A watcher ended it.
    Stalled,
}

pub(crate) struct Lane<B> {
    state: Mutex<State<B>>,
    closed: Arc<Notify>,
}

struct State<B> {
    source: Option<B>,
    phase: Phase,
    /// When a frame passed last, or the phase changed.
    moved: Instant,
    /// The reader waits for the source (and not the source for its reader).
    asked: bool,
    waker: Option<Waker>,
}

/// A direction as its watcher sees it, whatever the body.
pub(crate) trait Watched: Send + Sync {
    fn phase(&self) -> Phase;
    /// When it counts as stalled, if nothing moves until then.
    fn stalls_at(&self, limit: Duration) -> Instant;
    /// Whether the source is what everybody waits for.
    fn waits_for_source(&self) -> bool;
    /// Drops the source and makes the reader, if there is one, see an error.
    fn end(&self);
}

impl<B> Lane<B> {
    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the source out, to be dropped without the lock: its drop may wake whoever takes the lock next.
    fn close(&self, mut state: MutexGuard<'_, State<B>>, phase: Phase) {
        if state.phase != Phase::Open {
            return;
        }
        state.phase = phase;
        state.moved = Instant::now();
        let (source, waker) = (state.source.take(), state.waker.take());
        drop(state);
        drop(source);
        self.closed.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<B: Send> Watched for Lane<B> {
    fn phase(&self) -> Phase {
        self.state().phase
    }

    fn stalls_at(&self, limit: Duration) -> Instant {
        self.state().moved + limit
    }

    fn waits_for_source(&self) -> bool {
        let state = self.state();
        state.phase == Phase::Open && state.asked
    }

    fn end(&self) {
        self.close(self.state(), Phase::Stalled);
    }
}

impl<B: Body> Streamed<B> {
    /// Passes `source` on, adds its data to `bytes` and tells `closed` when it is over.
    pub(crate) fn new(source: B, bytes: Arc<AtomicU64>, closed: Arc<Notify>, leash: &Arc<Leash>) -> Self {
        let state =
            State { source: Some(source), phase: Phase::Open, moved: Instant::now(), asked: false, waker: None };
        Self { lane: Arc::new(Lane { state: Mutex::new(state), closed }), bytes, _watched: Arc::clone(leash) }
    }
}

impl<B> Streamed<B> {
    pub(crate) fn lane(&self) -> Arc<Lane<B>> {
        self.lane.clone()
    }
}

impl<B> Drop for Streamed<B> {
    fn drop(&mut self) {
        self.lane.close(self.lane.state(), Phase::Closed);
    }
}

impl<B> Body for Streamed<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = StreamError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, StreamError>>> {
        let mut state = self.lane.state();
        let Some(source) = &mut state.source else {
            if state.phase != Phase::Stalled {
                return Poll::Ready(None);
            }
            // Told once; after an error a body is over.
            state.phase = Phase::Closed;
            return Poll::Ready(Some(Err(StreamError::Stalled)));
        };
        match Pin::new(source).poll_frame(cx) {
            Poll::Pending => {
                state.asked = true;
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                state.asked = false;
                state.moved = Instant::now();
                if let Some(data) = frame.data_ref() {
                    let length = u64::try_from(data.remaining()).unwrap_or(u64::MAX);
                    self.bytes.fetch_add(length, Ordering::Relaxed);
                } else if let Some(trailers) = frame.trailers_mut() {
                    strip_hop_by_hop(trailers);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.lane.close(state, Phase::Failed);
                Poll::Ready(Some(Err(StreamError::Source(error.into()))))
            }
            Poll::Ready(None) => {
                self.lane.close(state, Phase::Closed);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.lane.state();
        state.source.as_ref().map_or(state.phase != Phase::Stalled, Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.lane.state().source.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
