//! What the rooms say to Gitea about one task, and how its life hears the answers: sent in the task's turn, one meaning of
//! an answer for everybody.
//!
//! A call that fails changes nothing here; whether it is repeated is its caller's business (invariant 8).

use domain::id::AssignmentId;
use domain::lifecycle::{Event, Row};
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
        match self.turn.update_task(request).await {
            Ok(answer) => {
                self.board.apply(self.id, Event::Answered { outcome: outcome_of(&answer.state) });
                Ok(Some(answer))
            }
            Err(error) if error.trouble == Trouble::TaskUnknown => {
                self.board.apply(self.id, Event::TaskUnknown);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Stores rows from this index of Gitea's on; returns how many it holds. Without rows it only tells.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn rows(&self, index: u64, rows: &[Row]) -> Result<u64, GiteaError> {
        let ack = self.turn.update_log(log(index, rows)).await?;
        self.board.apply(self.id, Event::LogStored { ack });
        Ok(ack)
    }

    /// Closes the log with these rows; one that Gitea closed already counts as closed.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn close(&self, index: u64, rows: &[Row]) -> Result<(), GiteaError> {
        match self.turn.update_log(proto::UpdateLogRequest { no_more: true, ..log(index, rows) }).await {
            Ok(ack) => drop(self.board.apply(self.id, Event::LogStored { ack })),
            Err(error) if error.trouble == Trouble::LogArchived => {}
            Err(error) => return Err(error),
        }
        self.board.apply(self.id, Event::LogSealed);
        Ok(())
    }
}

fn log(index: u64, rows: &[Row]) -> proto::UpdateLogRequest {
    let rows = rows.iter().map(proto_row).collect();
    proto::UpdateLogRequest { index: wire_number(index), rows, ..Default::default() }
}
