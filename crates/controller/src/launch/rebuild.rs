//! What a former process held: read from the queue once, before the first launch, without delivering it (NEW-157).

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::assignment::Assignment;
use domain::envelope::Opened;
use domain::id::Epoch;
use domain::lifecycle::{Event, Life};
use jiff::Timestamp;

use super::Launch;
use crate::board::Card;
use crate::queue::{QueueError, Waiting};
use crate::sealing::Unopenable;
use crate::telemetry::events::assignment_processing_error;

impl Launch {
    /// What a former process held is known by reading the queue, without delivering it (NEW-157).
    pub(super) async fn rebuild(&self) -> Result<(), QueueError> {
        let mut waiting = BTreeMap::new();
        for row in self.queue.list(self.kind).await? {
            if self.is_older_life(row.id, &row.digest) {
                self.learn(row);
            } else {
                waiting.insert(row.id, row);
            }
        }
        for view in self.board.views().into_iter().filter(|view| view.wants.payload) {
            let Some(row) = waiting.remove(&view.id) else {
                self.board.apply(view.id, Event::MessageMissing);
                continue;
            };
            if let Ok(Opened { assignment, task }) = self.open(row.id, &row.body) {
                self.lay_out(&assignment, view.life.epoch(), &task);
            }
        }
        waiting.into_values().for_each(|row| self.learn(row));
        Ok(())
    }

    /// A former leader that could not reach the queue may bring the task that it had in memory only after we have read what
    /// there was. Nobody pulls for a task that he does not know, and nobody else gives it a sign of life. What was settled
    /// before this reading is not found by it, and nothing is settled beside it. What does not open is found as well, whoever
    /// wrote it.
    pub(super) async fn find_late(&self) -> Result<(), QueueError> {
        for row in self.queue.list(self.kind).await? {
            if self.board.view(row.id).is_none() && !self.unopened.holds(&row) {
                self.learn(row);
            }
        }
        Ok(())
    }

    /// Tries the messages that did not open and of which nobody may say anything: nobody pulls them, since they have no
    /// life (NEW-38).
    pub(super) async fn open_again(&self) -> Result<(), QueueError> {
        let rows = self.queue.list(self.kind).await?;
        rows.into_iter().filter(|row| self.unopened.holds(row)).for_each(|row| self.learn(row));
        self.refuse_unserved_again().await
    }

    /// A message that nobody in this process has heard of yet.
    fn learn(&self, row: Waiting) {
        let is_newer = self.is_older_life(row.id, &row.digest);
        match self.open(row.id, &row.body) {
            Ok(Opened { assignment, .. }) if is_newer => {
                // The queue has the newest of each number; the executor that was found is an older life's (NEW-3).
                let life = Life::of_assignment(&assignment);
                let life = life.found_waiting(self.board.now(), row.attempts, row.last_error);
                self.board.supersede(row.id, Some(Card::of_assignment(&assignment)), self.lane(row.id), life);
            }
            Ok(opened) => self.make_known(&opened.assignment, row.attempts, row.last_error),
            // Nobody's: counted, shown, and set aside in the end (NEW-38); unless its number is proven, and no other life has it.
            Err(closed) if closed.proven && !is_newer => self.make_known_unopened(&row, &closed),
            Err(closed) => self.unopened.found(&row, closed.class),
        }
    }

    /// Its number is proven, so it is held like every other task: heard of as cancelled, or ended after the longest wait.
    fn make_known_unopened(&self, row: &Waiting, closed: &Unopenable) {
        let limits = self.board.limits();
        let wait = limits.queue_wait.saturating_add(limits.least_budget);
        let life =
            Life::fetched(row.enqueued_at, row.enqueued_at.saturating_add(wait).unwrap_or(Timestamp::MAX), vec![]);
        let life = life.found_waiting(self.board.now(), row.attempts, Some(closed.to_string()));
        self.board.insert_unopened(row.key(), self.lane(row.id), life);
        self.board.apply(row.id, Event::WaitsFor { what: format!("a key that opens it: {closed}") });
    }

    pub(super) fn make_known(&self, assignment: &Assignment, attempts: u32, last_error: Option<String>) {
        self.board.hold_waiting(assignment, self.lane(assignment.id), attempts, last_error);
    }

    /// An executor that was found again gets its payload back on the board.
    fn lay_out(&self, assignment: &Assignment, epoch: Epoch, task: &[u8]) {
        match assignment.served_task(task) {
            Ok(served) => {
                self.board.offer(assignment.id, epoch, Arc::new(served));
                self.board.apply(assignment.id, Event::PayloadFound);
            }
            Err(refusal) => assignment_processing_error(&self.subject(assignment.id), &refusal),
        }
    }
}
