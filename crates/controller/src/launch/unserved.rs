//! Work that lies in the queue for a backend that this process does not serve: the operators took the backend away, or this
//! is an older version. Nobody else would ever take it, since one process decides for an instance (NEW-49).

use domain::id::Backend as Kind;
use domain::lifecycle::Life;
use domain::reason::{Reason, Refusal};

use super::Launch;
use crate::board::Card;
use crate::queue::{QueueError, Waiting};
use crate::telemetry::events::{AssignmentEvent, Detail, Subject, assignment_processing_error, assignment_transition};

impl Launch {
    /// Ends it with a reason. What does not open is treated like every message that does not.
    pub(super) async fn refuse_unserved(&self) -> Result<(), QueueError> {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != self.kind) {
            for row in self.queue.list(kind).await? {
                self.refuse_row(kind, &row);
            }
        }
        Ok(())
    }

    /// The same of what did not open before.
    pub(super) async fn refuse_unserved_again(&self) -> Result<(), QueueError> {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != self.kind) {
            let rows = self.queue.list(kind).await?;
            rows.iter().filter(|row| self.unopened.holds(row)).for_each(|row| self.refuse_row(kind, row));
        }
        Ok(())
    }

    fn refuse_row(&self, kind: Kind, row: &Waiting) {
        if self.board.card(row.id).is_some_and(|card| card.digest == row.digest) {
            // Read again since the queue failed on the way: this very life has its end already, and is told only once
            // (NEW-163).
            return;
        }
        let subject = Subject::waiting(Some(kind), row.id);
        let assignment = match self.sealing.open(kind, row.id, &row.body) {
            Ok(opened) => {
                self.unopened.opened(row.id);
                opened.assignment
            }
            Err(closed) => {
                assignment_processing_error(&subject, &closed);
                return self.unopened.found(row, closed.class);
            }
        };
        let refusal = not_served(kind, self.kind);
        let detail = Detail::because(refusal.reason, &refusal.cause);
        assignment_transition(AssignmentEvent::Refused, &subject, detail);
        let life = Life::of_assignment(&assignment).found_unserved(self.board.now(), row.attempts, refusal);
        let card = Some(Card::of_assignment(&assignment));
        if self.board.view(row.id).is_some() {
            // A number that came again: the message of the life that is over (NEW-3).
            self.board.supersede(row.id, card, self.lane(row.id), life);
        } else {
            self.board.insert(row.id, card, self.lane(row.id), life);
        }
    }
}

fn not_served(kind: Kind, ours: Kind) -> Refusal {
    Refusal {
        reason: Reason::BackendDisabled,
        cause: format!("the job waited for an executor of {kind}, and the runner makes those of {ours} only now"),
        remedy: format!(
            "ask the operators to serve {kind} again (COMPONENTS with {kind}-worker), or change runs-on, and run the job again"
        ),
    }
}
