//! What the rooms have to bring about for a life, read off its state: the same answer however often it is asked, so a
//! room may be woken twice, late, or by a tick.

use jiff::Timestamp;

use super::{Ending, Executor, Life, Limits, Phase};

/// Work that waits for a room.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wants {
    /// `report`: bring this end to Gitea.
    pub certificate: Option<Ending>,
    /// `report`: Gitea ended the task and nobody closed its log.
    pub closing_row: bool,
    /// `reap`: write the terminal mark on the object.
    pub terminal_mark: bool,
    /// `reap`, where nobody of this process comes after: the end is on no object yet, whether a mark or a removal was to say
    /// so.
    pub last_mark: bool,
    /// `reap`: remove the executor.
    pub removal: bool,
    /// `launch`: make an executor once there is a slot.
    pub launch: bool,
    /// `launch`: bring the payload of an executor that was found again to the board.
    pub payload: bool,
    /// `launch`: what becomes of the message.
    pub message: Option<MessageWant>,
}

/// What becomes of the message of an assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageWant {
    /// Remove it: the claim is confirmed, or Gitea accepted an end (PRC-9).
    Remove,
    /// Give it back for another launch.
    GiveBack {
        /// Not before.
        at: Timestamp,
        /// Why the last one failed.
        error: String,
    },
}

impl Life {
    /// What the rooms must do for this life at `now`.
    #[must_use]
    pub fn wants(&self, now: Timestamp, limits: &Limits) -> Wants {
        let exists = self.executor != Executor::Absent;
        let outstayed = now.duration_since(self.since) >= limits.terminal_grace;
        // The grace is for what a runner has to finish; one that never got the task has nothing (NEW-22).
        let drained = self.said_goodbye || self.executor == Executor::Ended || !self.runner_may_write() || outstayed;
        // Its folder tells the next process that the task was claimed, and of a log that is open: it goes after the message,
        // without which it would be a task that nobody took (NEW-63), and after the end of the log (NEW-166).
        let needed = self.runner_may_write() && !(self.settled && self.log.is_closed()) && !outstayed;
        let draining = match self.phase {
            Phase::Draining(_) => true,
            Phase::Final(_) => self.unmarkable,
            _ => false,
        };
        let removal = exists && (self.discard || (draining && drained && !needed));
        let unmarked = matches!(self.phase, Phase::Final(_)) && exists && !self.marked;
        Wants {
            certificate: match &self.phase {
                Phase::Ending(ending) => Some(ending.clone()),
                _ => None,
            },
            closing_row: self.wants_closing_row(now, limits),
            terminal_mark: unmarked && !removal,
            last_mark: unmarked,
            removal,
            launch: self.phase == Phase::Waiting && !exists && !self.leased && now >= self.not_before,
            payload: exists && !self.leased && !self.settled && self.payload_needed(),
            message: self.wants_of_message(now, limits),
        }
    }

    fn wants_closing_row(&self, now: Timestamp, limits: &Limits) -> bool {
        let nobody_writes = self.executor != Executor::Present
            || self.said_goodbye
            || !self.runner_may_write()
            || now.duration_since(self.since) >= limits.cancel_grace;
        matches!(self.phase, Phase::Final(_) | Phase::Draining(_)) && !self.log.is_closed() && nobody_writes
    }

    /// Its runner has the task: rows of ours before a runner's are counted at the claim, and there is always one.
    fn runner_may_write(&self) -> bool {
        self.reporting || self.log.shift() > 0
    }

    fn wants_of_message(&self, now: Timestamp, limits: &Limits) -> Option<MessageWant> {
        // Where nobody took the task its message is what the next process would know an open log by (NEW-166).
        let open = matches!(self.phase, Phase::Final(_) | Phase::Draining(_)) && !self.log.is_closed();
        let needed = open && !self.runner_may_write() && now.duration_since(self.since) < limits.queue_wait;
        if self.confirmed && !self.settled && !needed {
            return Some(MessageWant::Remove);
        }
        let given_back = self.phase == Phase::Waiting && self.leased;
        given_back
            .then(|| MessageWant::GiveBack { at: self.not_before, error: self.last_error.clone().unwrap_or_default() })
    }
}
