//! The log of one task as Gitea holds it, and the shift between the runner's row numbers and Gitea's (NEW-28).

use std::fmt;
use std::ops::Range;

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
    /// Rows Gitea can hold at most: the answer to a call may be lost, the rows of the call not.
    reach: u64,
    /// Highest ack the runner was given, in its own numbers; it must never fall.
    promised: u64,
    /// The runner's last row and Gitea's index for it, kept back until the result is judged.
    held: Option<(u64, Row)>,
    /// The runner said `no_more` to this process.
    runner_done: bool,
    /// `no_more` was accepted by Gitea.
    closed: bool,
}

/// The reach of a process that knows nothing of what a former one sent: more rows than any log has.
const ANY_LOG: u64 = 1 << 40;

/// Rows that close a log, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// Gitea's index of the first of `rows`.
    pub index: u64,
    /// At least one: Gitea 1.26 ignores `no_more` without a new row.
    pub rows: Vec<Row>,
}

impl LogBook {
    /// As a new process knows it.
    pub(super) fn recovered(shift: u64) -> Self {
        Self { shift, stored: shift, reach: ANY_LOG, ..Self::default() }
    }

    pub(super) fn freeze(&mut self, rows_of_ours: u64) {
        self.shift = rows_of_ours;
        self.stored(rows_of_ours);
    }

    /// Rows before this index are on their way.
    pub(super) fn sent(&mut self, end: u64) {
        self.reach = self.reach.max(end);
    }

    /// Gitea's answer counts everything that was sent before: there is one call at a time.
    pub(super) fn stored(&mut self, ack: u64) {
        (self.stored, self.reach) = (ack, ack);
    }

    /// The runner goes on only from what it was told is stored: its own index says so to a process that just started.
    pub(super) fn at_least(&mut self, rows: u64) {
        self.stored = self.stored.max(rows);
        self.reach = self.reach.max(rows);
    }

    pub(super) fn hold(&mut self, index: u64, row: Row) {
        self.runner_done = true;
        self.held = Some((index, row));
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

    /// Where the next row of ours goes before the claim; none: a former process may have sent some, and Gitea has to be
    /// asked.
    #[must_use]
    pub fn next_row(&self) -> Option<u64> {
        (self.reach < ANY_LOG).then_some(self.stored)
    }

    /// Where so many rows of ours stand that close the log, or will stand.
    pub(super) fn place_at_the_end(&self, ours: &[Row], now: Timestamp) -> Range<u64> {
        let end = if self.closed {
            self.stored
        } else {
            let closing = self.closing(ours, now);
            closing.index + closing.rows.len() as u64
        };
        end.saturating_sub(ours.len() as u64)..end
    }

    /// Gitea has not got the last of the rows before `end`: nobody sent it.
    pub(super) fn cannot_hold(&self, end: u64) -> bool {
        end > self.reach
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

    /// What closes the log: the row that was kept back, where it is the next one, then `ours`; an empty row when there is
    /// neither. Gitea may hold that row already; or it lacks some before it, which nobody says any more: then the row would hide
    /// that they are missing.
    ///
    /// It begins where the log ends at the latest. There Gitea's answer is never ambiguous (Gitea contract §9): if the log
    /// reaches so far, the rows are taken and the answer counts them; if it ends before, Gitea takes nothing, does not
    /// hear `no_more` either, and answers where it ends. Further down, a row that is there already and one that was
    /// taken just now have the same answer.
    #[must_use]
    pub fn closing(&self, ours: &[Row], now: Timestamp) -> Closing {
        let kept = self.held.as_ref().filter(|(index, _)| *index == self.reach).map(|(_, row)| row);
        let mut rows: Vec<Row> = kept.into_iter().chain(ours).cloned().collect();
        if rows.is_empty() {
            rows.push(Row { time: now, content: String::new() });
        }
        Closing { index: self.reach, rows }
    }

    /// What the runner is answered for its rows: never less than before, since it ends a job whose rows get lost.
    pub fn runner_ack(&mut self) -> u64 {
        let kept = u64::from(self.held.as_ref().is_some_and(|(index, _)| *index == self.stored));
        self.promised = self.promised.max((self.stored + kept).saturating_sub(self.shift));
        self.promised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a call.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fate {
        Answered,
        AnswerLost,
        NeverArrived,
    }

    const FATES: [Fate; 3] = [Fate::Answered, Fate::AnswerLost, Fate::NeverArrived];

    /// UpdateLog by the table of the Gitea contract, section 9.
    #[derive(Default)]
    struct Log {
        rows: Vec<String>,
        archived: bool,
    }

    impl Log {
        /// None: already archived.
        fn update(&mut self, index: u64, rows: &[Row], no_more: bool) -> Option<u64> {
            let ack = self.rows.len() as u64;
            if index <= ack && index + rows.len() as u64 > ack {
                if self.archived {
                    return None;
                }
                let known = usize::try_from(ack - index).unwrap_or_default();
                self.rows.extend(rows.iter().skip(known).map(|row| row.content.clone()));
                self.archived |= no_more;
            }
            Some(self.rows.len() as u64)
        }
    }

    fn rows(texts: &[&str]) -> Vec<Row> {
        let row = |text: &&str| Row { time: Timestamp::UNIX_EPOCH, content: (*text).to_owned() };
        texts.iter().map(row).collect()
    }

    /// One call, as its life hears of it; true: the log is closed.
    fn say(book: &mut LogBook, log: &mut Log, index: u64, rows: &[Row], no_more: bool, fate: Fate) -> bool {
        let end = index + rows.len() as u64;
        book.sent(end);
        if fate == Fate::NeverArrived {
            return false;
        }
        let answer = log.update(index, rows, no_more);
        match answer.filter(|_| fate == Fate::Answered) {
            Some(ack) => {
                book.stored(ack);
                no_more && ack == end
            }
            None => fate == Fate::Answered && answer.is_none(),
        }
    }

    /// NEW-163: Gitea does not hear `no_more` without a row, so one is made where there is none.
    #[test]
    fn no_log_is_closed_without_a_row() {
        let mut book = LogBook::default();
        book.freeze(1);
        let Closing { index, rows } = book.closing(&[], Timestamp::UNIX_EPOCH);
        assert_eq!((index, rows.len()), (1, 1));
    }

    /// NEW-163, NEW-28, NEW-166: whatever became of the calls before, a log is closed by rows with `no_more` alone, at most
    /// two calls after the last one that failed, and every row is in it once; the one that was kept back only behind those
    /// that came before it.
    #[test]
    fn a_log_is_closed_without_a_question() {
        for (before, first_try) in FATES.into_iter().flat_map(|fate| FATES.map(|other| (fate, other))) {
            for (count, kept, restart) in
                [1, 2].into_iter().flat_map(|n| [(n, true, false), (n, false, false), (n, false, true)])
            {
                let case = format!("{count} rows {before:?}, close {first_try:?}, kept {kept}, restart {restart}");
                let mut log = Log::default();
                log.update(0, &rows(&["claim"]), false);
                let mut book = LogBook::default();
                book.freeze(1);
                let sent = rows(&["one", "two"][..count]);
                say(&mut book, &mut log, 1, &sent, false, before);
                if kept {
                    book.hold(1 + count as u64, rows(&["kept"]).remove(0));
                }
                if restart {
                    book = LogBook::recovered(1);
                }
                let ours = rows(&["the end"]);
                let mut close = |fate| {
                    (0..2).any(|_| {
                        let Closing { index, rows } = book.closing(&ours, Timestamp::UNIX_EPOCH);
                        say(&mut book, &mut log, index, &rows, true, fate)
                    })
                };
                let closed = close(first_try) || close(Fate::Answered);
                assert!(closed && log.archived, "{case}: {:?}", log.rows);
                let there = if before == Fate::NeverArrived { 0 } else { count };
                let mut expected = vec!["claim"];
                expected.extend(&["one", "two"][..there]);
                expected.extend((kept && there == count).then_some("kept"));
                expected.push("the end");
                assert_eq!(log.rows, expected, "{case}");
            }
        }
    }
}
