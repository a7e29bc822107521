//! The claim: how a task is handed to its executor, at most once (NEW-53, NEW-58).

use bytes::Bytes;
use connectrpc::ConnectError;
use domain::lifecycle::{Action, Event};
use domain::metadata::{Claim, Mark};
use runner_proto::runner::v1 as proto;
use zeroize::Zeroizing;

use super::auth::Caller;
use super::service::{nothing_to_do, to_runner};
use super::{Facade, story};
use crate::backend::Marked;
use crate::correspondence::Correspondence;
use crate::gitea::Turn;
use crate::wire::{outcome_of, proto_row, wire_number};

impl Facade {
    pub(super) async fn hand_out(&self, caller: Caller) -> Result<Bytes, ConnectError> {
        if !self.board.may_decide() {
            return Err(ConnectError::unavailable("another process may lead; ask again"));
        }
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
}
