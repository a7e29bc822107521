//! Everything this process knows of live assignments: one [`Life`] each, and the payload while it may still be handed out.
//!
//! Synchronous; its lock is never held across an await, and nothing in it is needed after a restart (invariant 5): the
//! queue, the executors' objects and Gitea hold it all. Rooms bring events, get actions, and are woken when
//! [`Life::wants`] has something new for them.

mod card;
mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::assignment::Assignment;
use domain::id::{AssignmentId, Epoch};
use domain::lifecycle::{Action, Event, Executor, Life, Limits, Phase, Wants, happenings};
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
pub use room::{Occupancy, Room};

/// A task's bytes as the runner gets them.
pub type Payload = Arc<Zeroizing<Vec<u8>>>;

struct Entry {
    card: Option<Arc<Card>>,
    message: Option<Key>,
    lane: Arc<Lane>,
    life: Life,
    payload: Option<Payload>,
}

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

/// Objects of ours that belong to no life. Each holds its slot (NEW-56).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strays {
    /// Of an older epoch, or of an older life of the same number; they are being removed.
    pub fenced: BTreeSet<(AssignmentId, Epoch)>,
    /// Name and problem of what cannot be read; left alone.
    pub unreadable: BTreeMap<String, String>,
}

/// The last complete list of the backend.
#[derive(Debug, Clone)]
pub struct Listed {
    /// When it was begun.
    pub at: Timestamp,
    /// What it showed, strays included.
    pub executors: BTreeSet<(AssignmentId, Epoch)>,
}

/// Whether an executor is still being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeingMade {
    /// The call that makes it is under way: that a list does not show it proves nothing.
    Yes,
    /// It was there.
    No,
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
        let (subject, after) = (entry.subject(id), entry.life.clone());
        drop(entries);
        for happening in happenings(&before, &event, &after, now) {
            self.chronicle.tell(&subject, &after, &happening);
        }
        if *after.phase() == Phase::Gone {
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
        let with_one = entries.iter().filter(|(_, entry)| entry.life.executor() != Executor::Absent);
        let read = |(&id, entry): (&AssignmentId, &Entry)| {
            let being_made = if *entry.life.phase() == Phase::Creating { BeingMade::Yes } else { BeingMade::No };
            (id, entry.life.epoch(), being_made)
        };
        with_one.map(read).collect()
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

    /// Takes note of the objects that belong to no life, seen by a list that was begun when `before` was known: it proves
    /// nothing about what was fenced since. Returns what was known until now.
    pub fn set_strays(&self, mut strays: Strays, before: &Strays) -> Strays {
        let mut known = self.strays_now();
        strays.fenced.extend(known.fenced.difference(&before.fenced));
        std::mem::replace(&mut *known, strays)
    }

    /// The objects that belong to no life.
    #[must_use]
    pub fn strays(&self) -> Strays {
        self.strays_now().clone()
    }

    /// Takes note of a complete list, for whoever compares it with the lives.
    pub fn set_listed(&self, listed: Listed) {
        *self.listed_now() = Some(listed);
    }

    /// The last complete list; none before the first.
    #[must_use]
    pub fn listed(&self) -> Option<Listed> {
        self.listed_now().clone()
    }

    fn listed_now(&self) -> MutexGuard<'_, Option<Listed>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Taken after the lives' lock where both are needed.
    fn strays_now(&self) -> MutexGuard<'_, Strays> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
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
