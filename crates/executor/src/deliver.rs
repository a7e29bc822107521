//! The spool at work: one shared state, one task that delivers what it says.
//!
//! Held here: one log or state call to the facade at a time, whoever makes it (the lane). What the spool decides is
//! decided under its lock, which is never held across an await.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use domain::executor_api::Report;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::answer::Outcome;
use crate::backoff::backoff;
use crate::facade::Facade;
use crate::proxy::paths::Procedure;
use crate::spool::shelf::Shelf;
use crate::spool::{Item, Patience, Spool};

/// One delivery of a log or state: the facade's own deadline for UpdateLog towards Gitea is 60 s, and it finishes what
/// it began, so a shorter limit would only make it work twice.
const DELIVERY: Duration = Duration::from_secs(75);

/// The spool, shared between proxy, deliverer and supervisor.
pub(crate) struct Outbox {
    spool: Mutex<Spool>,
    changed: watch::Sender<()>,
    cause: OnceLock<String>,
    shelf: Shelf,
    /// Held while a log or state call is on its way.
    pub(crate) lane: tokio::sync::Mutex<()>,
}

impl Outbox {
    pub(crate) fn new(patience: Patience, shelf: Shelf) -> Self {
        Self {
            spool: Mutex::new(Spool::new(patience)),
            changed: watch::Sender::new(()),
            cause: OnceLock::new(),
            shelf,
            lane: tokio::sync::Mutex::new(()),
        }
    }

    /// Looks at the spool or changes it, and wakes whoever waits for a change.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Spool) -> T) -> T {
        let out = change(&mut self.lock());
        self.changed.send_replace(());
        out
    }

    /// An interruption is owed from now on; only the first cause counts.
    pub(crate) fn interrupt(&self, cause: &str) {
        self.cause.get_or_init(|| cause.to_owned());
        self.with(Spool::interrupt);
    }

    /// Brings the file up to what is owed now.
    pub(crate) fn store(&self) {
        let left = || (self.lock().left(), self.cause.get().cloned().unwrap_or_default());
        self.shelf.keep(left);
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, condition: impl Fn(&Spool) -> bool) {
        let mut changed = self.changed.subscribe();
        while !condition(&self.lock()) {
            // The sender lives in self.
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    // A panic under the lock leaves no half-made state: every change is one assignment after another, all valid.
    fn lock(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until nothing is owed, or until the deliverer has ended, which it does by a panic only: what is owed then stays
/// owed.
pub(crate) async fn until_delivered(outbox: &Outbox, deliverer: &mut JoinSet<()>) {
    tokio::select! {
        biased;
        () = outbox.until(|spool| !spool.owes()) => {}
        ended = deliverer.join_next() => tracing::error!(?ended, "nobody delivers the final report any more"),
    }
}

/// Delivers for ever what the spool owes.
pub(crate) async fn deliver(outbox: Arc<Outbox>, facade: Arc<Facade>, report_limit: Duration) {
    let mut pauses = backoff(Duration::from_millis(200), Duration::from_secs(10));
    loop {
        outbox.until(|spool| spool.due().is_some()).await;
        let Some(item) = outbox.lock().due() else { continue };
        let outcome = match item {
            Item::Interruption => announce(&outbox, &facade, report_limit).await,
            Item::Log => send(&outbox, &facade, item, Procedure::UpdateLog).await,
            Item::State => send(&outbox, &facade, item, Procedure::UpdateTask).await,
        };
        outbox.store();
        match outcome {
            Some(Outcome::Accepted) => pauses.reset(),
            Some(_) => pause(&outbox, pauses.pause()).await,
            None => {}
        }
    }
}

async fn announce(outbox: &Outbox, facade: &Facade, limit: Duration) -> Option<Outcome> {
    let report = Report::Interrupted { cause: outbox.cause.get().cloned().unwrap_or_default() };
    let (outcome, _) = facade.report(&report, limit).await;
    outbox.with(|spool| spool.settle(Item::Interruption, outcome, Instant::now()));
    Some(outcome)
}

/// Sends a kept call; none when it is not due any more.
async fn send(outbox: &Outbox, facade: &Facade, item: Item, procedure: Procedure) -> Option<Outcome> {
    let _lane = outbox.lane.lock().await;
    let body = {
        let spool = outbox.lock();
        if spool.due() != Some(item) {
            return None;
        }
        spool.body(item)?
    };
    let answer = facade.rpc(procedure, body, DELIVERY).await;
    let outcome = answer.outcome();
    if outcome == Outcome::Accepted {
        tracing::info!(?item, "final report delivered");
    } else {
        tracing::warn!(?item, problem = %answer.problem(), "final report not delivered yet");
    }
    outbox.with(|spool| spool.settle(item, outcome, Instant::now()));
    Some(outcome)
}

/// A pause that ends early when something more urgent than before is owed, and at the end of the spool's patience.
async fn pause(outbox: &Outbox, pause: Duration) {
    let (before, end) = {
        let spool = outbox.lock();
        (spool.due(), spool.gives_up_at())
    };
    let until = end.map_or(pause, |end| pause.min(end.saturating_duration_since(Instant::now())));
    tokio::select! {
        () = tokio::time::sleep(until) => {}
        () = outbox.until(|spool| spool.due() < before) => {}
    }
    outbox.with(|spool| spool.tick(Instant::now()));
}
