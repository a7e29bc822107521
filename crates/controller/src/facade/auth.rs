//! Who is calling: one layer in front of every route (invariant 6; FAC-5, NEW-94, NEW-159).
//!
//! A caller is the SPIFFE ID of the TLS peer, the assignment id and its capability together. Nothing else in a request
//! says who somebody is.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use connectrpc::ErrorCode;
use domain::capability::KeyRing;
use domain::executor_api::{ASSIGNMENT_HEADER, CAPABILITY_HEADER, READY_PATH, REPORT_PATH};
use domain::id::{AssignmentId, Epoch, InstanceId};
use domain::identity::SpiffeId;
use domain::last_report::{LastReport, Unopened};
use domain::lifecycle::Life;
use domain::metadata::ExecutorRecord;

use super::answer;
use super::connection::Line;
use super::shares::Shares;
use crate::board::{Board, Recovery};
use crate::ops::Ops;
use crate::rotation::Ring;

/// The SPIFFE ID of the TLS peer, put there by the listener; never taken from a header.
#[derive(Debug, Clone)]
pub(super) struct Peer(pub(super) SpiffeId);

/// Somebody with a genuine capability of ours. Only this module can make one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller {
    id: AssignmentId,
    epoch: Epoch,
    standing: Standing,
}

/// What the capability is still good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The assignment is on the board and the capability has not expired.
    Live,
    /// Genuine once: it is told that it is over, and changes nothing.
    Over,
}

impl Caller {
    pub(super) fn id(self) -> AssignmentId {
        self.id
    }

    pub(super) fn epoch(self) -> Epoch {
        self.epoch
    }

    /// Somebody for a test.
    #[cfg(test)]
    pub(super) fn of_test(id: AssignmentId) -> Self {
        Self { id, epoch: Epoch::FIRST, standing: Standing::Live }
    }

    /// Who left this file; that it opens proves as much as its capability would (NEW-112).
    pub(super) fn of_last_report(
        ring: &KeyRing,
        record: &ExecutorRecord,
        file: &[u8],
    ) -> Result<(Self, LastReport), Unopened> {
        let (epoch, report) = LastReport::open(ring, file, &record.instance, record.id)?;
        let caller = Self { id: record.id, epoch, standing: Standing::Live };
        if epoch == record.epoch { Ok((caller, report)) } else { Err(Unopened) }
    }

    pub(super) fn is_live(self) -> bool {
        self.standing == Standing::Live
    }
}

/// What the layer needs.
pub(super) struct Gate {
    pub(super) board: Arc<Board>,
    pub(super) ring: Arc<Ring>,
    /// During the migration only (§4.3).
    pub(super) accept_form_1: bool,
    pub(super) instance: InstanceId,
    pub(super) ops: Ops,
    pub(super) shares: Arc<Shares>,
}

/// The layer: a request that passes carries its [`Caller`].
pub(super) async fn authenticate(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let method = method_of(request.uri().path());
    if gate.board.recovery() < Recovery::ExecutorsKnown {
        // A process that just started must not tell a running job that nobody knows it.
        let response = answer::not_ready("the executors of this host are being listed; ask again");
        gate.ops.metrics.facade_request(method, answer::word(response.status()));
        return response;
    }
    let mut response = match gate.caller(peer.as_ref(), request.headers()) {
        Ok(caller) if gate.may_be_of_another(caller) => {
            answer::not_ready("another process may lead, and may know of this executor; ask again")
        }
        Ok(caller) if !gate.seats(&request, caller) => {
            gate.ops.metrics.facade_denied("connections");
            answer::error(ErrorCode::ResourceExhausted, "this job has too many connections")
        }
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(missing) => {
            gate.ops.metrics.facade_denied(missing);
            answer::unauthenticated(missing)
        }
    };
    if response.status() == StatusCode::SERVICE_UNAVAILABLE && !gate.board.may_decide() {
        // Another process may have the same address, and who asks again may find it there.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    gate.ops.metrics.facade_request(method, answer::word(response.status()));
    response
}

/// A bounded word for the metric: nobody's path becomes a label.
fn method_of(path: &str) -> &'static str {
    let procedures = ["Register", "Declare", "FetchTask", "UpdateTask", "UpdateLog"];
    let procedure = path.strip_prefix("/api/actions/runner.v1.RunnerService/");
    match procedure {
        Some(name) => procedures.into_iter().find(|known| *known == name).unwrap_or("unknown"),
        None if path == READY_PATH || path == REPORT_PATH => "executor",
        None => "proxy",
    }
}

impl Gate {
    /// Ties the request's connection to its caller.
    fn seats(&self, request: &Request, caller: Caller) -> bool {
        request.extensions().get::<Arc<Line>>().is_none_or(|line| line.speaks_for(caller, &self.shares))
    }

    /// Whether another leader may have made this executor: while nobody can tell who leads, what is not known here is no
    /// ground to send anybody home (NEW-59).
    fn may_be_of_another(&self, caller: Caller) -> bool {
        let made_here = |life: &Life| !life.is_held() && life.epoch() >= caller.epoch;
        !self.board.may_decide() && !self.board.read(caller.id, made_here).unwrap_or_default()
    }

    /// Whether nothing that this caller says changes anything any more: fenced, gone, expired, or past the grace of its
    /// end (NEW-103).
    pub(super) fn is_over(&self, caller: Caller) -> bool {
        let (now, limits) = (self.board.now(), self.board.limits());
        let current = |life: &Life| life.epoch() == caller.epoch && !life.wants(now, limits).removal;
        !caller.is_live() || !self.board.read(caller.id, current).unwrap_or_default()
    }

    /// The caller, or the one word for what is missing.
    fn caller(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Result<Caller, &'static str> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let id: AssignmentId = text(ASSIGNMENT_HEADER).and_then(|id| id.parse().ok()).ok_or("assignment")?;
        let capability = text(CAPABILITY_HEADER).ok_or("capability")?;
        let ring = self.ring.now();
        let grant = ring.verify(capability, &self.instance, id);
        let earlier = grant.is_err() && self.accept_form_1 && ring.verify_form_1(capability, id);
        if grant.is_err() && !earlier {
            return Err("capability");
        }
        let Peer(peer) = peer.ok_or("identity")?;
        let card = self.board.card(id);
        if card.as_ref().is_some_and(|card| card.spiffe_id != *peer) {
            return Err("identity");
        }
        // An executor of the earlier controller is none of an incarnation of ours: a task that was taken over is run by an
        // executor of ours, and only that one may claim it. It is told that it is over, as one that was replaced.
        let Ok(grant) = grant else { return Ok(Caller { id, epoch: Epoch::FIRST, standing: Standing::Over }) };
        let live = card.is_some() && self.board.now() < grant.expires;
        Ok(Caller { id, epoch: grant.epoch, standing: if live { Standing::Live } else { Standing::Over } })
    }
}
