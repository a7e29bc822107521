//! What the HTTP side and the control side of the double share.
//!
//! Invariant: one lock, never held across an await; every change wakes those who wait for a condition.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::area::Seen;
use super::calls::Book;
use super::clock::{Clock, between};
use super::ending::Sweep;
use super::fault::{Away, Faults, Latency};
use super::server::Server;

/// Everything that changes.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) server: Server,
    pub(crate) book: Book,
    pub(crate) faults: Faults,
    pub(crate) latency: Latency,
    pub(crate) away: Away,
    pub(crate) seen: Vec<Seen>,
    pub(crate) connections: usize,
    due: Vec<(Sweep, Timestamp)>,
}

impl World {
    pub(crate) fn new(clock: Clock, server: Server) -> Self {
        let now = clock.now();
        let due = [Sweep::Zombie, Sweep::Endless, Sweep::Abandoned];
        let due = due.map(|sweep| (sweep, later(now, interval(&server, sweep)))).to_vec();
        Self {
            clock,
            server,
            book: Book::default(),
            faults: Faults::default(),
            latency: Latency::default(),
            away: Away::No,
            seen: Vec::new(),
            connections: 0,
            due,
        }
    }

    /// Runs the sweeps whose time has come; returns the real time until the next.
    pub(crate) fn run_due_sweeps(&mut self) -> Duration {
        let now = self.clock.now();
        for index in 0..self.due.len() {
            let (sweep, at) = self.due[index];
            if at <= now {
                self.server.sweep(sweep, now);
                self.due[index].1 = later(now, interval(&self.server, sweep));
            }
        }
        let next = self.due.iter().map(|(_, at)| *at).min().unwrap_or(Timestamp::MAX);
        self.clock.real(between(now, next))
    }
}

fn interval(server: &Server, sweep: Sweep) -> Duration {
    match sweep {
        Sweep::Zombie => server.settings.zombie_sweep,
        Sweep::Endless => server.settings.endless_sweep,
        Sweep::Abandoned => server.settings.abandoned_sweep,
    }
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    now.saturating_add(by).unwrap_or(Timestamp::MAX)
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

    /// Changes something and wakes everybody who waits.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut World) -> R) -> R {
        let result = change(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Looks at something.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&World) -> R) -> R {
        look(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Runs sweeps when they are due, until the double ends.
    pub(crate) async fn sweep(&self) {
        let mut changes = self.changes();
        loop {
            let wait = self.change(World::run_due_sweeps);
            changes.borrow_and_update();
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(wait.min(Duration::from_secs(3600))) => {}
            }
        }
    }
}
