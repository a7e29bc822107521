//! What the rooms say to Gitea about one task, and how its life hears the answers: sent in the task's turn, one meaning of
//! an answer for everybody.
//!
//! A call that fails changes nothing here; whether it is repeated is its caller's business (invariant 8).

use domain::id::AssignmentId;
use domain::lifecycle::{Closing, Event, Outcome, Row};
use runner_proto::runner::v1 as proto;

use crate::board::Board;
use crate::gitea::{GiteaError, Trouble, Turn};
use crate::wire::{outcome_of, proto_row, wire_number};

/// The turn of one task, and the life that hears the answers.
pub struct Correspondence<'a> {
    board: &'a Board,
    id: AssignmentId,
    turn: &'a Turn<'a>,
}

impl<'a> Correspondence<'a> {
    /// For a task whose turn the caller has.
    #[must_use]
    pub fn new(board: &'a Board, id: AssignmentId, turn: &'a Turn<'a>) -> Self {
        Self { board, id, turn }
    }

    /// Sends a state, or with an empty request asks for it; none: Gitea knows no such task of ours, and its life has heard
    /// so.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn state(
        &self,
        request: proto::UpdateTaskRequest,
    ) -> Result<Option<proto::UpdateTaskResponse>, GiteaError> {
        let said = outcome_of(&request.state);
        match self.turn.update_task(request).await {
            Ok(answer) => {
                let event = match outcome_of(&answer.state) {
                    Some(Outcome::Cancelled) if said.is_none() && self.turn.waits_for_cancelled() => Event::CancelAsked,
                    outcome => Event::Answered { outcome },
                };
                self.board.apply(self.id, event);
                Ok(Some(answer))
            }
            Err(error) if error.trouble == Trouble::TaskUnknown => {
                self.board.apply(self.id, Event::TaskUnknown);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends rows as they are; returns how many Gitea holds now. Its life hears of the answer only when it is told so.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn log(&self, request: proto::UpdateLogRequest) -> Result<u64, GiteaError> {
        let first = u64::try_from(request.index).unwrap_or_default();
        let rows = request.rows.len() as u64;
        if rows > 0 {
            self.board.apply(self.id, Event::RowsSent { end: first.saturating_add(rows) });
        }
        self.turn.update_log(request).await
    }

    /// Stores rows from this index of Gitea's on; returns how many it holds. Without rows it only tells.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn rows(&self, index: u64, rows: &[Row]) -> Result<u64, GiteaError> {
        let ack = self.log(request(index, rows)).await?;
        self.board.apply(self.id, Event::LogStored { ack });
        Ok(ack)
    }

    /// The index of the next row of ours before the claim.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn next_row(&self) -> Result<u64, GiteaError> {
        match self.board.read(self.id, |life| life.log().next_row()) {
            Some(Some(index)) => Ok(index),
            _ => self.rows(0, &[]).await,
        }
    }

    /// Closes the log with these rows of ours behind all others; one that Gitea closed already counts as closed. Nothing
    /// is sent but rows with `no_more`, so that it is right after the end of the task as well (NEW-163).
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn close(&self, ours: &[Row]) -> Result<(), GiteaError> {
        // Where the log turns out to end before, the second call begins there; nobody else writes meanwhile.
        for _ in 0..2 {
            let Some(view) = self.board.view(self.id) else { return Ok(()) };
            let Closing { index, rows } = view.life.log().closing(ours, self.board.now());
            match self.log(proto::UpdateLogRequest { no_more: true, ..request(index, &rows) }).await {
                Ok(ack) => {
                    self.board.apply(self.id, Event::LogStored { ack });
                    if ack == index + rows.len() as u64 {
                        self.board.apply(self.id, Event::LogSealed);
                        return Ok(());
                    }
                }
                Err(error) if error.trouble == Trouble::LogArchived => {
                    self.board.apply(self.id, Event::LogSealed);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Err(GiteaError::malformed("UpdateLog", "the end of the log was not taken"))
    }
}

fn request(index: u64, rows: &[Row]) -> proto::UpdateLogRequest {
    let rows = rows.iter().map(proto_row).collect();
    proto::UpdateLogRequest { index: wire_number(index), rows, ..Default::default() }
}
