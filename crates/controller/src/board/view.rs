//! What rooms see of lives on the board.

use std::sync::Arc;

use domain::id::{AssignmentId, Epoch};
use domain::lifecycle::{Executor, Life, Limits, Phase, Wants};
use jiff::Timestamp;

use super::{Board, Card, Entry, Payload};
use crate::gitea::Lane;
use crate::queue::Key;

/// What a room looks at.
pub struct View {
    /// The assignment.
    pub id: AssignmentId,
    /// Its facts; none for a task that was refused before it became an assignment.
    pub card: Option<Arc<Card>>,
    /// Its message in the queue; none for a task that was refused before it had one.
    pub message: Option<Key>,
    /// Its state.
    pub life: Life,
    /// What the rooms have to do for it.
    pub wants: Wants,
    /// The payload lies here.
    pub has_payload: bool,
    /// The one way to Gitea for this task.
    pub lane: Arc<Lane>,
}

/// Whether an executor is still being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeingMade {
    /// The call that makes it is under way: that a list does not show it proves nothing.
    Yes,
    /// It was there.
    No,
}

impl Board {
    /// The payload, while it may be handed out.
    #[must_use]
    pub fn payload(&self, id: AssignmentId) -> Option<Payload> {
        self.lock().get(&id).and_then(|entry| entry.payload.clone())
    }

    /// The facts of an assignment.
    #[must_use]
    pub fn card(&self, id: AssignmentId) -> Option<Arc<Card>> {
        self.lock().get(&id).and_then(|entry| entry.card.clone())
    }

    /// The message of an assignment in the queue.
    #[must_use]
    pub fn message(&self, id: AssignmentId) -> Option<Key> {
        self.lock().get(&id).and_then(|entry| entry.message.clone())
    }

    /// The one way to Gitea for a task.
    #[must_use]
    pub fn lane(&self, id: AssignmentId) -> Option<Arc<Lane>> {
        self.lock().get(&id).map(|entry| Arc::clone(&entry.lane))
    }

    /// Our rows before the runner's first one.
    #[must_use]
    pub fn log_shift(&self, id: AssignmentId) -> u64 {
        self.lock().get(&id).map_or(0, |entry| entry.life.log().shift())
    }

    /// One life as a room sees it.
    #[must_use]
    pub fn view(&self, id: AssignmentId) -> Option<View> {
        let now = self.now();
        self.lock().get(&id).map(|entry| entry.view(id, now, &self.limits))
    }

    /// Reads something off one life, which is not copied for it: what is asked at every call and every few seconds of each
    /// of thousands.
    #[must_use]
    pub fn read<T>(&self, id: AssignmentId, look: impl FnOnce(&Life) -> T) -> Option<T> {
        self.lock().get(&id).map(|entry| look(&entry.life))
    }

    /// The card of a life and its current incarnation.
    #[must_use]
    pub fn incarnation(&self, id: AssignmentId) -> Option<(Option<Arc<Card>>, Epoch)> {
        self.lock().get(&id).map(|entry| (entry.card.clone(), entry.life.epoch()))
    }

    /// The lives with an executor, as far as is known, with its incarnation.
    #[must_use]
    pub fn with_executors(&self) -> Vec<(AssignmentId, Epoch, BeingMade)> {
        let entries = self.lock();
        let making = self.making_now();
        let with_one = entries.iter().filter(|(_, entry)| entry.life.executor() != Executor::Absent);
        let read = |(&id, entry): (&AssignmentId, &Entry)| {
            let epoch = entry.life.epoch();
            // A life may be over while the call goes on.
            let under_way = *entry.life.phase() == Phase::Creating || making.contains(&(id, epoch));
            (id, epoch, if under_way { BeingMade::Yes } else { BeingMade::No })
        };
        with_one.map(read).collect()
    }

    /// The lives that wait for an executor while one of theirs is there that nobody removes: it came after its create had been
    /// given up. One whose message is still to be given back is left for later.
    #[must_use]
    pub fn came_late(&self) -> Vec<(AssignmentId, Epoch)> {
        let now = self.now();
        let late = |life: &Life| {
            let has_one = *life.phase() == Phase::Waiting && life.occupies_slot();
            has_one && matches!(life.wants(now, &self.limits), Wants { removal: false, message: None, .. })
        };
        let entries = self.lock();
        let lives = entries.iter().filter(|(_, entry)| late(&entry.life));
        lives.map(|(&id, entry)| (id, entry.life.epoch())).collect()
    }

    /// Whether to hear that its executor exists is news to a life. Every list says it of each executor again.
    #[must_use]
    pub fn is_news(&self, id: AssignmentId, epoch: Epoch) -> bool {
        let news = |life: &Life| life.epoch() == epoch && life.executor() == Executor::Absent;
        self.read(id, news).unwrap_or_default()
    }

    /// All lives as a room sees them, in the order of their numbers.
    #[must_use]
    pub fn views(&self) -> Vec<View> {
        let now = self.now();
        self.lock().iter().map(|(&id, entry)| entry.view(id, now, &self.limits)).collect()
    }

    /// Those lives for which a room has something to do. Nothing is copied of the others, of which there are thousands.
    #[must_use]
    pub fn views_that(&self, wanted: impl Fn(&Wants) -> bool) -> Vec<View> {
        let now = self.now();
        let entries = self.lock();
        let views = entries.iter().filter(|(_, entry)| wanted(&entry.life.wants(now, &self.limits)));
        views.map(|(&id, entry)| entry.view(id, now, &self.limits)).collect()
    }

    /// Reads a number off the log of a life: what its runner is answered for its rows.
    #[must_use]
    pub fn runner_ack(&self, id: AssignmentId) -> u64 {
        self.lock().get_mut(&id).map_or(0, |entry| entry.life.runner_ack())
    }

    /// The current incarnation of an assignment.
    #[must_use]
    pub fn epoch(&self, id: AssignmentId) -> Option<Epoch> {
        self.read(id, Life::epoch)
    }
}

impl Entry {
    fn view(&self, id: AssignmentId, now: Timestamp, limits: &Limits) -> View {
        View {
            id,
            card: self.card.clone(),
            message: self.message.clone(),
            life: self.life.clone(),
            wants: self.life.wants(now, limits),
            has_payload: self.payload.is_some(),
            lane: Arc::clone(&self.lane),
        }
    }
}
