//! What the HTTP side and the control side of the double share.
//!
//! Invariant: one lock, never held across an await. After every change the cluster's own programs have seen it before
//! the lock is free again, and everybody who waits for a condition is woken.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::calls::Call;
use super::fault::Faults;
use super::kubelet::{Machine, Processes};
use super::resource::Resource;
use super::store::Store;
use crate::gitea::Away;
use crate::gitea::CallEnd;

/// Everything that changes.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) machine: Machine,
    pub(crate) calls: Vec<Call>,
    pub(crate) faults: Faults,
    pub(crate) away: Away,
    pub(crate) watches: Watches,
    /// The token that opens the API.
    pub(crate) token: String,
    /// Whom messages say that it belongs to.
    pub(crate) user: String,
}

/// What happens to all watches together.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Grows when all streams are cut.
    pub(crate) cut: u64,
    /// Streams stay open and say nothing.
    pub(crate) silent: bool,
    /// Grows when all streams that want bookmarks get one.
    pub(crate) bookmarks: u64,
}

impl World {
    pub(crate) fn new(token: String) -> Self {
        let mut world = Self {
            store: Store::default(),
            machine: Machine::default(),
            calls: Vec::new(),
            faults: Faults::default(),
            away: Away::No,
            watches: Watches::default(),
            token,
            user: "system:serviceaccount:gitea-actions:gitea-dynamic-runner".to_owned(),
        };
        for namespace in ["default", "kube-system", "gitea-actions"] {
            world.add_namespace(namespace);
        }
        world.add_account("gitea-actions", "gitea-task-executor");
        world.machine.add_node(&mut world.store, "node-1");
        world
    }

    /// With the ServiceAccount that the real cluster makes in each.
    pub(crate) fn add_namespace(&mut self, name: &str) {
        // It may exist already: then all is well.
        let _ = self.store.create(Resource::Namespaces, "", json!({"metadata": {"name": name}}));
        self.add_account(name, "default");
    }

    pub(crate) fn add_account(&mut self, namespace: &str, name: &str) {
        let _ = self.store.create(Resource::ServiceAccounts, namespace, json!({"metadata": {"name": name}}));
    }

    /// Enters a call that has just arrived.
    pub(crate) fn enter(&mut self, mut call: Call) -> usize {
        call.number = self.calls.len();
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// Its answer is out, or never will be.
    pub(crate) fn end(&mut self, number: usize, end: CallEnd) {
        if let Some(call) = self.calls.get_mut(number).filter(|call| call.end == CallEnd::Pending) {
            call.took = Some(call.instant.elapsed());
            call.end = end;
        }
    }
}

/// The shared memory.
pub(crate) struct Shared {
    world: Mutex<World>,
    changed: watch::Sender<u64>,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn new(world: World) -> Self {
        Self { world: Mutex::new(world), changed: watch::Sender::new(0), stop: CancellationToken::new() }
    }

    /// Changes something, lets the cluster see it, and wakes everybody who waits.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut world);
        let World { store, machine, .. } = &mut *world;
        machine.settle(store, Instant::now());
        drop(world);
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Takes something out that nobody waits for.
    fn with<R>(&self, take: impl FnOnce(&mut World) -> R) -> R {
        take(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at something.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&World) -> R) -> R {
        look(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Lets the cluster do what it does with time, until the double ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let (mut changes, mut processes) = (self.changes(), Processes::default());
        loop {
            changes.borrow_and_update();
            let orders = self.with(|world| std::mem::take(&mut world.machine.orders));
            processes.obey(&self, orders);
            let due = self.look(|world| world.machine.next());
            let wait = due.map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(Instant::now()));
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => self.change(|_| ()),
            }
        }
    }
}
