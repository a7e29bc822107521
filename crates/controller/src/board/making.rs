//! Executors whose making is under way: nobody can say yet that they are not there, whatever became of their lives
//! meanwhile (NEW-55, NEW-62).

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use domain::id::{AssignmentId, Epoch};

use super::Board;

/// Lasts as long as the calls that make an executor, and as nobody knows what became of them.
pub struct Making<'a> {
    board: &'a Board,
    whose: (AssignmentId, Epoch),
}

impl Board {
    /// An executor is being made from now on.
    #[must_use]
    pub fn makes(&self, id: AssignmentId, epoch: Epoch) -> Making<'_> {
        self.making_now().insert((id, epoch));
        Making { board: self, whose: (id, epoch) }
    }

    /// Taken after the lives' lock where both are needed.
    pub(super) fn making_now(&self) -> MutexGuard<'_, BTreeSet<(AssignmentId, Epoch)>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.board.making_now().remove(&self.whose);
        self.board.wake();
    }
}
