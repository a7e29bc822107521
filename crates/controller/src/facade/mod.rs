//! What executors talk to: RunnerService, their own reports, and the allow-listed way to the repository, all behind
//! SPIFFE mTLS and one authentication layer (invariant 6).

mod answer;
mod auth;
mod claim;
mod connection;
mod executor_api;
mod inherit;
mod intake;
mod listener;
mod proxy;
mod service;
mod shares;
mod story;
mod updates;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use domain::executor_api::{READY_PATH, REPORT_PATH};
use domain::id::{Backend as Kind, InstanceId};
use runner_proto::runner::v1 as proto;
use tokio_util::task::TaskTracker;

use crate::backend::Backend;
use crate::board::Board;
use crate::ops::Ops;
use crate::rotation::Ring;
use crate::telemetry::events::Subject;
use auth::{Caller, Gate};
use connection::House;
pub use inherit::Inherited;
use intake::Intake;
pub use listener::serve;
pub use proxy::Upstream;
use shares::Shares;

/// Body of a report or a small call (requirements §1.4).
const SMALL_BODY: usize = 64 << 10;
/// Body of an UpdateTask or UpdateLog.
const LARGE_BODY: usize = 16 << 20;

/// What the facade needs.
pub struct Facade {
    /// Lives.
    pub board: Arc<Board>,
    /// Where claims and marks are written.
    pub backend: Arc<dyn Backend>,
    /// Its kind.
    pub kind: Kind,
    /// Our name.
    pub instance: InstanceId,
    /// Checks capabilities.
    pub ring: Arc<Ring>,
    /// Whether executors of the earlier controller are told that they are over (§4.3, form 1).
    pub accept_form_1: bool,
    /// Gitea's capability header, once Declare brought it (NEW-25).
    pub capabilities: Arc<OnceLock<Option<String>>>,
    /// The repository's server.
    pub upstream: Upstream,
    /// Metrics.
    pub ops: Ops,
    /// Calls under way: they are finished even when the executor has gone.
    pub tracker: TaskTracker,
    /// Most connections at a time.
    pub connections: usize,
}

impl Facade {
    /// What the listener serves.
    fn house(self: Arc<Self>) -> House {
        let shares = Arc::new(Shares::new(self.connections));
        let gate = Arc::new(Gate {
            board: Arc::clone(&self.board),
            ring: Arc::clone(&self.ring),
            accept_form_1: self.accept_form_1,
            instance: self.instance.clone(),
            ops: self.ops.clone(),
            shares: Arc::clone(&shares),
        });
        let ends = Arc::clone(&gate);
        let is_over = Arc::new(move |caller| ends.is_over(caller));
        House { router: self.router(gate, shares), is_over, limits: Default::default() }
    }

    fn router(self: Arc<Self>, gate: Arc<Gate>, shares: Arc<Shares>) -> Router {
        // `intake` knows the limit of each procedure; this one is for what it lets through.
        let limits =
            connectrpc::Limits::default().with_max_request_body_size(LARGE_BODY).with_max_message_size(LARGE_BODY);
        let rpc = connectrpc::Router::new()
            .add_service(Arc::new(service::Service(Arc::clone(&self))) as Arc<service::Service>)
            .with_route_limits("/runner.v1.RunnerService/UpdateTask", limits)
            .with_route_limits("/runner.v1.RunnerService/UpdateLog", limits);
        Router::new()
            .route(READY_PATH, get(executor_api::ready))
            .route(REPORT_PATH, post(executor_api::report))
            .nest_service("/api/actions", rpc.into_axum_service())
            .layer(from_fn_with_state(Arc::new(Intake::new(shares)), intake::take_in))
            .fallback(proxy::pass)
            .layer(from_fn(proxy::plain))
            .layer(from_fn_with_state(gate, auth::authenticate))
            .with_state(self)
    }

    fn subject(&self, caller: Caller) -> Subject {
        Subject { backend: Some(self.kind), assignment: caller.id(), epoch: Some(caller.epoch()) }
    }

    /// The name of the caller's object.
    fn name_of(&self, caller: Caller) -> String {
        domain::id::executor_name(caller.id(), &self.instance, caller.epoch())
    }
}

/// The registered procedures exist as long as the generated service does.
const _: fn() = || {
    fn implements<T: proto::RunnerService>() {}
    implements::<service::Service>();
};
