//! One event, one decision.

use jiff::{SignedDuration, Timestamp};

use super::{Action, Ending, Event, Executor, Life, Limits, Outcome, Phase, Row, Seal, StepRecords};
use crate::id::Epoch;
use crate::reason::Reason;
use crate::workflow::ContinueOnError;

impl Life {
    /// The state after `event`, and what whoever brought it must do now.
    #[must_use]
    pub fn step(mut self, event: Event, now: Timestamp, limits: &Limits) -> (Self, Vec<Action>) {
        let actions = self.decide(event, now, limits);
        self.move_on(now, limits);
        (self, actions)
    }

    fn decide(&mut self, event: Event, now: Timestamp, limits: &Limits) -> Vec<Action> {
        match event {
            Event::Persisted => self.on_persisted(now),
            Event::PublishFailed { cause } => self.waits_for(cause),
            Event::LaunchBegun { epoch } => self.on_launch_begun(epoch, now),
            Event::LaunchFailed { permanent, cause, remedy, retry_at } => {
                self.on_launch_failed(permanent, cause, remedy, retry_at, now)
            }
            Event::ExecutorPending => self.on_object(Phase::Bound, now),
            Event::ExecutorReady => self.on_object(Phase::Offered, now),
            Event::Hello { epoch } => self.on_hello(epoch, now),
            Event::KeepAlive { epoch } => self.on_keep_alive(epoch, now),
            Event::TaskAsked { epoch } => self.on_task_asked(epoch, now),
            Event::ClaimWritten { epoch, log_shift } => self.on_claim_written(epoch, log_shift, now),
            Event::RunnerLog { epoch, index, count, last, no_more } => {
                self.on_runner_log(epoch, index, count, last, no_more, now)
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
            Event::Interrupted { epoch } => self.on_interrupted(epoch, now),
            Event::Goodbye { epoch, how, interrupted, delivered } => {
                self.on_goodbye(epoch, how, interrupted, delivered, now, limits)
            }
            Event::Answered { outcome } => self.on_answered(outcome, now),
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
            Event::PayloadFound => {
                self.leased = true;
                vec![]
            }
            Event::MessageMissing => self.on_message_missing(now),
            Event::Settled => {
                (self.settled, self.leased) = (self.confirmed || !self.leased, false);
                vec![]
            }
            Event::OperatorEnds { why } => {
                let ending = Ending::new(Reason::Operator, format!("an operator ended this task: {why}"));
                self.end(ending, now)
            }
            Event::Tick => self.on_tick(now, limits),
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

    fn enter(&mut self, phase: Phase, now: Timestamp) {
        self.phase = phase;
        self.since = now;
    }

    fn is_current(&self, epoch: Epoch) -> bool {
        epoch == self.epoch && !self.discard
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ending(_) | Phase::Final(_) | Phase::Draining(_) | Phase::Gone)
    }

    fn end(&mut self, ending: Ending, now: Timestamp) -> Vec<Action> {
        if self.is_over() {
            return vec![];
        }
        self.enter(Phase::Ending(ending), now);
        vec![Action::Wake]
    }

    fn waits_for(&mut self, cause: String) -> Vec<Action> {
        self.waiting_for = cause;
        vec![]
    }

    fn on_persisted(&mut self, now: Timestamp) -> Vec<Action> {
        if self.phase == Phase::Fetched {
            self.enter(Phase::Waiting, now);
        }
        vec![Action::Wake]
    }

    fn on_launch_begun(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if self.phase == Phase::Waiting {
            self.epoch = epoch;
            self.executor = Executor::Present;
            self.leased = true;
            (self.said_hello, self.said_goodbye, self.discard) = (false, false, false);
            self.last_call = now;
            self.enter(Phase::Creating, now);
        }
        vec![]
    }

    fn on_launch_failed(
        &mut self,
        permanent: Option<Reason>,
        cause: String,
        remedy: String,
        retry_at: Timestamp,
        now: Timestamp,
    ) -> Vec<Action> {
        if !matches!(self.phase, Phase::Creating | Phase::Bound) {
            return vec![Action::Wake];
        }
        // The outcome may be unclear: whatever exists is removed before the next epoch is made.
        self.discard = true;
        if let Some(reason) = permanent {
            return self.end(Ending { remedy, ..Ending::new(reason, cause) }, now);
        }
        self.waiting_for = cause;
        self.not_before = retry_at;
        self.enter(Phase::Waiting, now);
        vec![Action::Wake]
    }

    fn on_object(&mut self, reached: Phase, now: Timestamp) -> Vec<Action> {
        let onward = matches!((&self.phase, &reached), (Phase::Creating, _) | (Phase::Bound, Phase::Offered));
        if onward {
            self.enter(reached, now);
        }
        vec![]
    }

    fn on_hello(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) || self.is_over() {
            return vec![Action::Stop];
        }
        self.last_call = now;
        self.said_hello = true;
        if matches!(self.phase, Phase::Creating | Phase::Bound | Phase::Offered) {
            // The claim's clock starts with the SVID.
            self.enter(Phase::Offered, now);
        }
        vec![Action::GoOn]
    }

    fn on_keep_alive(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        self.last_call = now;
        let ended_by_us = matches!(self.phase, Phase::Ending(_) | Phase::Draining(_) | Phase::Gone);
        if !self.is_current(epoch) || ended_by_us { vec![Action::Stop] } else { vec![Action::GoOn] }
    }

    fn on_task_asked(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::SendHome];
        }
        self.last_call = now;
        match self.phase {
            Phase::Creating | Phase::Bound | Phase::Offered => vec![Action::WriteClaim],
            Phase::Claimed if !self.confirmed => vec![Action::HandOut],
            Phase::Fetched | Phase::Waiting => vec![Action::AskAgain],
            _ => vec![Action::SendHome],
        }
    }

    fn on_claim_written(&mut self, epoch: Epoch, log_shift: u64, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::SendHome];
        }
        match self.phase {
            Phase::Creating | Phase::Bound | Phase::Offered => {
                self.log.freeze(log_shift);
                self.enter(Phase::Claimed, now);
                vec![Action::HandOut]
            }
            Phase::Claimed if !self.confirmed => vec![Action::HandOut],
            _ => vec![Action::SendHome],
        }
    }

    fn on_message_missing(&mut self, now: Timestamp) -> Vec<Action> {
        self.settled = true;
        match self.phase {
            // It left the queue because the claim was confirmed.
            Phase::Claimed => {
                self.confirmed = true;
                self.enter(Phase::Running, now);
                vec![]
            }
            Phase::Creating | Phase::Bound | Phase::Offered => {
                self.end(Ending::new(Reason::Internal, "the queue no longer holds this task".to_owned()), now)
            }
            _ => vec![],
        }
    }

    fn confirm(&mut self, now: Timestamp) {
        self.last_call = now;
        self.confirmed = true;
        if self.phase == Phase::Claimed {
            self.enter(Phase::Running, now);
        }
    }

    fn on_runner_log(
        &mut self,
        epoch: Epoch,
        index: u64,
        count: u64,
        last: Option<Row>,
        no_more: bool,
        now: Timestamp,
    ) -> Vec<Action> {
        let acknowledge = Action::AckRows { ack: index.saturating_add(count) };
        if !self.is_current(epoch) {
            return vec![acknowledge];
        }
        let first = self.log.shifted(index);
        match self.phase {
            Phase::Claimed | Phase::Running => {
                self.confirm(now);
                let hold_last = no_more && count > 0;
                if hold_last {
                    self.log.hold(first + count - 1, last);
                } else if no_more {
                    self.log.end_of_runner();
                    return vec![acknowledge, Action::Wake];
                }
                vec![Action::ForwardRows { index: first, hold_last, no_more: false }, Action::Wake]
            }
            // Gitea's own end: its runner's last rows still belong to the log (NEW-163, NEW-166).
            Phase::Final(_) | Phase::Draining(_) if !self.log.is_closed() && count > 0 => {
                self.last_call = now;
                vec![Action::ForwardRows { index: first, hold_last: false, no_more }]
            }
            Phase::Creating | Phase::Bound | Phase::Offered => vec![Action::AskAgain],
            _ => vec![acknowledge],
        }
    }

    fn on_runner_state(
        &mut self,
        epoch: Epoch,
        outcome: Option<Outcome>,
        steps: StepRecords,
        now: Timestamp,
    ) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::AnswerResult(Outcome::Cancelled)];
        }
        match self.phase {
            Phase::Claimed | Phase::Running => {
                self.confirm(now);
                self.reporting = true;
                let steps = steps.shifted(self.log.shift());
                match outcome {
                    None => self.note_progress(steps),
                    Some(outcome) => self.judge(outcome, steps, now),
                }
            }
            // The runner repeats its accepted end (NEW-100); everything else hears that it is over (NEW-159).
            Phase::Final(accepted) | Phase::Draining(accepted) if outcome == Some(accepted) => {
                vec![Action::AnswerResult(accepted)]
            }
            Phase::Creating | Phase::Bound | Phase::Offered => vec![Action::AskAgain],
            _ => vec![Action::AnswerResult(Outcome::Cancelled)],
        }
    }

    /// The record comes before the forward: what the object says may lead Gitea, never trail it, so that a heartbeat
    /// after a crash sets no finished step back to running.
    fn note_progress(&mut self, steps: StepRecords) -> Vec<Action> {
        let changed = self.steps.differs_in_state(&steps);
        self.steps = steps;
        let record = changed.then(|| Action::RecordSteps(self.steps.to_text(&self.definitions)));
        record.into_iter().chain([Action::ForwardState { seal: None }, Action::Wake]).collect()
    }

    fn judge(&mut self, outcome: Outcome, steps: StepRecords, now: Timestamp) -> Vec<Action> {
        if self.recovered && !self.log.runner_is_done() && !self.log.is_closed() && !self.asked_for_log {
            // The row that was kept back went down with the former process; the executor still has it.
            self.asked_for_log = true;
            return vec![Action::AskAgain];
        }
        self.steps = steps;
        if outcome == Outcome::Success {
            let disbelieved = self.interrupted.map(|_| "a signal cut the job off").or_else(|| self.contradiction());
            if let Some(why) = disbelieved {
                let mut actions = self.end(Ending::interrupted(why), now);
                actions.insert(0, Action::AnswerResult(Outcome::Cancelled));
                return actions;
            }
        }
        vec![Action::ForwardState { seal: self.seal(now) }]
    }

    /// NEW-168: a runner that a signal reached past its executor says SUCCESS over steps that say otherwise.
    fn contradiction(&self) -> Option<&'static str> {
        let strict = |at: usize| self.definitions.get(at).is_some_and(|d| d.continue_on_error == ContinueOnError::No);
        self.steps.as_slice().iter().enumerate().find_map(|(at, step)| match step.outcome {
            Some(Outcome::Cancelled) => Some("the runner reported success although a step was cancelled"),
            Some(Outcome::Failure) if strict(at) => Some("the runner reported success although a step failed"),
            _ => None,
        })
    }

    /// The closing rows that go before a believed end; none when Gitea already closed the log.
    fn seal(&self, now: Timestamp) -> Option<Seal> {
        if self.log.is_closed() {
            return None;
        }
        let mut rows: Vec<Row> = self.log.held_row().cloned().into_iter().collect();
        if self.interrupted.is_some() {
            rows.push(Row { time: now, content: "##[error]interrupted: a signal cut the job off".to_owned() });
        }
        if rows.is_empty() {
            rows.push(Row { time: now, content: String::new() });
        }
        Some(Seal { index: self.log.rows_stored(), rows })
    }

    fn on_interrupted(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::Stop];
        }
        self.last_call = now;
        if matches!(self.phase, Phase::Claimed | Phase::Running) {
            self.interrupted.get_or_insert(now);
            return vec![Action::WriteInterrupted, Action::GoOn];
        }
        vec![Action::GoOn]
    }

    fn on_goodbye(
        &mut self,
        epoch: Epoch,
        how: String,
        interrupted: bool,
        delivered: bool,
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
            Phase::Claimed | Phase::Running if interrupted || self.interrupted.is_some() => {
                self.end(Ending::interrupted("a signal cut the job off"), now)
            }
            Phase::Claimed | Phase::Running if !delivered => self.end(Ending::new(Reason::ResultLost, how), now),
            Phase::Claimed | Phase::Running => self.end(Ending::new(Reason::ExecutorExited, how), now),
            _ => vec![Action::Wake],
        };
        actions.push(Action::GoOn);
        actions
    }

    fn on_answered(&mut self, outcome: Option<Outcome>, now: Timestamp) -> Vec<Action> {
        self.last_sign = now;
        let Some(outcome) = outcome else { return vec![] };
        if matches!(self.phase, Phase::Final(_) | Phase::Draining(_) | Phase::Gone) {
            return vec![];
        }
        self.confirmed = true;
        self.enter(Phase::Final(outcome), now);
        vec![Action::Wake]
    }

    fn on_executor_seen(&mut self, epoch: Epoch) -> Vec<Action> {
        if epoch == self.epoch && self.executor == Executor::Absent {
            self.executor = Executor::Present;
        }
        vec![]
    }

    fn on_executor_ended(
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
        self.executor = Executor::Ended;
        match self.phase {
            Phase::Creating | Phase::Bound | Phase::Offered => self.died(reason, how, now, limits),
            Phase::Claimed | Phase::Running if self.interrupted.is_some() => {
                self.end(Ending::interrupted("a signal cut the job off"), now)
            }
            Phase::Claimed | Phase::Running => self.end(Ending::new(reason, how), now),
            _ => vec![Action::Wake],
        }
    }

    fn on_executor_absent(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
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

    /// An executor ended before it claimed: nothing ran, so another may be made (NEW-61, NEW-63).
    fn died(&mut self, reason: Reason, how: String, now: Timestamp, limits: &Limits) -> Vec<Action> {
        self.deaths += 1;
        self.discard = self.executor != Executor::Absent;
        if self.deaths > limits.relaunches {
            let cause = format!("{how}; {} executors ended before they took the task", self.deaths);
            return self.end(Ending::new(reason, cause), now);
        }
        self.waiting_for = format!("a new executor: {how}");
        self.not_before = now.saturating_add(Limits::relaunch_pause(self.deaths)).unwrap_or(now);
        self.enter(Phase::Waiting, now);
        vec![Action::Wake]
    }

    fn on_tick(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let ended = self.overdue(now, limits);
        if !ended.is_empty() {
            return ended;
        }
        if self.pulse_is_due(now, limits) {
            self.last_sign = now;
            return vec![Action::Heartbeat];
        }
        vec![]
    }

    fn overdue(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let here = now.duration_since(self.since);
        let silent = now.duration_since(self.last_call);
        let seconds = |d: SignedDuration| d.as_secs();
        match self.phase {
            Phase::Fetched | Phase::Waiting => self.waited_too_long(now, limits),
            Phase::Creating | Phase::Bound if here >= limits.pending => {
                let how = format!("no executor ran within {} s", seconds(limits.pending));
                self.died(Reason::BackendUnavailable, how, now, limits)
            }
            Phase::Offered if !self.said_hello && here >= limits.identity => {
                let how = format!("its executor had no identity within {} s", seconds(limits.identity));
                self.died(Reason::IdentityTimeout, how, now, limits)
            }
            Phase::Offered if self.said_hello && here >= limits.claim => {
                let how = format!("its executor did not ask for the task within {} s", seconds(limits.claim));
                self.died(Reason::ClaimTimeout, how, now, limits)
            }
            Phase::Claimed | Phase::Running if now >= self.deadline => {
                let ran = seconds(now.duration_since(self.fetched_at));
                self.end(
                    Ending::new(Reason::Deadline, format!("the job reached its deadline {ran} s after its fetch")),
                    now,
                )
            }
            Phase::Claimed | Phase::Running
                if self.interrupted.is_some_and(|at| now.duration_since(at) >= limits.interrupted) =>
            {
                self.end(Ending::interrupted("a signal cut the job off and its runner did not end"), now)
            }
            Phase::Claimed if silent >= limits.first_update => self.end(
                Ending::new(Reason::ExecutorLost, format!("silent for {} s after it took the task", seconds(silent))),
                now,
            ),
            Phase::Running if silent >= limits.silence => self.end(
                Ending::new(Reason::ExecutorLost, format!("its executor was silent for {} s", seconds(silent))),
                now,
            ),
            _ => vec![],
        }
    }

    fn waited_too_long(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let waited = now.duration_since(self.fetched_at);
        let left = self.deadline.duration_since(now);
        if waited < limits.queue_wait && left >= limits.least_run_time {
            return vec![];
        }
        let reason = if self.phase == Phase::Fetched { Reason::QueueUnavailable } else { Reason::QueueTimeout };
        let cause = format!(
            "waited {} s for {}; {} s were left until its deadline",
            waited.as_secs(),
            self.waiting_for,
            left.as_secs()
        );
        self.end(Ending::new(reason, cause), now)
    }

    fn pulse_is_due(&self, now: Timestamp, limits: &Limits) -> bool {
        if self.is_over() {
            return false;
        }
        // What a former process saw of the steps may be old: the runner speaks first.
        let careful = self.reporting || (self.recovered && self.phase == Phase::Claimed);
        let pause = if careful { limits.heartbeat_silent } else { limits.heartbeat };
        now.duration_since(self.last_sign) >= pause
    }
}

impl Ending {
    /// A FAILURE with the remedy that belongs to its reason.
    #[must_use]
    pub fn new(reason: Reason, cause: String) -> Self {
        Self { reason, outcome: Outcome::Failure, cause, remedy: reason.remedy().to_owned() }
    }

    fn interrupted(why: &str) -> Self {
        Self::new(Reason::Interrupted, why.to_owned())
    }
}
