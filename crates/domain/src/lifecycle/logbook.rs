//! The log of one task as Gitea holds it, and the shift between the runner's row numbers and Gitea's (NEW-28).

use std::fmt;

use jiff::Timestamp;

/// One row of a job's log. Its text belongs to the job: it is never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Row {
    /// When it was written.
    pub time: Timestamp,
    /// One line without its end.
    pub content: String,
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({} bytes)", self.content.len())
    }
}

/// Counts of one task's log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LogBook {
    /// K: rows of ours before the runner's first, frozen at the claim.
    shift: u64,
    /// Rows Gitea holds, as far as its answers told.
    stored: u64,
    /// Highest ack the runner was given, in its own numbers; it must never fall.
    promised: u64,
    /// The runner's last row and Gitea's index for it, kept back until the result is judged.
    held: Option<(u64, Row)>,
    /// The runner said `no_more` to this process.
    runner_done: bool,
    /// `no_more` was accepted by Gitea.
    closed: bool,
}

impl LogBook {
    pub(super) fn recovered(shift: u64) -> Self {
        Self { shift, stored: shift, ..Self::default() }
    }

    pub(super) fn freeze(&mut self, rows_of_ours: u64) {
        self.shift = rows_of_ours;
        self.stored = self.stored.max(rows_of_ours);
    }

    pub(super) fn stored(&mut self, ack: u64) {
        self.stored = ack;
    }

    /// The runner goes on only from what it was told is stored: its own index says so to a process that just started.
    pub(super) fn at_least(&mut self, rows: u64) {
        self.stored = self.stored.max(rows);
    }

    pub(super) fn hold(&mut self, index: u64, row: Option<Row>) {
        self.runner_done = true;
        self.held = row.map(|row| (index, row));
    }

    pub(super) fn end_of_runner(&mut self) {
        self.runner_done = true;
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.held = None;
    }

    /// Gitea's index for the runner's row `index`.
    #[must_use]
    pub fn shifted(&self, index: u64) -> u64 {
        index.saturating_add(self.shift)
    }

    /// Rows of ours before the runner's first one.
    #[must_use]
    pub fn shift(&self) -> u64 {
        self.shift
    }

    /// Rows Gitea holds.
    #[must_use]
    pub fn rows_stored(&self) -> u64 {
        self.stored
    }

    /// Gitea accepted the end of this log.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The runner said `no_more` to this process.
    #[must_use]
    pub fn runner_is_done(&self) -> bool {
        self.runner_done
    }

    /// The row that is kept back, if it still has to be sent.
    #[must_use]
    pub fn held_row(&self) -> Option<&Row> {
        self.held.as_ref().filter(|(index, _)| *index >= self.stored).map(|(_, row)| row)
    }

    /// What the runner is answered for its rows: never less than before, since it ends a job whose rows get lost.
    pub fn runner_ack(&mut self) -> u64 {
        let kept = u64::from(self.held.as_ref().is_some_and(|(index, _)| *index == self.stored));
        self.promised = self.promised.max((self.stored + kept).saturating_sub(self.shift));
        self.promised
    }
}
