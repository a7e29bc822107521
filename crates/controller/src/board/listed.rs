//! What lists of the backend showed: objects that belong to no life, and the last complete list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use domain::id::{AssignmentId, Epoch};
use jiff::Timestamp;

use super::Board;

/// Objects of ours that belong to no life. Each holds its slot (NEW-56).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strays {
    /// Of an older epoch, or of an older life of the same number; they are being removed.
    pub fenced: BTreeSet<(AssignmentId, Epoch)>,
    /// Name and problem of what cannot be read; left alone.
    pub unreadable: BTreeMap<String, String>,
}

/// The last complete list of the backend.
#[derive(Debug, Clone)]
pub struct Listed {
    /// When it was begun.
    pub at: Timestamp,
    /// What it showed, strays included.
    pub executors: BTreeSet<(AssignmentId, Epoch)>,
}

impl Board {
    /// Takes note of the objects that belong to no life, seen by a list that was begun when `before` was known: it proves
    /// nothing about what was fenced since. Returns what was known until now.
    pub fn set_strays(&self, mut strays: Strays, before: &Strays) -> Strays {
        let mut known = self.strays_now();
        strays.fenced.extend(known.fenced.difference(&before.fenced));
        std::mem::replace(&mut *known, strays)
    }

    /// The objects that belong to no life.
    #[must_use]
    pub fn strays(&self) -> Strays {
        self.strays_now().clone()
    }

    /// Takes note of a complete list, for whoever compares it with the lives.
    pub fn set_listed(&self, listed: Listed) {
        *self.listed_now() = Some(listed);
    }

    /// The last complete list; none before the first.
    #[must_use]
    pub fn listed(&self) -> Option<Listed> {
        self.listed_now().clone()
    }

    fn listed_now(&self) -> MutexGuard<'_, Option<Listed>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Taken after the lives' lock where both are needed.
    pub(super) fn strays_now(&self) -> MutexGuard<'_, Strays> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
