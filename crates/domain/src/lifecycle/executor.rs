//! What an executor says about itself, and what a list of executors shows.

use jiff::Timestamp;

use super::{Action, Ending, Executor, Life, Limits, Parting, Phase};
use crate::id::Epoch;
use crate::reason::Reason;

impl Life {
    pub(super) fn on_hello(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) || self.is_over() {
            return vec![Action::Stop];
        }
        self.last_call = now;
        self.said_hello = true;
        if matches!(self.phase, Phase::Creating | Phase::Bound | Phase::Offered) {
            self.milestones.runs.get_or_insert(now);
            self.milestones.identity.get_or_insert(now);
            self.has_come("its executor has its identity and asks for it next", now);
            // The claim's clock starts with the SVID.
            self.enter(Phase::Offered, now);
        }
        vec![Action::GoOn]
    }

    pub(super) fn on_keep_alive(&mut self, epoch: Epoch, now: Timestamp, limits: &Limits) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::Stop];
        }
        self.last_call = now;
        // After Gitea's end the runner may still clean up, for as long as the grace lasts.
        let over = match self.phase {
            Phase::Ending(_) | Phase::Gone => true,
            Phase::Draining(_) => now.duration_since(self.since) >= limits.terminal_grace,
            _ => false,
        };
        if over { vec![Action::Stop] } else { vec![Action::GoOn] }
    }

    pub(super) fn on_interrupted(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::Stop];
        }
        self.last_call = now;
        let open =
            matches!(self.phase, Phase::Creating | Phase::Bound | Phase::Offered | Phase::Claimed | Phase::Running);
        if !open {
            return vec![Action::GoOn];
        }
        // Before the claim too: a task that is being handed out at this moment must not start unnoticed.
        self.interrupted.get_or_insert(now);
        vec![Action::WriteInterrupted, Action::GoOn]
    }

    pub(super) fn on_goodbye(
        &mut self,
        epoch: Epoch,
        how: String,
        parting: Parting,
        now: Timestamp,
        limits: &Limits,
    ) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::GoOn];
        }
        self.last_call = now;
        self.said_goodbye = true;
        let mut actions = match self.phase {
            Phase::Creating | Phase::Bound | Phase::Offered => self.died(Reason::ExecutorExited, how, now, limits),
            Phase::Claimed | Phase::Running if parting == Parting::CutOff => {
                self.end(Ending::interrupted("a signal cut the job off"), now)
            }
            Phase::Claimed | Phase::Running if parting == Parting::Undelivered => {
                self.left_its_job(Reason::ResultLost, how, now)
            }
            Phase::Claimed | Phase::Running => self.left_its_job(Reason::ExecutorExited, how, now),
            _ => vec![Action::Wake],
        };
        actions.push(Action::GoOn);
        actions
    }

    pub(super) fn on_executor_seen(&mut self, epoch: Epoch) -> Vec<Action> {
        if epoch == self.epoch && self.executor == Executor::Absent {
            self.executor = Executor::Present;
        }
        vec![]
    }

    pub(super) fn on_executor_ended(
        &mut self,
        epoch: Epoch,
        reason: Reason,
        how: String,
        now: Timestamp,
        limits: &Limits,
    ) -> Vec<Action> {
        if epoch != self.epoch {
            return vec![];
        }
        let seen_before = self.executor == Executor::Ended;
        self.executor = Executor::Ended;
        match self.phase {
            Phase::Creating | Phase::Bound | Phase::Offered => self.died(reason, how, now, limits),
            Phase::Claimed | Phase::Running => self.left_its_job(reason, how, now),
            // Every list shows it again: only the first time is news.
            _ if seen_before => vec![],
            _ => vec![Action::Wake],
        }
    }

    /// It has gone, and its runner said no end that counts. Beyond the deadline nothing of it does: its capability has
    /// expired, its runner heard CANCELLED, and that it obeyed at once is no cause (NEW-30, NEW-159).
    fn left_its_job(&mut self, reason: Reason, how: String, now: Timestamp) -> Vec<Action> {
        let ending = if self.interrupted.is_some() {
            Ending::interrupted("a signal cut the job off")
        } else if now >= self.deadline {
            self.at_its_deadline(now)
        } else {
            Ending::new(reason, how)
        };
        self.end(ending, now)
    }

    pub(super) fn on_executor_absent(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let how = "its executor disappeared from the backend".to_owned();
        match self.phase {
            // A list that was begun before the create proves nothing.
            Phase::Creating => vec![],
            Phase::Bound | Phase::Offered => {
                self.executor = Executor::Absent;
                self.died(Reason::ExecutorDeleted, how, now, limits)
            }
            Phase::Claimed | Phase::Running => {
                self.executor = Executor::Absent;
                self.end(Ending::new(Reason::ExecutorDeleted, how), now)
            }
            _ => {
                let gone = self.executor != Executor::Absent;
                (self.executor, self.discard) = (Executor::Absent, false);
                if gone { vec![Action::Wake] } else { vec![] }
            }
        }
    }
}
