//! What this process knows of a Pod beyond the Pod itself: what was done for it, and since when it stands still. All of
//! it may be lost: the calls behind it can be repeated.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::backoff::Backoff;
use domain::metadata::ExecutorRecord;
use jiff::Timestamp;
use tokio::time::Instant;

use super::seen::{Container, Phase, Seen};
use super::trouble::{self, Circumstances, Standstill, Told};
use crate::backend::{ExecutorState, Failure};
use crate::backoff::backoff;
use domain::reason::Reason;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How often SPIRE is asked whether it took an entry.
const STANDING: Duration = Duration::from_secs(2);
/// What its events say is asked for when a Pod has stood still for so long, and again after pauses that double: hundreds may
/// stand still at once.
const EVENTS: Duration = Duration::from_secs(10);
const LONGEST_EVENTS: Duration = Duration::from_secs(60);
/// What has no other time is looked at so often.
const LOOK: Duration = Duration::from_secs(10);

/// One Pod's.
pub(super) struct Care {
    pub(super) identity: Identity,
    pub(super) secret: Secret,
    /// We are removing it.
    pub(super) dismissed: bool,
    standstill: Option<(Standstill, Instant)>,
    pub(super) events: Vec<Told>,
    events_due: Instant,
    events_pauses: Backoff,
    /// Why its identity is not there, in words.
    pub(super) trouble: Option<String>,
    due: Instant,
    pauses: Backoff,
    pub(super) busy: BTreeSet<Chore>,
    /// Events of ours that were told, and other things that are said once.
    pub(super) said: BTreeSet<&'static str>,
}

/// Where its identity entry stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// Nothing was written by this process.
    Unwritten,
    /// Written; SPIRE has not said that it took it.
    Written,
    Bound,
    /// It never will be: in words.
    Rejected(String),
    /// Taken away, or about to be.
    Released,
}

/// Its Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Secret {
    /// Not known to this process.
    Unknown,
    /// There, with this UID, as far as it was told.
    Written(Option<String>),
    /// Whoever made the Pod did not live to write it.
    Missing,
    Gone,
}

/// Work for one Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    Bind,
    DropSecret,
    /// Of a Pod that an earlier process made.
    FindSecret,
    ReadEvents,
    /// It is one too many (POD-1).
    Dismiss,
}

impl Care {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            identity: Identity::Unwritten,
            secret: Secret::Unknown,
            dismissed: false,
            standstill: None,
            events: Vec::new(),
            events_due: now,
            events_pauses: backoff(EVENTS, LONGEST_EVENTS),
            trouble: None,
            due: now,
            pauses: backoff(FIRST_RETRY, LONGEST_RETRY),
            busy: BTreeSet::new(),
            said: BTreeSet::new(),
        }
    }

    /// Notes what it waits for; a wait of another kind begins anew.
    pub(super) fn watch(&mut self, pod: &Seen, now: Instant) {
        let stands = trouble::standstill(pod);
        if self.standstill.map(|(kind, _)| kind) != stands {
            self.standstill = stands.map(|kind| (kind, now));
            self.events_pauses.reset();
            self.events_due = now + self.events_pauses.pause();
        }
    }

    fn stands(&self, now: Instant) -> Duration {
        self.standstill.map_or(Duration::ZERO, |(_, since)| now.duration_since(since))
    }

    /// What its executor does.
    pub(super) fn state(
        &self,
        pod: &Seen,
        record: Option<&ExecutorRecord>,
        pending: Duration,
        at: (Instant, Timestamp),
    ) -> ExecutorState {
        let (instant, now) = at;
        let has_secret = matches!(self.secret, Secret::Written(_));
        let about = Circumstances { stands: self.stands(instant), events: &self.events, has_secret, pending, now };
        let state = trouble::state(pod, record, &about);
        let unclaimed = record.is_some_and(|record| record.claim.is_none());
        let waits = matches!(state, ExecutorState::Pending | ExecutorState::HeldUp(_));
        if unclaimed && waits && self.secret == Secret::Missing && !pod.has_started() {
            let cause = trouble::WITHOUT_SECRET.to_owned();
            return ExecutorState::Failed(Failure { reason: Reason::BackendUnavailable, cause });
        }
        match (&state, &self.identity) {
            (ExecutorState::Pending | ExecutorState::HeldUp(_) | ExecutorState::Running, Identity::Rejected(cause))
                if unclaimed =>
            {
                ExecutorState::Failed(Failure { reason: Reason::IdentityRejected, cause: cause.clone() })
            }
            (ExecutorState::Pending | ExecutorState::Running, _) if unclaimed => match &self.trouble {
                Some(trouble) => ExecutorState::HeldUp(format!("its identity: {trouble}")),
                None => state,
            },
            _ => state,
        }
    }

    /// What is to be done for it now.
    pub(super) fn chores(&self, pod: &Seen, record: Option<&ExecutorRecord>, now: Instant) -> Vec<Chore> {
        let mut chores = Vec::new();
        let Some(record) = record else { return chores };
        if now >= self.due && self.wants_identity(pod, record) {
            chores.push(Chore::Bind);
        }
        if self.has_used_secret(record) && pod.deleting.is_none() && now >= self.due {
            chores.push(Chore::DropSecret);
        }
        let stands = matches!(self.standstill, Some((Standstill::Placing | Standstill::Preparing, _)));
        if stands && now >= self.events_due {
            chores.push(Chore::ReadEvents);
        }
        chores.retain(|chore| !self.busy.contains(chore));
        chores
    }

    /// Whether an inherited Pod may be one that nobody made a Secret for.
    pub(super) fn may_lack_secret(&self, pod: &Seen, record: Option<&ExecutorRecord>, now: Instant) -> bool {
        let unclaimed = record.is_some_and(|record| record.claim.is_none());
        let waits = !pod.has_started() && !pod.is_over() && pod.deleting.is_none();
        let asks = !self.busy.contains(&Chore::FindSecret) && now >= self.due;
        unclaimed && waits && asks && self.secret == Secret::Unknown
    }

    /// Whether one too many is to go now; one whose removal failed has its pause like any other trouble (NEW-74).
    pub(super) fn may_dismiss(&self, now: Instant) -> bool {
        !self.dismissed && !self.busy.contains(&Chore::Dismiss) && now >= self.due
    }

    /// Its capability was read, and lies there still (NEW-72).
    fn has_used_secret(&self, record: &ExecutorRecord) -> bool {
        record.claim.is_some() && self.secret != Secret::Gone
    }

    /// Whoever has its task has its identity, and an entry of a former process is found by asking for it again. What becomes
    /// of it later the sweep sees.
    fn wants_identity(&self, pod: &Seen, record: &ExecutorRecord) -> bool {
        let lives = pod.node.is_some() && pod.deleting.is_none() && !pod.is_over() && !self.dismissed;
        lives
            && match self.identity {
                Identity::Unwritten => !record.terminal,
                Identity::Written => record.claim.is_none(),
                Identity::Bound | Identity::Rejected(_) | Identity::Released => false,
            }
    }

    /// The executor may run and may get its identity.
    pub(super) fn is_ready(&self, pod: &Seen) -> bool {
        pod.is_over() || (pod.has_started() && matches!(self.identity, Identity::Bound | Identity::Written))
    }

    /// Its entry is not what it was, by a list that shows all of them: it is asked for once more. That somebody else's stood in
    /// its way says nothing of now either, where a job goes on all the same. Tells whether that is news.
    pub(super) fn entry_is_amiss(&mut self, claimed: bool, now: Instant) -> bool {
        let had = matches!(self.identity, Identity::Bound | Identity::Written);
        if had || (claimed && matches!(self.identity, Identity::Rejected(_))) {
            self.identity = Identity::Unwritten;
            self.due = now;
        }
        had
    }

    pub(super) fn succeeded(&mut self, now: Instant) {
        self.pauses.reset();
        self.trouble = None;
        self.due = now;
    }

    /// It is written, and asked for again in a while.
    pub(super) fn pending(&mut self, now: Instant) {
        self.trouble = None;
        self.due = now + STANDING;
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.due = now + self.pauses.pause();
    }

    /// Its events were asked for; without an answer those that were read before stand. Tells whether they say anything new.
    pub(super) fn events_read(&mut self, events: Option<Vec<Told>>, now: Instant) -> bool {
        self.events_due = now + self.events_pauses.pause();
        let Some(events) = events.filter(|events| *events != self.events) else { return false };
        self.events = events;
        true
    }

    /// When it is to be looked at again although nothing happens to it.
    pub(super) fn next_look(&self, pod: &Seen, record: Option<&ExecutorRecord>, now: Instant) -> Option<Instant> {
        let over = matches!(pod.phase, Phase::Succeeded | Phase::Failed);
        let settled = matches!((&pod.executor, &self.identity), (Container::Running, Identity::Bound));
        let waits = !over && (!settled || record.is_some_and(|record| self.has_used_secret(record)));
        let due = if self.due > now { self.due } else { now + LOOK };
        waits.then(|| due.min(self.events_due.max(now + FIRST_RETRY)))
    }
}
