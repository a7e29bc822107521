//! The cluster's own programs, as far as Pods see them: scheduler, kubelet, node controller, collector, and
//! spire-controller-manager. A test decides what befalls a Pod; in which steps it shows is as on a real node.
//!
//! Invariant: nothing here waits. What takes time stands in [`Machine::due`], and [`Machine::settle`] does what is due.

mod act;
mod container;
mod entries;
mod event;
mod plan;
mod pod;
mod process;
mod react;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

pub use act::{Fate, Kubelet};
pub use plan::{Plan, Timing};
pub use process::Workload;

pub(crate) use entries::EntryManager;
use plan::Stage;
use pod::End;
pub(crate) use process::{Order, Processes};

use super::resource::Resource;
use super::store::{Key, Store};

/// What the programs know and are about to do.
pub(crate) struct Machine {
    pub(crate) timing: Timing,
    pub(crate) plans: Plans,
    pub(crate) entries: EntryManager,
    /// Containers ended, but their Pods' phases do not say so until this is off.
    pub(crate) late_phases: bool,
    /// Pods that are deleted stay Terminating until this is off.
    pub(crate) stuck_deletions: bool,
    /// SIGTERM is ignored: a deletion takes the whole grace period and ends in 137.
    pub(crate) deaf: bool,
    /// With which code a container ends that heeds SIGTERM.
    pub(crate) on_sigterm: i32,
    /// What containers run; without it nothing runs, and a Pod is Running all the same.
    pub(crate) workload: Option<Workload>,
    /// Ends what containers run when this process is killed.
    leash: Option<crate::real::leash::Leash>,
    /// What is to be done to processes.
    pub(crate) orders: Vec<Order>,
    /// The Pods that have a process.
    alive: BTreeSet<String>,
    /// Nodes whose kubelet is not heard of.
    pub(crate) lost: BTreeSet<String>,
    /// How the containers of these Pods ended, where the phase does not say so yet.
    ends: BTreeMap<String, End>,
    due: BTreeMap<(Instant, u64), Stage>,
    sequence: u64,
    /// The last write that was looked at.
    seen: u64,
}

/// What shall befall Pods that are made from now on.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    pub(crate) usual: Plan,
    pub(crate) next: VecDeque<Plan>,
    pub(crate) named: BTreeMap<String, Plan>,
    /// What was chosen, by the Pod's uid.
    chosen: BTreeMap<String, Plan>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            plans: Plans::default(),
            entries: EntryManager::default(),
            late_phases: false,
            stuck_deletions: false,
            deaf: false,
            on_sigterm: 143,
            workload: None,
            leash: None,
            orders: Vec::new(),
            alive: BTreeSet::new(),
            lost: BTreeSet::new(),
            ends: BTreeMap::new(),
            due: BTreeMap::new(),
            sequence: 0,
            seen: 0,
        }
    }
}

impl Machine {
    /// When it wants to act next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Does something after a while.
    fn later(&mut self, after: Duration, stage: Stage) {
        self.sequence += 1;
        self.due.insert((Instant::now() + after, self.sequence), stage);
    }

    /// Looks at what was written, does what is due, and again until there is nothing more.
    pub(crate) fn settle(&mut self, store: &mut Store, now: Instant) {
        loop {
            let written: Vec<_> = store.since(self.seen).into_iter().flatten().cloned().collect();
            self.seen = store.version();
            for change in &written {
                self.react(store, change);
            }
            let due = self.due.first_key_value().filter(|((at, _), _)| *at <= now).map(|(key, _)| *key);
            let stage = due.and_then(|key| self.due.remove(&key));
            match stage {
                Some(stage) => self.carry_out(store, stage),
                None if written.is_empty() => return,
                None => {}
            }
        }
    }

    /// The Pod with this uid, if it still exists.
    fn pod(store: &Store, uid: &str) -> Option<Key> {
        store.place(uid).filter(|key| key.0 == Resource::Pods).cloned()
    }
}
