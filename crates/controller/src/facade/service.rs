//! RunnerService as an executor's runner sees it. Who has the task's turn asks the life what to do, and does it; a call
//! that was begun upstream is finished even when the executor has gone (NEW-165).

use std::sync::Arc;
use std::time::Duration;

use connectrpc::{ConnectError, PreEncoded, RequestContext, Response, ServiceRequest, ServiceResult};
use domain::id::AssignmentId;
use domain::lifecycle::Outcome;
use runner_proto::runner::v1 as proto;

use super::Facade;
use super::auth::Caller;
use super::intake::Held;
use crate::gitea::GiteaError;
use crate::wire::{result_of, wire_number};

/// The runner gives up after 5 s (requirements §1.4).
const FETCH_ANSWER: Duration = Duration::from_secs(3);

/// The service behind the authentication layer.
pub(super) struct Service(pub(super) Arc<Facade>);

#[expect(refining_impl_trait, reason = "the service is served, never named")]
impl proto::RunnerService for Service {
    async fn register(
        &self,
        _ctx: RequestContext,
        _request: ServiceRequest<'_, proto::RegisterRequest>,
    ) -> ServiceResult<proto::RegisterResponse> {
        Err(ConnectError::permission_denied("executors are registered by their controller"))
    }

    async fn declare(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, proto::DeclareRequest>,
    ) -> ServiceResult<proto::DeclareResponse> {
        let caller = caller(&ctx)?;
        let alive = self.0.board.read(caller.id(), |life| life.may_work(caller.epoch())).unwrap_or_default();
        if !caller.is_live() || !alive {
            return Err(nothing_to_do());
        }
        let request = request.to_owned_message();
        let runner = proto::Runner {
            uuid: caller.id().to_string(),
            name: caller.id().to_string(),
            status: proto::RunnerStatus::RUNNER_STATUS_IDLE.into(),
            version: request.version,
            labels: request.labels,
            ephemeral: true,
            ..Default::default()
        };
        let response = Response::new(proto::DeclareResponse { runner: Some(runner).into(), ..Default::default() });
        Ok(match self.0.capabilities.get().and_then(Option::as_deref) {
            Some(capabilities) => response.with_header("x-gitea-actions-capabilities", capabilities),
            None => response,
        })
    }

    async fn fetch_task(
        &self,
        ctx: RequestContext,
        _request: ServiceRequest<'_, proto::FetchTaskRequest>,
    ) -> ServiceResult<PreEncoded<proto::FetchTaskResponse>> {
        let caller = caller(&ctx)?;
        if !caller.is_live() {
            return Err(nothing_to_do());
        }
        let facade = Arc::clone(&self.0);
        let claim = self.0.tracker.spawn(async move { facade.hand_out(caller).await });
        match tokio::time::timeout(FETCH_ANSWER, claim).await {
            Ok(Ok(Ok(bytes))) => Response::ok(PreEncoded::from_bytes_unchecked(bytes)),
            Ok(Ok(Err(error))) => Err(error),
            _ => Err(ConnectError::unavailable("the claim is being written; ask again")),
        }
    }

    async fn update_task(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, proto::UpdateTaskRequest>,
    ) -> ServiceResult<proto::UpdateTaskResponse> {
        let caller = caller(&ctx)?;
        let request = request.to_owned_message();
        let state = request.state.as_option().ok_or_else(|| ConnectError::invalid_argument("the state is missing"))?;
        own_task(caller, state.id)?;
        if !caller.is_live() {
            return Response::ok(result(caller.id(), Some(Outcome::Cancelled)));
        }
        let (facade, held) = (Arc::clone(&self.0), held(&ctx));
        let call = async move {
            let _held = held;
            facade.take_state(caller, request).await
        };
        finished(self.0.tracker.spawn(call)).await
    }

    async fn update_log(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, proto::UpdateLogRequest>,
    ) -> ServiceResult<proto::UpdateLogResponse> {
        let caller = caller(&ctx)?;
        let request = request.to_owned_message();
        own_task(caller, request.task_id)?;
        let index = u64::try_from(request.index).map_err(|_| ConnectError::invalid_argument("a negative index"))?;
        if !caller.is_live() {
            return Response::ok(ack(index + request.rows.len() as u64));
        }
        let (facade, held) = (Arc::clone(&self.0), held(&ctx));
        let call = async move {
            let _held = held;
            facade.take_rows(caller, index, request).await
        };
        finished(self.0.tracker.spawn(call)).await
    }
}

fn caller(ctx: &RequestContext) -> Result<Caller, ConnectError> {
    ctx.extensions().get::<Caller>().copied().ok_or_else(|| ConnectError::unauthenticated("no caller"))
}

/// The message's memory is in use until the call is carried out, also when its sender has gone.
fn held(ctx: &RequestContext) -> Option<Held> {
    ctx.extensions().get::<Held>().cloned()
}

pub(super) fn nothing_to_do() -> ConnectError {
    ConnectError::unauthenticated("there is no task for you here")
}

pub(super) fn own_task(caller: Caller, task: i64) -> Result<(), ConnectError> {
    if task == caller.id().task().get() {
        return Ok(());
    }
    Err(ConnectError::permission_denied(format!("task {task} is not this assignment's")))
}

async fn finished<T>(call: tokio::task::JoinHandle<Result<T, ConnectError>>) -> ServiceResult<T> {
    match call.await {
        Ok(answer) => answer.map(Response::new),
        Err(_) => Err(ConnectError::internal("the call did not end")),
    }
}

pub(super) fn result(id: AssignmentId, outcome: Option<Outcome>) -> proto::UpdateTaskResponse {
    let state = proto::TaskState { id: id.task().get(), result: result_of(outcome), ..Default::default() };
    proto::UpdateTaskResponse { state: Some(state).into(), ..Default::default() }
}

pub(super) fn ack(rows: u64) -> proto::UpdateLogResponse {
    proto::UpdateLogResponse { ack_index: wire_number(rows), ..Default::default() }
}

/// The runner learns a code and Gitea's words without our token, never Gitea's headers.
pub(super) fn to_runner(error: &GiteaError) -> ConnectError {
    ConnectError::unavailable(format!("Gitea gave no good answer: {error}"))
}
