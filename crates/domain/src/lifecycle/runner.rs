//! What the official runner asks and reports, and what of it Gitea may hear.

use jiff::Timestamp;

use super::{Action, Ending, Life, LogEnd, Outcome, Phase, Row, StepRecords, Tail};
use crate::id::Epoch;
use crate::workflow::ContinueOnError;

const NOT_ENDED: &str = "success was reported although a step had not ended";

impl Life {
    pub(super) fn on_task_asked(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::SendHome];
        }
        self.last_call = now;
        match self.phase {
            // A signal came before the task did: this executor ends, and another takes the task.
            _ if self.interrupted.is_some() => vec![Action::SendHome],
            Phase::Creating | Phase::Bound | Phase::Offered => {
                self.asked = true;
                vec![Action::WriteClaim]
            }
            Phase::Claimed if !self.confirmed => vec![Action::HandOut],
            Phase::Fetched | Phase::Waiting => vec![Action::AskAgain],
            _ => vec![Action::SendHome],
        }
    }

    pub(super) fn on_claim_written(&mut self, epoch: Epoch, log_shift: u64, now: Timestamp) -> Vec<Action> {
        if !self.is_current(epoch) {
            return vec![Action::SendHome];
        }
        match self.phase {
            Phase::Creating | Phase::Bound | Phase::Offered if self.interrupted.is_none() => {
                self.log.freeze(log_shift);
                self.enter(Phase::Claimed, now);
                vec![Action::HandOut]
            }
            Phase::Claimed if !self.confirmed => vec![Action::HandOut],
            _ => vec![Action::SendHome],
        }
    }

    pub(super) fn on_runner_log(
        &mut self,
        epoch: Epoch,
        index: u64,
        count: u64,
        end: LogEnd,
        now: Timestamp,
    ) -> Vec<Action> {
        let acknowledge = Action::AckRows { ack: index.saturating_add(count) };
        if !self.is_current(epoch) {
            return vec![acknowledge];
        }
        let first = self.log.shifted(index);
        match self.phase {
            Phase::Claimed | Phase::Running => {
                let news = self.confirm(now);
                self.log.at_least(first);
                let tail = match end {
                    LogEnd::Open => Tail::Open,
                    LogEnd::Last(Some(row)) => {
                        self.log.hold(first.saturating_add(count).saturating_sub(1), row);
                        Tail::KeptBack
                    }
                    LogEnd::Last(None) => {
                        self.log.end_of_runner();
                        return [acknowledge].into_iter().chain(news).collect();
                    }
                };
                let forward = Action::ForwardRows { index: first, tail };
                [forward].into_iter().chain(news).collect()
            }
            // Gitea's own end: its runner's last rows still belong to the log (NEW-163, NEW-166).
            Phase::Final(_) | Phase::Draining(_) if !self.log.is_closed() && count > 0 => {
                self.last_call = now;
                // Gitea does not hear `no_more` with rows that it has. Where it may have them, we close the log (NEW-166).
                let heard = self.log.cannot_hold(first.saturating_add(count));
                let tail = if end == LogEnd::Open || !heard { Tail::Open } else { Tail::Closing };
                vec![Action::ForwardRows { index: first, tail }]
            }
            Phase::Creating | Phase::Bound | Phase::Offered => vec![Action::AskAgain],
            _ => vec![acknowledge],
        }
    }

    pub(super) fn on_runner_state(
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
                let news = self.confirm(now);
                self.reporting = true;
                let steps = steps.shifted(self.log.shift());
                let actions = match outcome {
                    // Gitea hears one more state, the last (NEW-163).
                    None if self.is_cancelling() => {
                        self.steps = steps;
                        vec![Action::AnswerResult(Outcome::Cancelled)]
                    }
                    None => self.note_progress(steps),
                    Some(outcome) => self.judge(outcome, steps, now),
                };
                actions.into_iter().chain(news).collect()
            }
            // The runner repeats its accepted end (NEW-100); everything else hears that it is over (NEW-159).
            Phase::Final(accepted) | Phase::Draining(accepted) if outcome == Some(accepted) => {
                vec![Action::AnswerResult(accepted)]
            }
            Phase::Creating | Phase::Bound | Phase::Offered => vec![Action::AskAgain],
            _ => vec![Action::AnswerResult(Outcome::Cancelled)],
        }
    }

    /// The runner's first update confirms the claim; the rooms hear of that once, not of every row.
    fn confirm(&mut self, now: Timestamp) -> Option<Action> {
        self.last_call = now;
        self.confirmed = true;
        if self.phase != Phase::Claimed {
            return None;
        }
        self.enter(Phase::Running, now);
        Some(Action::Wake)
    }

    /// The record comes before the forward: what the object says may lead Gitea, never trail it, so that a heartbeat
    /// after a crash sets no finished step back to running (NEW-27). Until it stands, no heartbeat of ours carries it either.
    fn note_progress(&mut self, steps: StepRecords) -> Vec<Action> {
        if self.steps.differs_in_state(&steps) {
            return vec![Action::RecordSteps { text: steps.to_text(&self.definitions), steps }];
        }
        self.steps = steps;
        vec![Action::ForwardState { close: None }]
    }

    pub(super) fn on_steps_recorded(&mut self, epoch: Epoch, steps: StepRecords) -> Vec<Action> {
        if !self.is_current(epoch) || self.is_over() || self.is_cancelling() {
            return vec![Action::AnswerResult(Outcome::Cancelled)];
        }
        self.steps = steps;
        vec![Action::ForwardState { close: None }]
    }

    /// The end of a job is not recorded: Gitea keeps it, and until it does only its executor repeats it.
    fn judge(&mut self, outcome: Outcome, steps: StepRecords, now: Timestamp) -> Vec<Action> {
        if self.found.is_some() && !self.log.runner_is_done() && !self.log.is_closed() && !self.asked_for_log {
            // The row that was kept back went down with the former process; the executor still has it.
            self.asked_for_log = true;
            return vec![Action::AskAgain];
        }
        if outcome == Outcome::Success {
            // A cancelled job has cancelled steps; Gitea takes any end of it for a cancel (Gitea contract §7).
            let believed = || if self.is_cancelling() { None } else { self.contradiction(&steps) };
            let disbelieved = self.interrupted.map(|_| "a signal cut the job off").or_else(believed);
            if let Some(why) = disbelieved {
                self.steps = steps;
                let mut actions = self.end(Ending::interrupted(why), now);
                actions.insert(0, Action::AnswerResult(Outcome::Cancelled));
                return actions;
            }
        }
        self.said = Some(outcome);
        vec![Action::ForwardState { close: self.last_words(now) }]
    }

    /// NEW-168: a runner that a signal reached past its executor says SUCCESS over steps that say otherwise. So does a
    /// job that reports for itself in the middle of a step: the official runner gives every step a result at its end.
    fn contradiction(&self, steps: &StepRecords) -> Option<&'static str> {
        let strict = |at: usize| self.definitions.get(at).is_some_and(|d| d.continue_on_error == ContinueOnError::No);
        if steps.as_slice().len() < self.definitions.len() {
            return Some(NOT_ENDED);
        }
        steps.as_slice().iter().enumerate().find_map(|(at, step)| match step.outcome {
            Some(Outcome::Cancelled) => Some("the runner reported success although a step was cancelled"),
            None => Some(NOT_ENDED),
            Some(Outcome::Failure) if strict(at) => Some("the runner reported success although a step failed"),
            _ => None,
        })
    }

    /// Our rows before a believed end; none when Gitea already closed the log.
    fn last_words(&self, now: Timestamp) -> Option<Vec<Row>> {
        let why = "##[error]interrupted: a signal cut the job off";
        let row = self.interrupted.map(|_| Row { time: now, content: why.to_owned() });
        (!self.log.is_closed()).then(|| row.into_iter().collect())
    }
}
