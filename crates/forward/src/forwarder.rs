//! The exchange: one request sent on, one response passed back, both as streams.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use http::{
    Extensions, HeaderValue, Request, Response, Version,
    header::{CONNECTION, TE},
    request,
};
use http_body::Body;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tower_service::Service;

use crate::{
    check::check,
    error::{BoxError, ForwardError},
    hop::{join_cookies, strip_hop_by_hop, tokens},
    lane::{Leash, Phase, Streamed, Watched},
};

/// How long nothing may move in a direction, unless told otherwise (requirements section 1.4).
pub const NO_PROGRESS: Duration = Duration::from_secs(60);

/// Forwards requests through a client `C`: a `hyper_util` legacy client, or any service that answers requests.
#[derive(Clone)]
pub struct Forwarder<C> {
    client: C,
    no_progress: Duration,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

impl<C> Forwarder<C> {
    /// With the limit [`NO_PROGRESS`] and counters of its own.
    pub fn new(client: C) -> Self {
        Self { client, no_progress: NO_PROGRESS, sent: Arc::default(), received: Arc::default() }
    }

    /// Ends an exchange in which a direction makes no progress for this long.
    #[must_use]
    pub fn no_progress(self, limit: Duration) -> Self {
        Self { no_progress: limit, ..self }
    }

    /// Adds the bytes of request bodies to `sent` and those of response bodies to `received`, as they pass.
    #[must_use]
    pub fn counting(self, sent: Arc<AtomicU64>, received: Arc<AtomicU64>) -> Self {
        Self { sent, received, ..self }
    }

    /// Sends `request` upstream and returns the response as soon as its head is there; the bodies follow as streams.
    ///
    /// `rewrite` gets the head last, with the headers of the hop and all extensions already gone: it sets the upstream's
    /// URI and decides about headers. Dropping the future or the response ends the exchange upstream.
    ///
    /// The clock of the request runs until its body has passed; then that of the response, its head included. After the
    /// head of the response, a stall shows as an error of its body, which hyper turns into a broken connection.
    ///
    /// # Errors
    /// [`ForwardError`], whose status is to be answered instead.
    pub async fn forward<B, R>(
        &self,
        request: Request<B>,
        rewrite: impl FnOnce(&mut request::Parts),
    ) -> Result<Response<Streamed<R>>, ForwardError>
    where
        B: Body + Unpin + Send + 'static,
        B::Error: Into<BoxError>,
        R: Body + Unpin + Send + 'static,
        R::Error: Into<BoxError>,
        C: Service<Request<Streamed<B>>, Response = Response<R>> + Clone,
        C::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        check(&head)?;
        clean(&mut head);
        rewrite(&mut head);
        let (closed, leash) = (Arc::new(Notify::new()), Arc::new(Leash::default()));
        let body = Streamed::new(body, self.sent.clone(), closed.clone(), &leash);
        let sending = body.lane();
        let response = self.answer(Request::from_parts(head, body), &*sending).await?;
        let (mut head, body) = response.into_parts();
        strip_hop_by_hop(&mut head.headers);
        head.extensions = Extensions::new();
        head.version = Version::HTTP_11;
        let body = Streamed::new(body, self.received.clone(), closed.clone(), &leash);
        if !body.is_end_stream() || sending.phase() == Phase::Open {
            leash.hold(tokio::spawn(watch([sending, body.lane()], closed, self.no_progress)).abort_handle());
        }
        Ok(Response::from_parts(head, body))
    }

    async fn answer<B, R>(
        &self,
        request: Request<Streamed<B>>,
        sending: &dyn Watched,
    ) -> Result<Response<R>, ForwardError>
    where
        C: Service<Request<Streamed<B>>, Response = Response<R>> + Clone,
        C::Error: Into<BoxError>,
    {
        let mut client = self.client.clone();
        let answer = async {
            std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
            client.call(request).await
        };
        let mut answer = std::pin::pin!(answer);
        loop {
            let stalls_at = sending.stalls_at(self.no_progress);
            tokio::select! {
                answer = answer.as_mut() => return answer.map_err(|error| match sending.phase() {
                    Phase::Failed => ForwardError::ClientGone,
                    _ => ForwardError::Upstream(error.into()),
                }),
                () = sleep_until(stalls_at) => {}
            }
            if sending.stalls_at(self.no_progress) <= Instant::now() {
                return Err(if sending.waits_for_source() {
                    ForwardError::ClientStalled
                } else {
                    ForwardError::UpstreamStalled
                });
            }
        }
    }
}

/// Takes away what concerned the connection the request came on.
fn clean(head: &mut request::Parts) {
    let takes_trailers = tokens(&head.headers, TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    strip_hop_by_hop(&mut head.headers);
    if takes_trailers {
        // Said anew for the next hop, because we do pass trailers on; over HTTP/1.1 it must be named (RFC 9110, 10.1.4).
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
        head.headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    join_cookies(&mut head.headers);
    head.extensions = Extensions::new();
    head.version = Version::HTTP_11;
}

/// Ends both directions when one of them stalls; ends itself when both are over.
async fn watch(lanes: [Arc<dyn Watched>; 2], closed: Arc<Notify>, limit: Duration) {
    loop {
        let open = lanes.iter().filter(|lane| lane.phase() == Phase::Open);
        let Some(stalls_at) = open.map(|lane| lane.stalls_at(limit)).min() else { return };
        if stalls_at <= Instant::now() {
            return lanes.iter().for_each(|lane| lane.end());
        }
        tokio::select! {
            () = closed.notified() => {}
            () = sleep_until(stalls_at) => {}
        }
    }
}
