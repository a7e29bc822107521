//! RunnerService as an executor's runner sees it. Who has the task's turn asks the life what to do, and does it; a call
//! that was begun upstream is finished even when the executor has gone (NEW-165).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::{ConnectError, PreEncoded, RequestContext, Response, ServiceRequest, ServiceResult};
use domain::id::AssignmentId;
use domain::lifecycle::{Action, Event, LogEnd, Outcome, Row, StepRecords, Tail};
use domain::metadata::{Claim, Mark};
use runner_proto::runner::v1 as proto;
use zeroize::Zeroizing;

use super::auth::Caller;
use super::intake::Held;
use super::{Facade, story};
use crate::backend::Marked;
use crate::correspondence::Correspondence;
use crate::gitea::{GiteaError, Trouble, Turn};
use crate::telemetry::events::assignment_processing_error;
use crate::wire::{outcome_of, proto_row, result_of, row_of, steps_of, wire_number};

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
        let alive = self.0.board.view(caller.id()).is_some_and(|view| view.life.may_work(caller.epoch()));
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

fn nothing_to_do() -> ConnectError {
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

fn result(id: AssignmentId, outcome: Option<Outcome>) -> proto::UpdateTaskResponse {
    let state = proto::TaskState { id: id.task().get(), result: result_of(outcome), ..Default::default() };
    proto::UpdateTaskResponse { state: Some(state).into(), ..Default::default() }
}

fn ack(rows: u64) -> proto::UpdateLogResponse {
    proto::UpdateLogResponse { ack_index: wire_number(rows), ..Default::default() }
}

/// The runner learns a code and Gitea's words without our token, never Gitea's headers.
fn to_runner(error: &GiteaError) -> ConnectError {
    ConnectError::unavailable(format!("Gitea gave no good answer: {error}"))
}

impl Facade {
    async fn hand_out(&self, caller: Caller) -> Result<Bytes, ConnectError> {
        let asked = Event::TaskAsked { epoch: caller.epoch() };
        let Some(lane) = self.board.lane(caller.id()) else { return Err(nothing_to_do()) };
        let mut actions = self.board.apply(caller.id(), asked.clone()).unwrap_or_default();
        if actions.contains(&Action::WriteClaim) {
            // Who asks again while a claim is being written does not queue behind it: the runner polls on anyway.
            let busy = |_| ConnectError::unavailable("the claim is being written; ask again");
            let turn = lane.turn_if_free().map_err(busy)?;
            // Whoever had the turn before may have claimed it for the same incarnation.
            actions = self.board.apply(caller.id(), asked).unwrap_or_default();
            if actions.contains(&Action::WriteClaim) {
                actions = self.write_claim(caller, &turn).await?;
            }
        }
        match actions.first() {
            Some(Action::HandOut) => {
                let payload = self.board.payload(caller.id());
                let payload =
                    payload.ok_or_else(|| ConnectError::unavailable("the task is being read from the queue"))?;
                // Overwritten when the connection has sent it (NEW-57).
                Ok(Bytes::from_owner(Zeroizing::new(domain::wire::fetch_response(&payload))))
            }
            Some(Action::AskAgain) => Err(ConnectError::unavailable("not yet; ask again")),
            _ => Err(nothing_to_do()),
        }
    }

    /// Asks Gitea once more, puts our rows before the runner's, and writes the claim where the next process finds it
    /// (NEW-23, NEW-28, NEW-53). Each of the three may have been carried out by an earlier attempt: all are idempotent.
    async fn write_claim(&self, caller: Caller, turn: &Turn<'_>) -> Result<Vec<Action>, ConnectError> {
        let (id, epoch) = (caller.id(), caller.epoch());
        let gitea = Correspondence::new(&self.board, id, turn);
        let asked = gitea.state(proto::UpdateTaskRequest::default()).await;
        let wanted =
            asked.map_err(|error| to_runner(&error))?.is_some_and(|answer| outcome_of(&answer.state).is_none());
        if !wanted {
            return Ok(vec![Action::SendHome]);
        }
        let Some(view) = self.board.view(id) else { return Ok(vec![Action::SendHome]) };
        let rows = story::rows(&view, self.board.now()).iter().map(proto_row).collect();
        // The same index until the claim stands, which is why its life does not hear the answer: rows that an earlier
        // attempt stored are not stored twice.
        let index = wire_number(gitea.next_row().await.map_err(|error| to_runner(&error))?);
        let request = proto::UpdateLogRequest { index, rows, ..Default::default() };
        let log_shift = gitea.log(request).await.map_err(|error| to_runner(&error))?;
        let mark = Mark::Claimed(Claim { at: self.board.now(), log_shift });
        match self.backend.mark(&self.name_of(caller), mark).await {
            Ok(Marked::Written) => {}
            Ok(Marked::Gone) => return Ok(vec![Action::SendHome]),
            Err(error) => return Err(ConnectError::unavailable(format!("the claim could not be written: {error}"))),
        }
        Ok(self.board.apply(id, Event::ClaimWritten { epoch, log_shift }).unwrap_or_default())
    }

    pub(super) async fn take_state(
        &self,
        caller: Caller,
        mut request: proto::UpdateTaskRequest,
    ) -> Result<proto::UpdateTaskResponse, ConnectError> {
        let id = caller.id();
        let Some(lane) = self.board.lane(id) else { return Ok(result(id, Some(Outcome::Cancelled))) };
        let turn = lane.turn().await;
        let gitea = Correspondence::new(&self.board, id, &turn);
        let (outcome, steps) = (outcome_of(&request.state), steps_of(&request.state));
        let event = Event::RunnerState { epoch: caller.epoch(), outcome, steps };
        let mut actions = self.board.apply(id, event).unwrap_or_default();
        if let Some(Action::RecordSteps { text, steps }) = actions.first() {
            actions = self.record_steps(caller, text.clone(), steps.clone()).await?;
        }
        for action in actions {
            match action {
                Action::ForwardState { close } => {
                    if let Some(ours) = close {
                        self.close_log(id, &gitea, &ours).await?;
                    }
                    let shift = wire_number(self.board.log_shift(id));
                    for step in &mut request.state.get_or_insert_default().steps {
                        step.log_index = step.log_index.saturating_add(shift);
                    }
                    let answer = gitea.state(request).await.map_err(|error| to_runner(&error))?;
                    let answer = answer.unwrap_or_else(|| result(id, Some(Outcome::Cancelled)));
                    return Ok(verdict(answer, outcome));
                }
                Action::AnswerResult(outcome) => return Ok(result(id, Some(outcome))),
                Action::AskAgain => return Err(ConnectError::unavailable("say the end of the log again, then this")),
                _ => {}
            }
        }
        Ok(result(id, Some(Outcome::Cancelled)))
    }

    async fn close_log(&self, id: AssignmentId, gitea: &Correspondence<'_>, ours: &[Row]) -> Result<(), ConnectError> {
        match gitea.close(ours).await {
            // Nobody asks for the log of a task that Gitea no longer knows; the state that follows hears of it.
            Err(error) if error.trouble == Trouble::TaskUnknown => drop(self.board.apply(id, Event::LogSealed)),
            closed => closed.map_err(|error| to_runner(&error))?,
        }
        Ok(())
    }

    /// The runner repeats an update whose record failed with its next one; its end needs no record (NEW-27).
    async fn record_steps(
        &self,
        caller: Caller,
        text: String,
        steps: StepRecords,
    ) -> Result<Vec<Action>, ConnectError> {
        let trouble = match self.backend.mark(&self.name_of(caller), Mark::Steps(text)).await {
            Ok(Marked::Written) => {
                let recorded = Event::StepsRecorded { epoch: caller.epoch(), steps };
                return Ok(self.board.apply(caller.id(), recorded).unwrap_or_default());
            }
            Ok(Marked::Gone) => "its executor is gone".to_owned(),
            Err(error) => error.to_string(),
        };
        assignment_processing_error(&self.subject(caller), &format!("record of the steps: {trouble}"));
        Err(ConnectError::unavailable("the steps could not be recorded; say them again"))
    }

    pub(super) async fn take_rows(
        &self,
        caller: Caller,
        index: u64,
        mut request: proto::UpdateLogRequest,
    ) -> Result<proto::UpdateLogResponse, ConnectError> {
        let id = caller.id();
        let count = request.rows.len() as u64;
        let Some(lane) = self.board.lane(id) else { return Ok(ack(index + count)) };
        let turn = lane.turn().await;
        let end = if request.no_more { LogEnd::Last(request.rows.last().map(row_of)) } else { LogEnd::Open };
        let event = Event::RunnerLog { epoch: caller.epoch(), index, count, end };
        match self.board.apply(id, event).unwrap_or_default().into_iter().next() {
            Some(Action::ForwardRows { index: shifted, tail }) => {
                if tail == Tail::KeptBack {
                    request.rows.pop();
                }
                request.index = wire_number(shifted);
                request.no_more = tail == Tail::Closing;
                if request.rows.is_empty() {
                    return Ok(ack(self.board.runner_ack(id)));
                }
                self.forward_rows(id, &Correspondence::new(&self.board, id, &turn), request, index + count).await
            }
            Some(Action::AckRows { ack: rows }) => Ok(ack(rows)),
            Some(Action::AskAgain) => Err(ConnectError::unavailable("not yet; ask again")),
            _ => Ok(ack(index + count)),
        }
    }

    async fn forward_rows(
        &self,
        id: AssignmentId,
        gitea: &Correspondence<'_>,
        request: proto::UpdateLogRequest,
        everything: u64,
    ) -> Result<proto::UpdateLogResponse, ConnectError> {
        let closes = request.no_more;
        match gitea.log(request).await {
            Ok(stored) => {
                self.board.apply(id, Event::LogStored { ack: stored });
                if closes {
                    self.board.apply(id, Event::LogSealed);
                }
                Ok(ack(self.board.runner_ack(id)))
            }
            // Gitea closed the log: what comes after it counts as delivered, and the runner goes on quietly.
            Err(error) if error.trouble == Trouble::LogArchived => {
                self.board.apply(id, Event::LogSealed);
                Ok(ack(everything))
            }
            Err(error) if error.trouble == Trouble::TaskUnknown => {
                self.board.apply(id, Event::TaskUnknown);
                Ok(ack(everything))
            }
            Err(error) => Err(to_runner(&error)),
        }
    }
}

/// Gitea's answer for the runner: its own accepted end as it is, any other end as CANCELLED, which alone stops a running
/// job (NEW-159).
fn verdict(mut answer: proto::UpdateTaskResponse, said: Option<Outcome>) -> proto::UpdateTaskResponse {
    let stored = outcome_of(&answer.state);
    if stored.is_some() && stored != said {
        answer.state.get_or_insert_default().result = result_of(Some(Outcome::Cancelled));
    }
    answer
}
