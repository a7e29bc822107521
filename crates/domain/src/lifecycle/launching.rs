//! From the fetch to a running executor: the queue, the launch, and executors that die before they claim.

use jiff::Timestamp;

use super::{Action, Ending, Executor, Life, Limits, Milestones, Phase, Settlement};
use crate::id::Epoch;
use crate::reason::{Reason, Refusal};

impl Life {
    pub(super) fn on_persisted(&mut self, now: Timestamp) -> Vec<Action> {
        if self.phase == Phase::Fetched {
            self.enter(Phase::Waiting, now);
            self.waits_for("a free slot".to_owned());
        }
        vec![Action::Wake]
    }

    pub(super) fn on_refused(&mut self, refusal: Refusal, now: Timestamp) -> Vec<Action> {
        if self.phase != Phase::Fetched {
            return vec![];
        }
        self.end(Ending::refused(refusal), now)
    }

    pub(super) fn on_stopping(&mut self, now: Timestamp) -> Vec<Action> {
        if self.phase != Phase::Fetched {
            return vec![];
        }
        let cause = format!("the runner was stopped while the task waited for {}", self.waiting_for);
        self.end(Ending::new(Reason::QueueUnavailable, cause), now)
    }

    pub(super) fn on_launch_begun(&mut self, epoch: Epoch, now: Timestamp) -> Vec<Action> {
        if self.phase == Phase::Waiting {
            self.epoch = epoch;
            self.launched = true;
            self.attempts += 1;
            self.executor = Executor::Present;
            self.leased = true;
            (self.asked, self.said_hello, self.said_goodbye, self.discard) = (false, false, false, false);
            (self.interrupted, self.found) = (None, None);
            self.last_call = now;
            self.milestones = Milestones { slot: Some(now), ..Milestones::default() };
            self.has_come("it has a slot, and its executor is being made", now);
            self.enter(Phase::Creating, now);
        }
        vec![]
    }

    pub(super) fn on_launch_failed(
        &mut self,
        permanent: Option<Reason>,
        cause: String,
        remedy: String,
        retry_at: Timestamp,
        now: Timestamp,
        limits: &Limits,
    ) -> Vec<Action> {
        if !matches!(self.phase, Phase::Creating | Phase::Bound) {
            return vec![Action::Wake];
        }
        // The outcome may be unclear: whatever exists is removed before the next epoch is made.
        self.discard = true;
        if let Some(reason) = permanent {
            return self.end(Ending { remedy, ..Ending::new(reason, cause) }, now);
        }
        let failed = self.attempts.saturating_sub(self.quota_waits);
        if failed >= limits.launches {
            let cause = format!("{failed} attempts to make an executor failed, the last one with: {cause}");
            return self.end(Ending::new(Reason::BackendUnavailable, cause), now);
        }
        self.last_error = Some(cause.clone());
        self.last_failure = Some(Reason::BackendUnavailable);
        self.waits_for(format!("another attempt to make an executor: {cause}"));
        self.not_before = retry_at;
        self.enter(Phase::Waiting, now);
        vec![Action::Wake]
    }

    /// Said again and again; only a change is news, and that there was a slot in between is none.
    pub(super) fn on_quota_used_up(&mut self, cause: String, retry_at: Timestamp, now: Timestamp) -> Vec<Action> {
        if !matches!(self.phase, Phase::Creating | Phase::Bound) {
            return vec![Action::Wake];
        }
        self.discard = true;
        self.quota_waits += 1;
        (self.last_error, self.last_failure) = (Some(cause.clone()), Some(Reason::BackendQuota));
        let wait = format!("room at the backend: {cause}");
        if wait == self.waiting_for && self.wait_told {
            self.news = None;
        } else {
            self.waits_for(wait);
        }
        self.short_of_quota = true;
        self.not_before = retry_at;
        self.enter(Phase::Waiting, now);
        vec![Action::Wake]
    }

    pub(super) fn on_object(&mut self, reached: Phase, now: Timestamp) -> Vec<Action> {
        let onward = matches!((&self.phase, &reached), (Phase::Creating, _) | (Phase::Bound, Phase::Offered));
        if onward {
            if reached == Phase::Offered {
                self.milestones.runs = Some(now);
                self.has_come("its executor runs and waits for its identity", now);
            } else {
                self.has_come("its executor exists and does not run yet", now);
            }
            self.enter(reached, now);
        }
        vec![]
    }

    /// News of the way from the slot to the claim.
    pub(super) fn has_come(&mut self, how_far: &str, now: Timestamp) {
        let seconds = now.duration_since(self.fetched_at).as_secs();
        self.news = Some(format!("{seconds} s after the fetch of this task: {how_far}"));
    }

    pub(super) fn waits_for(&mut self, cause: String) -> Vec<Action> {
        (self.short_of_quota, self.wait_told) = (false, false);
        self.news = Some(format!("Waiting for {cause}"));
        self.waiting_for = cause;
        vec![]
    }

    /// Said again and again; only a change is news. A pause after a failure is no wait for a slot.
    pub(super) fn on_in_line(&mut self, place: usize, slots: usize, now: Timestamp) -> Vec<Action> {
        let cause = format!("a free slot, at place {place} in line ({slots} of {slots} taken)");
        if self.phase == Phase::Waiting && now >= self.not_before && cause != self.waiting_for {
            self.waits_for(cause);
        }
        vec![]
    }

    pub(super) fn on_message_missing(&mut self, now: Timestamp) -> Vec<Action> {
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

    /// An end may come while the message is being given back: then it is there, and has to be removed.
    pub(super) fn on_settled(&mut self, epoch: Epoch, how: Settlement) -> Vec<Action> {
        if epoch == self.epoch {
            self.leased = false;
            self.settled |= how == Settlement::Removed;
        }
        vec![]
    }

    /// An executor ended before it claimed: nothing ran, so another may be made (NEW-61, NEW-63), unless it would end as this
    /// one did (NEW-66).
    pub(super) fn died(&mut self, reason: Reason, how: String, now: Timestamp, limits: &Limits) -> Vec<Action> {
        self.deaths += 1;
        self.discard = self.executor != Executor::Absent;
        (self.last_error, self.last_failure) = (Some(how.clone()), Some(reason));
        if reason.is_lasting() {
            return self.end(Ending::new(reason, how), now);
        }
        if self.deaths > limits.relaunches {
            let cause = format!("{how}; {} executors ended before they took the task", self.deaths);
            return self.end(Ending::new(reason, cause), now);
        }
        self.waits_for(format!("a new executor: {how}"));
        self.not_before = now.saturating_add(Limits::relaunch_pause(self.deaths)).unwrap_or(now);
        self.enter(Phase::Waiting, now);
        vec![Action::Wake]
    }

    pub(super) fn waited_too_long(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let waited = now.duration_since(self.fetched_at);
        // The deadline may be much nearer: it holds the run limit, which is no statement about a wait.
        let left = limits.endless.saturating_sub(waited);
        if waited < limits.queue_wait && left >= limits.least_budget && now < self.deadline {
            return vec![];
        }
        let reason = match self.phase {
            Phase::Fetched => Reason::QueueUnavailable,
            _ if self.short_of_quota => Reason::BackendQuota,
            _ => Reason::QueueTimeout,
        };
        let tried = self.last_error.as_ref().map(|error| match reason {
            // What it waits for is the last error.
            Reason::BackendQuota => format!("; {} attempts to make an executor", self.attempts),
            _ => format!("; {} attempts to make an executor failed, the last one with: {error}", self.attempts),
        });
        let cause = format!(
            "waited {} s for {}; {} s were left until Gitea ends it{}",
            waited.as_secs(),
            self.waiting_for,
            left.as_secs(),
            tried.unwrap_or_default()
        );
        self.end(Ending::new(reason, cause), now)
    }
}
