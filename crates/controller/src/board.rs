//! Everything this process knows of live assignments: one [`Life`] each, and the payload while it may still be handed out.
//!
//! Synchronous; its lock is never held across an await, and nothing in it is needed after a restart (invariant 5): the
//! queue, the executors' objects and Gitea hold it all. Rooms bring events, get actions, and are woken when
//! [`Life::wants`] has something new for them.

mod card;
mod listed;
mod making;
mod room;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::assignment::Assignment;
use domain::id::{AssignmentId, Epoch};
use domain::lifecycle::{Action, Event, Life, Limits, Phase, happenings};
use jiff::Timestamp;
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::chronicle::Chronicle;
use crate::clock::Clock;
use crate::gitea::Lane;
use crate::lease::{Act, Tenure};
use crate::queue::Key;
use crate::telemetry::events::Subject;

pub use card::Card;
pub use listed::{Listed, Strays};
pub use making::Making;
pub use room::{Occupancy, Room};
pub use view::{BeingMade, View};

/// A task's bytes as the runner gets them.
pub type Payload = Arc<Zeroizing<Vec<u8>>>;

struct Entry {
    card: Option<Arc<Card>>,
    message: Option<Key>,
    lane: Arc<Lane>,
    life: Life,
    payload: Option<Payload>,
}

/// A room's ear for changes on the board.
pub struct Changes(watch::Receiver<()>);

impl Changes {
    /// Ready when something changed since it was last ready.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The board is gone, and with it every reason to wake.
            std::future::pending::<()>().await;
        }
    }
}

/// How much a new process knows of what exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recovery {
    /// Nothing: nobody may be judged by what the board does not hold.
    Begun,
    /// Every executor that exists has a life.
    ExecutorsKnown,
    /// Every task in the queue has one, too.
    Complete,
}

/// The board.
pub struct Board {
    entries: Mutex<BTreeMap<AssignmentId, Entry>>,
    strays: Mutex<Strays>,
    listed: Mutex<Option<Listed>>,
    making: Mutex<BTreeSet<(AssignmentId, Epoch)>>,
    limits: Limits,
    clock: Clock,
    chronicle: Chronicle,
    telling: Mutex<()>,
    changed: watch::Sender<()>,
    recovery: Mutex<Recovery>,
    tenure: Option<Tenure>,
}

impl Board {
    /// An empty board.
    #[must_use]
    pub fn new(limits: Limits, clock: Clock, chronicle: Chronicle) -> Self {
        let (entries, strays) = (Mutex::default(), Mutex::default());
        Self {
            entries,
            strays,
            listed: Mutex::default(),
            making: Mutex::default(),
            limits,
            clock,
            chronicle,
            telling: Mutex::default(),
            changed: watch::Sender::new(()),
            recovery: Mutex::new(Recovery::Begun),
            tenure: None,
        }
    }

    /// The same, of a process that leads as long as this lasts.
    #[must_use]
    pub fn led_by(self, tenure: Tenure) -> Self {
        Self { tenure: Some(tenure), ..self }
    }

    /// Whether its lives may be decided about now. While nobody can be asked who leads the rooms stand still: another process
    /// may lead, and what it has begun cannot be seen from here (NEW-47, NEW-59).
    #[must_use]
    pub fn may_decide(&self) -> bool {
        self.tenure.as_ref().is_none_or(|tenure| tenure.permits(Act::Decide).is_ok())
    }

    /// The time by which its lives live.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The limits by which they live.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How much is known.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        *self.recovery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More is known now; less never again.
    pub fn recovered(&self, reached: Recovery) {
        let mut recovery = self.recovery.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *recovery;
        *recovery = before.max(reached);
        drop(recovery);
        if before < reached {
            self.wake();
        }
    }

    /// Puts a task on the board. False: the id is taken, by this or by another life of the same number.
    pub fn insert(&self, id: AssignmentId, card: Option<Card>, lane: Lane, life: Life) -> bool {
        self.enter(id, Entry::new(card, lane, life))
    }

    /// Puts a task on the board of which nothing but its message is known, since that does not open. False: as in
    /// [`Board::insert`].
    pub fn insert_unopened(&self, message: Key, lane: Lane, life: Life) -> bool {
        self.enter(message.id, Entry { message: Some(message), ..Entry::new(None, lane, life) })
    }

    /// Holds a task whose message lies in the queue, whoever put it there: a former process, the migration, or the fetch room
    /// a moment ago.
    pub fn hold_waiting(&self, assignment: &Assignment, lane: Lane, attempts: u32, last_error: Option<String>) {
        let life = Life::of_assignment(assignment).found_waiting(self.now(), attempts, last_error);
        if !self.insert(assignment.id, Some(Card::of_assignment(assignment)), lane, life) {
            self.apply(assignment.id, Event::Persisted);
        }
    }

    fn enter(&self, id: AssignmentId, entry: Entry) -> bool {
        let mut entries = self.lock();
        if entries.contains_key(&id) {
            return false;
        }
        entries.insert(id, entry);
        drop(entries);
        self.wake();
        true
    }

    /// Puts a task in the place of an older life of its number, whose executor `reap` removes by its digest (NEW-3). It
    /// holds its slot until a list shows that it is gone (NEW-55, ADM-5). An older life that has gone by now leaves its
    /// place to the task.
    pub fn supersede(&self, id: AssignmentId, card: Option<Card>, lane: Lane, life: Life) {
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.lock();
        let mut newer = Entry::new(card, lane, life);
        if let Some(older) = entries.remove(&id) {
            if older.life.occupies_slot() {
                self.strays_now().fenced.insert((id, older.life.epoch()));
            }
            newer.life = newer.life.in_place_of(&older.life);
            newer.lane = older.lane;
        }
        entries.insert(id, newer);
        drop(entries);
        self.wake();
    }

    /// Brings an event to a life; none when the board does not know it.
    pub fn apply(&self, id: AssignmentId, event: Event) -> Option<Vec<Action>> {
        let now = self.now();
        // Lives change one at a time and are told in that order; without the board's lock, since whoever writes may ask
        // the board.
        let _order = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.lock();
        let entry = entries.get_mut(&id)?;
        let before = entry.life.clone();
        let mut actions = entry.life.apply(event.clone(), now, &self.limits);
        if !entry.life.payload_needed() {
            entry.payload = None;
        }
        let (subject, is_gone) = (entry.subject(id), *entry.life.phase() == Phase::Gone);
        let told = happenings(&before, &event, &entry.life, now);
        // Most events bring nothing about that is told, and a life is no small thing.
        let after = (!told.is_empty()).then(|| entry.life.clone());
        drop(entries);
        if let Some(after) = after {
            told.iter().for_each(|happening| self.chronicle.tell(&subject, &after, happening));
        }
        if is_gone {
            self.lock().remove(&id);
        }
        let before = actions.len();
        actions.retain(|action| *action != Action::Wake);
        if actions.len() != before {
            self.wake();
        }
        Some(actions)
    }

    /// Lays the payload of a task out for its executor of this epoch.
    pub fn offer(&self, id: AssignmentId, epoch: Epoch, payload: Payload) {
        if let Some(entry) = self.lock().get_mut(&id)
            && entry.life.epoch() == epoch
            && entry.life.payload_needed()
        {
            entry.payload = Some(payload);
        }
    }

    /// Tells a room that a life changed in a way it may have to act on, also while it was busy. What changed is not said:
    /// rooms look at everything.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes(self.changed.subscribe())
    }

    /// Wakes the rooms.
    pub fn wake(&self) {
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AssignmentId, Entry>> {
        // A panic while the lock was held left at most one life half-changed; every room checks what it finds.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(card: Option<Card>, lane: Lane, life: Life) -> Self {
        let message = card.as_ref().map(Card::message);
        Self { card: card.map(Arc::new), message, lane: Arc::new(lane), life, payload: None }
    }

    /// Whose events these are; an epoch counts from its launch on.
    fn subject(&self, id: AssignmentId) -> Subject {
        let backend = self.card.as_ref().map(|card| card.backend);
        Subject { backend, assignment: id, epoch: self.life.was_launched().then(|| self.life.epoch()) }
    }
}
