//! How full the board is, and what may still be fetched.

use std::collections::BTreeMap;

use domain::id::AssignmentId;
use domain::policy::{Holding, Place, Shares};

use super::{Board, Entry, Recovery};

/// How many executors and tasks there are, for permits and slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Executors that exist or may exist, unreadable objects of ours included.
    pub executors: usize,
    /// Tasks held without an executor.
    pub held: usize,
}

/// Tasks over a limit of their owner that are held beside the look-ahead. Gitea hands out in its own order, so without
/// them one owner's tasks would keep those of others in Gitea; without an end to them one owner could make us hold all
/// it has.
const MOST_ASIDE: usize = 32;

/// How much may be held.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Slots of the enabled backend.
    pub capacity: usize,
    /// Tasks held beyond the free slots.
    pub look_ahead: usize,
    /// Of one owner and of one repository.
    pub shares: Shares,
}

impl Board {
    /// How full it is.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let entries = self.lock();
        let executors = entries.values().filter(|entry| entry.life.occupies_slot()).count();
        let held = entries.values().filter(|entry| entry.life.is_held() && !entry.life.occupies_slot()).count();
        // Under both locks: an executor whose life is superseded meanwhile is counted once.
        let strays = self.strays_now();
        Occupancy { executors: executors + strays.fenced.len() + strays.unreadable.len(), held }
    }

    /// The right to fetch: free slots less what is held, and the look-ahead (NEW-5, NEW-9).
    #[must_use]
    pub fn permits(&self, room: &Room) -> usize {
        if self.recovery() < Recovery::Complete {
            return 0;
        }
        let now = self.occupancy();
        let free = room.capacity.saturating_sub(now.executors);
        // Who waits for the end of a job of its own owner keeps no slot from others (NEW-18).
        let aside = self.over(&room.shares).len().min(MOST_ASIDE);
        (free + room.look_ahead).saturating_sub(now.held.saturating_sub(aside))
    }

    /// Whether a task is to be launched that is not among these.
    #[must_use]
    pub fn wants_launch(&self, but: &BTreeMap<AssignmentId, String>) -> bool {
        let (now, limits) = (self.now(), self.limits());
        self.lock().iter().any(|(id, entry)| !but.contains_key(id) && entry.life.wants(now, limits).launch)
    }

    /// The waiting tasks that must leave their turn to those behind them, each with what it waits for (NEW-18).
    #[must_use]
    pub fn over(&self, shares: &Shares) -> BTreeMap<AssignmentId, String> {
        if shares.are_unlimited() {
            return BTreeMap::new();
        }
        let entries = self.lock();
        let holdings = entries.iter().filter_map(|(&id, Entry { card, life, .. })| {
            let place = match (life.occupies_slot(), life.is_held()) {
                (true, _) => Place::Slot,
                (false, true) => Place::Queue,
                (false, false) => return None,
            };
            card.as_ref().map(|card| Holding { id, repository: &card.repository, place })
        });
        shares.over(&holdings.collect::<Vec<_>>())
    }
}
