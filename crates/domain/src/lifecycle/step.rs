//! One event, one decision: which part of the machine it belongs to, and what follows from any of them.

use jiff::Timestamp;

use super::{Action, Ending, Event, Executor, Life, Limits, Outcome, Phase};
use crate::id::Epoch;
use crate::reason::{Reason, Refusal};

impl Life {
    /// The state after `event`, and what whoever brought it must do now.
    #[must_use]
    pub fn step(mut self, event: Event, now: Timestamp, limits: &Limits) -> (Self, Vec<Action>) {
        let actions = self.apply(event, now, limits);
        (self, actions)
    }

    /// [`Life::step`] in place.
    pub fn apply(&mut self, event: Event, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let actions = self.decide(event, now, limits);
        self.move_on(now, limits);
        actions
    }

    fn decide(&mut self, event: Event, now: Timestamp, limits: &Limits) -> Vec<Action> {
        match event {
            Event::Persisted => self.on_persisted(now),
            Event::Refused(refusal) => self.on_refused(refusal, now),
            Event::WaitsFor { what } if self.waiting_for == what => vec![],
            Event::WaitsFor { what } => self.waits_for(what),
            Event::LaunchBegun { epoch } => self.on_launch_begun(epoch, now),
            Event::LaunchFailed { epoch, .. }
            | Event::QuotaUsedUp { epoch, .. }
            | Event::ExecutorPending { epoch }
            | Event::ExecutorReady { epoch }
                if epoch != self.epoch =>
            {
                // Of an older launch, whose life may have been another one.
                vec![]
            }
            Event::LaunchFailed { permanent, cause, remedy, retry_at, .. } => {
                self.on_launch_failed(permanent, cause, remedy, retry_at, now, limits)
            }
            Event::QuotaUsedUp { cause, retry_at, .. } => self.on_quota_used_up(cause, retry_at, now),
            Event::ExecutorPending { .. } => self.on_object(Phase::Bound, now),
            Event::ExecutorReady { .. } => self.on_object(Phase::Offered, now),
            Event::Hello { epoch } => self.on_hello(epoch, now),
            Event::KeepAlive { epoch } => self.on_keep_alive(epoch, now, limits),
            Event::TaskAsked { epoch } => self.on_task_asked(epoch, now),
            Event::ClaimWritten { epoch, log_shift } => self.on_claim_written(epoch, log_shift, now),
            Event::RunnerLog { epoch, index, count, end } => self.on_runner_log(epoch, index, count, end, now),
            Event::RowsSent { end } => {
                self.log.sent(end);
                vec![]
            }
            Event::LogStored { ack } => {
                self.log.stored(ack);
                vec![]
            }
            Event::LogSealed => {
                self.log.close();
                vec![]
            }
            Event::RunnerState { epoch, outcome, steps } => self.on_runner_state(epoch, outcome, steps, now),
            Event::StepsRecorded { epoch, steps } => self.on_steps_recorded(epoch, steps),
            Event::Interrupted { epoch } => self.on_interrupted(epoch, now),
            Event::Goodbye { epoch, how, parting } => self.on_goodbye(epoch, how, parting, now, limits),
            Event::Answered { outcome } => self.on_answered(outcome, now),
            Event::CancelAsked => self.on_cancel_asked(now),
            Event::TaskUnknown => {
                self.log.close();
                self.on_answered(Some(Outcome::Cancelled), now)
            }
            Event::ExecutorSeen { epoch } => self.on_executor_seen(epoch),
            Event::ExecutorEnded { epoch, reason, how } => self.on_executor_ended(epoch, reason, how, now, limits),
            Event::ExecutorAbsent => self.on_executor_absent(now, limits),
            Event::Marked => {
                self.marked = true;
                vec![]
            }
            Event::MarkFailed => {
                self.unmarkable = true;
                vec![]
            }
            Event::PayloadFound => {
                self.leased = true;
                vec![]
            }
            Event::MessageMissing => self.on_message_missing(now),
            Event::Settled { epoch, how } => self.on_settled(epoch, how),
            Event::InLine { place, slots } => self.on_in_line(place, slots, now),
            Event::Stopping => self.on_stopping(now),
            Event::Tick => self.on_tick(now, limits),
            Event::Rest => self.beat(now, limits.heartbeat_silent),
        }
    }

    /// Steps that need no event of their own: an accepted end drains once it is marked, and is gone once nothing is left.
    fn move_on(&mut self, now: Timestamp, limits: &Limits) {
        if let Phase::Final(outcome) = self.phase
            && (self.marked || self.executor == Executor::Absent)
        {
            self.enter(Phase::Draining(outcome), now);
        }
        let given_up = now.duration_since(self.since) >= limits.queue_wait;
        if matches!(self.phase, Phase::Draining(_))
            && self.executor == Executor::Absent
            && self.settled
            && (self.log.is_closed() || given_up)
        {
            self.enter(Phase::Gone, now);
        }
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Timestamp) {
        self.phase = phase;
        self.since = now;
    }

    pub(super) fn is_current(&self, epoch: Epoch) -> bool {
        epoch == self.epoch && !self.discard
    }

    /// It is being ended, or has ended: nothing more is told to Gitea but that end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ending(_) | Phase::Final(_) | Phase::Draining(_) | Phase::Gone)
    }

    pub(super) fn end(&mut self, mut ending: Ending, now: Timestamp) -> Vec<Action> {
        if self.is_over() {
            return vec![];
        }
        if self.cancelled.is_some() {
            // Whatever ends it now, a user had ended it before.
            ending.outcome = Outcome::Cancelled;
        }
        self.enter(Phase::Ending(ending), now);
        vec![Action::Wake]
    }

    fn on_answered(&mut self, outcome: Option<Outcome>, now: Timestamp) -> Vec<Action> {
        self.last_sign = now;
        let Some(outcome) = outcome else { return vec![] };
        if matches!(self.phase, Phase::Final(_) | Phase::Draining(_) | Phase::Gone) {
            return vec![];
        }
        self.confirmed = true;
        self.accepted = Some(outcome);
        if outcome == Outcome::Cancelled && self.said != Some(outcome) {
            self.cancelled.get_or_insert(now);
        }
        self.enter(Phase::Final(outcome), now);
        vec![Action::Wake]
    }

    /// Its runner has the word then: it runs what runs after a cancel and says how it ended. Where no runner has the task
    /// the end is ours.
    fn on_cancel_asked(&mut self, now: Timestamp) -> Vec<Action> {
        self.last_sign = now;
        if self.is_over() {
            return vec![];
        }
        self.cancelled.get_or_insert(now);
        match self.phase {
            Phase::Claimed | Phase::Running => vec![],
            _ => self.end(Ending::new(Reason::Cancelled, "somebody cancelled the job before it began".to_owned()), now),
        }
    }
}

impl Ending {
    /// A FAILURE with the remedy that belongs to its reason.
    #[must_use]
    pub fn new(reason: Reason, cause: String) -> Self {
        Self { reason, outcome: Outcome::Failure, cause, remedy: reason.remedy().to_owned() }
    }

    /// A FAILURE that can be told beforehand (NEW-14).
    pub(super) fn refused(refusal: Refusal) -> Self {
        let Refusal { reason, cause, remedy } = refusal;
        Self { remedy, ..Self::new(reason, cause) }
    }

    pub(super) fn interrupted(why: &str) -> Self {
        Self::new(Reason::Interrupted, why.to_owned())
    }
}
