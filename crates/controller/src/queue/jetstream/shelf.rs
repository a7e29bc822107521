//! What this process knows of the messages in the stream: where each lies, how often its start failed, and which ones it
//! is working on. Rebuilt by reading after a restart; the one leader changes it.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::Subject;
use domain::id::AssignmentId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::super::Key;

/// The failed starts of one message (NEW-46), as they are written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tries {
    pub(super) attempts: u32,
    pub(super) next_try: Timestamp,
    pub(super) last_error: String,
}

/// What to do with a message that the server handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is leased now, after so many failed tries.
    Leased { attempts: u32 },
    /// We are working on it; the newer delivery is the one to answer (NEW-43).
    Joined,
    /// Its pause is not over.
    NotYet { pause: Duration },
}

#[derive(Debug, Default)]
struct Slot {
    /// Its place; none while only its tries are known.
    place: Option<u64>,
    tries: Option<Tries>,
    lease: Option<Subject>,
}

/// The messages, by life.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    slots: BTreeMap<Key, Slot>,
}

impl Shelf {
    /// It lies there.
    pub(super) fn lies(&mut self, key: &Key, place: u64) {
        self.slots.entry(key.clone()).or_default().place = Some(place);
    }

    /// Read from the records at the start.
    pub(super) fn recall(&mut self, key: Key, tries: Tries) {
        self.slots.entry(key).or_default().tries = Some(tries);
    }

    /// The message of this number, and its place.
    pub(super) fn of(&self, id: AssignmentId) -> Option<(Key, u64)> {
        // A map of numbers first: the lives of one number stand side by side.
        let mut lives = self.slots.iter().skip_while(|(key, _)| key.id < id).take_while(|(key, _)| key.id == id);
        lives.find_map(|(key, slot)| Some((key.clone(), slot.place?)))
    }

    pub(super) fn place(&self, key: &Key) -> Option<u64> {
        self.slots.get(key)?.place
    }

    pub(super) fn tries(&self, key: &Key) -> Option<&Tries> {
        self.slots.get(key)?.tries.as_ref()
    }

    pub(super) fn lease(&self, key: &Key) -> Option<Subject> {
        self.slots.get(key)?.lease.clone()
    }

    /// Where to say that we are still working on them.
    pub(super) fn leases(&self) -> Vec<Subject> {
        self.slots.values().filter_map(|slot| slot.lease.clone()).collect()
    }

    /// The server handed it out.
    pub(super) fn handed(&mut self, key: &Key, place: u64, reply: Subject, now: Timestamp) -> Turn {
        let slot = self.slots.entry(key.clone()).or_default();
        slot.place = Some(place);
        if slot.lease.is_some() {
            slot.lease = Some(reply);
            return Turn::Joined;
        }
        if let Some(tries) = slot.tries.as_ref().filter(|tries| tries.next_try > now) {
            let pause = Duration::try_from(tries.next_try.duration_since(now)).unwrap_or_default();
            return Turn::NotYet { pause };
        }
        slot.lease = Some(reply);
        Turn::Leased { attempts: slot.tries.as_ref().map_or(0, |tries| tries.attempts) }
    }

    /// One more start failed. None: no such message is known.
    pub(super) fn failed(&self, key: &Key, next_try: Timestamp, last_error: String) -> Option<Tries> {
        let slot = self.slots.get(key)?;
        let attempts = slot.tries.as_ref().map_or(0, |tries| tries.attempts).saturating_add(1);
        Some(Tries { attempts, next_try, last_error })
    }

    /// It is worked on no more; where to say so, if it was.
    pub(super) fn release(&mut self, key: &Key) -> Option<Subject> {
        self.slots.get_mut(key)?.lease.take()
    }

    /// It is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.slots.remove(key);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use jiff::SignedDuration;

    use super::*;
    use crate::queue::contract::key;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// NEW-43, F30, T41: what comes again while it is worked on starts nothing, and its newest delivery is answered.
    #[test]
    fn a_redelivery_joins() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.handed(&key(1), 7, "first".into(), at(0)), Turn::Leased { attempts: 0 });
        assert_eq!(shelf.handed(&key(1), 7, "second".into(), at(0)), Turn::Joined);
        assert_eq!(shelf.leases(), ["second".into()]);
        assert_eq!(shelf.release(&key(1)), Some("second".into()));
        assert_eq!(shelf.release(&key(1)), None);
        assert_eq!(shelf.handed(&key(1), 7, "third".into(), at(0)), Turn::Leased { attempts: 0 });
    }

    /// NEW-46: a message that comes before its pause is over goes back for what is left of it.
    #[test]
    fn a_pause_is_kept() {
        let mut shelf = Shelf::default();
        shelf.lies(&key(1), 7);
        let tries = shelf.failed(&key(1), at(60), "no room".to_owned()).unwrap();
        shelf.recall(key(1), tries);
        let early = shelf.handed(&key(1), 7, "early".into(), at(59) + SignedDuration::from_millis(1));
        assert_eq!(early, Turn::NotYet { pause: Duration::from_millis(999) });
        assert_eq!(shelf.handed(&key(1), 7, "late".into(), at(60)), Turn::Leased { attempts: 1 });
        assert_eq!(shelf.failed(&key(1), at(90), String::new()).unwrap().attempts, 2);
        assert_eq!(shelf.failed(&key(2), at(90), String::new()), None);
    }

    /// NEW-3: a number has one message; the records of an older life are not it.
    #[test]
    fn a_number_has_one_message() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.of(key(1).id), None);
        shelf.recall(key(1), Tries { attempts: 1, next_try: at(0), last_error: String::new() });
        assert_eq!(shelf.of(key(1).id), None);
        shelf.lies(&key(1), 7);
        shelf.lies(&key(2), 8);
        assert_eq!(shelf.of(key(1).id), Some((key(1), 7)));
        shelf.forget(&key(1));
        assert_eq!(shelf.of(key(1).id), None);
    }
}
