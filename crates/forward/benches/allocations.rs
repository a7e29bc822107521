//! What the forwarder itself allocates and copies: an exchange of one mebibyte against one of many, without sockets.
//! Prints one JSON row per figure for `cargo xtask bench`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::alloc::System;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use forward::{Forwarder, Streamed};
use futures::future::{Ready, ready};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CHUNK: usize = 64 << 10;
const MIB: usize = 1 << 20;
const MANY: usize = 65;

/// A body of frames that are there already.
struct Frames(VecDeque<Bytes>);

impl Frames {
    fn of(data: &Bytes, mebibytes: usize) -> Self {
        Self((0..mebibytes * MIB / CHUNK).map(|_| data.clone()).collect())
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
    }
}

/// An upstream that answers with these frames.
#[derive(Clone)]
struct Upstream(Bytes, usize);

impl tower_service::Service<Request<Streamed<Frames>>> for Upstream {
    type Response = Response<Frames>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Streamed<Frames>>) -> Self::Future {
        ready(Ok(Response::new(Frames::of(&self.0, self.1))))
    }
}

/// Allocations and copied bytes of the exchange; what the upstream itself allocates comes on top once.
async fn exchange(mebibytes: usize) -> (usize, usize) {
    let data = Bytes::from(vec![7; CHUNK]);
    let forwarder = Forwarder::new(Upstream(data.clone(), mebibytes));
    let region = Region::new(COUNTED);
    let request = Request::get("/x").body(Frames::of(&data, 0)).unwrap();
    let mut response = forwarder.forward(request, |_| {}).await.unwrap();
    let mut copied = 0;
    while let Some(frame) = response.body_mut().frame().await {
        let passed = frame.unwrap().into_data().unwrap();
        if passed.as_ptr() != data.as_ptr() {
            copied += passed.len();
        }
    }
    (region.change().allocations, copied)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // The first exchange sets up what all others use.
        exchange(1).await;
        let ((one, _), (many, copied)) = (exchange(1).await, exchange(MANY).await);
        let per_mebibyte = many.saturating_sub(one) as f64 / (MANY - 1) as f64;
        for (measure, value, goal) in [
            ("forwarder: allocations of an exchange of 1 MiB", one.to_string(), ""),
            ("forwarder: further allocations per MiB", format!("{per_mebibyte:.2}"), "0"),
            ("forwarder: bytes copied per MiB", (copied / MANY).to_string(), "0"),
        ] {
            println!(r#"{{"measure":"{measure}","value":"{value}","goal":"{goal}"}}"#);
        }
    });
}
