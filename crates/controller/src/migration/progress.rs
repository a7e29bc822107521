//! What is told of the migration: in the log, and in `status`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::id::AssignmentId;
use jiff::Timestamp;

use super::judgement::Rest;
use crate::ops::status::SetApart;
use crate::telemetry::events::{MigrationEvent, migration};

pub(super) const MODE_IS_OFF: &str = "messages of the earlier controller lie there, and nobody works on them; set \
     ENVELOPE_ACCEPT_V1=true to take them over, or remove them";

/// How far it is. Shared by the room and by whoever shows it.
pub struct Progress {
    stream: String,
    subject: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    taken_in: u64,
    removed: u64,
    resting: BTreeMap<u64, Resting>,
    trouble: Option<String>,
    is_over: bool,
}

struct Resting {
    rest: Rest,
    until: Timestamp,
}

impl Progress {
    /// Of the migration of this subject.
    #[must_use]
    pub fn new(stream: &str, subject: String) -> Self {
        Self { stream: stream.to_owned(), subject, state: Mutex::default() }
    }

    /// In one sentence, for `status`.
    #[must_use]
    pub fn told(&self) -> String {
        let (state, subject) = (self.state(), &self.subject);
        let State { taken_in, removed, resting, .. } = &*state;
        let counted = format!("{taken_in} taken in, {removed} removed, {} left where they lie", resting.len());
        match &state.trouble {
            _ if state.is_over => format!(
                "nothing of the earlier controller is left on {subject} ({taken_in} taken in, {removed} removed): set \
                 ENVELOPE_ACCEPT_V1=false"
            ),
            Some(trouble) => {
                format!("what the earlier controller left on {subject} is not taken now ({counted}): {trouble}")
            }
            None => format!("what the earlier controller left on {subject} is taken over: {counted}"),
        }
    }

    /// What is left where it lies, for `status`.
    #[must_use]
    pub fn left(&self) -> Vec<SetApart> {
        let shown = |(place, Resting { rest, .. }): (&u64, &Resting)| SetApart {
            name: format!("message {place} on {}", self.subject),
            reason: format!("{}; {}", rest.cause(), self.remedy(*place, rest)),
            since: None,
        };
        self.state().resting.iter().map(shown).collect()
    }

    pub(super) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Whether the message is not to be judged yet.
    pub(super) fn rests(&self, place: u64, now: Timestamp) -> bool {
        self.state().resting.get(&place).is_some_and(|resting| now < resting.until)
    }

    /// Told once as long as the cause is the same.
    pub(super) fn rests_from_now(&self, place: u64, id: Option<AssignmentId>, rest: Rest, until: Timestamp) {
        let cause = format!("{}; {}", rest.cause(), self.remedy(place, &rest));
        let before = self.state().resting.insert(place, Resting { rest: rest.clone(), until });
        if before.is_none_or(|before| before.rest != rest) {
            migration(MigrationEvent::Left, &self.subject, Some(place), id, &cause);
        }
    }

    pub(super) fn gone(&self, was_taken_in: bool) {
        let mut state = self.state();
        *(if was_taken_in { &mut state.taken_in } else { &mut state.removed }) += 1;
    }

    /// Something does not answer, or is not as it must be. Told once as long as it is the same.
    pub(super) fn stands_still(&self, trouble: String) {
        if self.state().trouble.as_ref() != Some(&trouble) {
            tracing::error!(component = "queue", subject = self.subject, error = trouble, "migration stands still");
        }
        self.state().trouble = Some(trouble);
    }

    /// A whole look: only what still lies there rests, and when that is nothing it is over.
    pub(super) fn looked(&self, lying: &[u64]) {
        let mut state = self.state();
        state.trouble = None;
        state.resting.retain(|place, _| lying.contains(place));
        state.is_over = lying.is_empty();
        let (taken_in, removed) = (state.taken_in, state.removed);
        drop(state);
        if lying.is_empty() {
            let cause = format!(
                "nothing is left there ({taken_in} taken in, {removed} removed since the start): set \
                 ENVELOPE_ACCEPT_V1=false"
            );
            migration(MigrationEvent::Drained, &self.subject, None, None, &cause);
        }
    }

    fn remedy(&self, place: u64, rest: &Rest) -> String {
        let stream = &self.stream;
        format!(
            "{} (`nats stream get {stream} {place}` shows it, with its secrets; `nats stream rmm {stream} {place}` removes \
             it)",
            rest.remedy()
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one value: a panic leaves no half of it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
