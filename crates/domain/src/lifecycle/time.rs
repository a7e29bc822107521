//! What passes with time: deadlines of every state, and the pulse.

use jiff::{SignedDuration, Timestamp};

use super::{Action, Ending, Life, Limits, Phase, Row};
use crate::reason::Reason;

impl Life {
    pub(super) fn on_tick(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let ended = self.overdue(now, limits);
        if !ended.is_empty() {
            return ended;
        }
        let mut actions: Vec<Action> = self.news_to_tell(now, limits).into_iter().collect();
        // What a former process saw of the steps may be old: the runner speaks first.
        let careful = self.reporting || (self.found.is_some() && self.phase == Phase::Claimed);
        actions.extend(self.beat(now, if careful { limits.heartbeat_silent } else { limits.heartbeat }));
        actions
    }

    /// The pulse, if Gitea heard nothing for so long.
    pub(super) fn beat(&mut self, now: Timestamp, pause: SignedDuration) -> Vec<Action> {
        let heard = self.last_sign.max(self.last_beat);
        if self.is_over() || self.is_cancelling() || now.duration_since(heard) < pause {
            return vec![];
        }
        self.last_beat = now;
        vec![Action::Heartbeat]
    }

    /// The waiting room speaks of changes only, and not too often; a task that starts at once needs no word of it. What
    /// is not told by the claim is in the row that is written with it. A new process hears of the task first: it may have
    /// ended, and then nobody asks about its log (NEW-163).
    fn news_to_tell(&mut self, now: Timestamp, limits: &Limits) -> Option<Action> {
        let heard =
            self.told.map_or(self.fetched_at.saturating_add(limits.quiet_start), |at| at.saturating_add(limits.quiet));
        // The row that goes with the claim tells it all, and no other one may come between the attempts to write it.
        let claims = self.asked && !self.is_held();
        if !self.is_before_its_claim() || claims || self.end_may_be_known() || now < heard.unwrap_or(Timestamp::MAX) {
            return None;
        }
        let content = self.news.take()?;
        self.told = Some(now);
        self.wait_told = content.strip_prefix("Waiting for ") == Some(&*self.waiting_for);
        Some(Action::Tell(Row { time: now, content }))
    }

    fn overdue(&mut self, now: Timestamp, limits: &Limits) -> Vec<Action> {
        let here = now.duration_since(self.since);
        let silent = now.duration_since(self.last_call);
        let seconds = |d: SignedDuration| d.as_secs();
        let judged = self.found.is_none_or(|at| now.duration_since(at) >= limits.start_grace);
        match self.phase {
            Phase::Fetched | Phase::Waiting => self.waited_too_long(now, limits),
            Phase::Creating | Phase::Bound if here >= limits.pending => {
                let how = format!("no executor ran within {} s", seconds(limits.pending));
                self.died(Reason::BackendUnavailable, how, now, limits)
            }
            Phase::Offered if judged && !self.said_hello && here >= limits.identity => {
                let how = format!("its executor had no identity within {} s", seconds(limits.identity));
                self.died(Reason::IdentityTimeout, how, now, limits)
            }
            Phase::Offered if judged && self.said_hello && here >= limits.claim => {
                let how = format!("its executor did not ask for the task within {} s", seconds(limits.claim));
                self.died(Reason::ClaimTimeout, how, now, limits)
            }
            Phase::Claimed | Phase::Running
                if self.cancelled.is_some_and(|at| now.duration_since(at) >= limits.cancel_grace) =>
            {
                let late = format!("its runner did not end within {} s of the cancel", seconds(limits.cancel_grace));
                self.end(Ending::new(Reason::CancelDeadline, late), now)
            }
            Phase::Claimed | Phase::Running if now >= self.deadline => self.end(self.at_its_deadline(now), now),
            Phase::Claimed | Phase::Running
                if self.interrupted.is_some_and(|at| now.duration_since(at) >= limits.interrupted) =>
            {
                self.end(Ending::interrupted("a signal cut the job off and its runner did not end"), now)
            }
            Phase::Claimed if judged && silent >= limits.first_update => self.end(
                Ending::new(Reason::ExecutorLost, format!("silent for {} s after it took the task", seconds(silent))),
                now,
            ),
            Phase::Running if judged && silent >= limits.silence => self.end(
                Ending::new(Reason::ExecutorLost, format!("its executor was silent for {} s", seconds(silent))),
                now,
            ),
            Phase::Ending(_) if here >= limits.endless => self.left_to_gitea(now),
            _ => vec![],
        }
    }

    pub(super) fn at_its_deadline(&self, now: Timestamp) -> Ending {
        let ran = now.duration_since(self.fetched_at).as_secs();
        Ending::new(Reason::Deadline, format!("the job reached its deadline {ran} s after its fetch"))
    }

    /// Gitea took no end for as long as it lets any task run: its own sweep ends it, and nothing of it is kept for that.
    fn left_to_gitea(&mut self, now: Timestamp) -> Vec<Action> {
        let Phase::Ending(ending) = &self.phase else { return vec![] };
        let outcome = ending.outcome;
        self.log.close();
        self.confirmed = true;
        self.enter(Phase::Final(outcome), now);
        vec![Action::Wake]
    }
}
