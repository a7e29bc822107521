//! What a runner reports: its state and its rows, judged by the life of its task, then forwarded in the task's turn.

use connectrpc::ConnectError;
use domain::id::AssignmentId;
use domain::lifecycle::{Action, Event, LogEnd, Outcome, Row, StepRecords, Tail};
use domain::metadata::Mark;
use runner_proto::runner::v1 as proto;

use super::Facade;
use super::auth::Caller;
use super::service::{ack, result, to_runner};
use crate::backend::Marked;
use crate::correspondence::Correspondence;
use crate::gitea::Trouble;
use crate::telemetry::events::assignment_processing_error;
use crate::wire::{outcome_of, result_of, row_of, steps_of, wire_number};

impl Facade {
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
        let end = request.index.saturating_add(wire_number(request.rows.len() as u64));
        match gitea.log(request).await {
            Ok(stored) => {
                self.board.apply(id, Event::LogStored { ack: stored });
                if closes && wire_number(stored) == end {
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
