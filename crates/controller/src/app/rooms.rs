//! Starts every room, each for a component. A room tells whose part it is when it ends (CMP-6).

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::assignment::Rules;
use domain::id::Backend;
use domain::policy::{LabelMap, SelfHosted};
use jiff::SignedDuration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::gauges::{self, Gauges};
use super::parts::{Parts, rules, signed};
use super::shutdown::Shutdown;
use super::snapshot::room;
use crate::config::{self, Component};
use crate::facade::{self, Facade, Upstream};
use crate::fetch::Fetch;
use crate::grants::Grants;
use crate::launch::Launch;
use crate::migration::Migration;
use crate::nats::Connections;
use crate::ops::{self, Ops};
use crate::pins::Pins;
use crate::pulse::Pulse;
use crate::queue::Queue;
use crate::reap::{Reap, Works};
use crate::report::Report;

/// The rooms that run.
pub(super) type Rooms = JoinSet<Ended>;

/// A room that has ended. It says no more of itself: a room bears every failure it meets, and a panic ends a released
/// program at once.
pub(super) struct Ended {
    component: Component,
    room: &'static str,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "component {}: its part \"{}\" ended by itself", self.component.as_str(), self.room)
    }
}

pub(super) fn start(mut parts: Parts, upstream: Upstream, shutdown: &Shutdown) -> Rooms {
    let capabilities = Arc::new(OnceLock::new());
    let fetch = Arc::new(fetch(&parts, &capabilities));
    let launch = Arc::new(launch(&mut parts));
    let migration = migration(&mut parts, &fetch.rules);
    let report = Arc::new(Report {
        board: Arc::clone(&parts.board),
        ops: parts.ops.clone(),
        tracker: parts.tracker.clone(),
        under_way: Default::default(),
    });
    let pulse = Pulse {
        board: Arc::clone(&parts.board),
        ops: parts.ops.clone(),
        capacity: capacity(&parts),
        tracker: parts.tracker.clone(),
        line: Default::default(),
    };
    let traffic = upstream.traffic();
    let facade = Arc::new(facade(&parts, upstream, capabilities));
    let reap = Arc::new(reap(&parts, Arc::clone(&facade)));
    let Parts { identity, facade_listener, ops_listener, ops, board, config, rotation, queue, nats, .. } = parts;
    let kind = config.kind();
    let mut rooms = Rooms::new();
    let (stop_fetch, fetched) = (shutdown.fetch.clone(), shutdown.fetched.clone());
    let stop = || shutdown.rooms.clone();
    use Component::Scheduler;
    let worker = worker(kind);
    rooms.spawn(named(Scheduler, "fetch", saying(fetched, async move { fetch.run(stop_fetch).await })));
    if let Some(migration) = migration {
        // Like the loop that fetches, it brings tasks in.
        rooms.spawn(named(Scheduler, "migration", migration.run(shutdown.fetch.clone())));
    }
    let serving = facade::serve(facade_listener, identity.acceptor(), facade, stop());
    rooms.spawn(named(Scheduler, "facade", saying(shutdown.drained.clone(), serving)));
    rooms.spawn(named(worker, "launch", launch.run(stop())));
    let (stop_reap, drained) = (stop(), shutdown.drained.clone());
    rooms.spawn(named(worker, "reap", saying(shutdown.noted.clone(), reap.run(stop_reap, drained))));
    rooms.spawn(named(Scheduler, "pulse", Arc::new(pulse).run(stop())));
    rooms.spawn(named(Scheduler, "report", report.run(stop())));
    rooms.spawn(named(Scheduler, "secrets", rotation.run(stop())));
    rooms.spawn(named(Scheduler, "queue", tended(queue, nats, ops.clone(), stop())));
    let (capacity, ops_stop) = (config.slots().get(), stop());
    let gauges = Gauges { board, identity, ops: ops.clone(), kind, capacity, traffic };
    rooms.spawn(named(Scheduler, "gauges", gauges::run(gauges, stop())));
    rooms.spawn(named(Scheduler, "ops", async { drop(ops::serve(ops_listener, ops, ops_stop).await) }));
    rooms
}

/// How often the connections are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// The queue's own work, and its connections in readiness and metrics. Ends by itself when the queue cannot be used any
/// more, and with it the process (CON-4).
async fn tended(queue: Arc<dyn Queue>, nats: Option<Connections>, ops: Ops, stop: CancellationToken) {
    let shown = async {
        let Some(nats) = &nats else { return std::future::pending().await };
        loop {
            nats.show(&ops.metrics, &ops.readiness);
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        error = queue.tend() => tracing::error!(component = "queue", %error, "the queue cannot be used any more"),
        () = shown => {}
        () = stop.cancelled() => {}
    }
}

async fn named(component: Component, room: &'static str, work: impl Future<Output = ()>) -> Ended {
    work.await;
    Ended { component, room }
}

/// Cancels `ended` when this room ends: its end is a step of the order of an end.
async fn saying(ended: CancellationToken, room: impl Future<Output = ()>) {
    let _even_after_a_panic = ended.drop_guard();
    room.await;
}

/// Whose part launching and reaping is.
fn worker(kind: Backend) -> Component {
    match kind {
        Backend::Pod => Component::PodWorker,
        Backend::Vm => Component::VmWorker,
        Backend::Local => Component::LocalWorker,
    }
}

fn capacity(parts: &Parts) -> usize {
    room(&parts.config).capacity
}

fn fetch(parts: &Parts, capabilities: &Arc<OnceLock<Option<String>>>) -> Fetch {
    let kind = parts.config.kind();
    let labels = LabelMap::new(&[kind], "vm", &parts.config.labels.extra);
    let self_hosted = if parts.config.labels.declare_self_hosted { SelfHosted::Declared } else { SelfHosted::Left };
    Fetch {
        gitea: Arc::clone(&parts.gitea),
        board: Arc::clone(&parts.board),
        queue: Arc::clone(&parts.queue),
        sealing: Arc::clone(&parts.sealing),
        labels: labels.declared(&[kind], self_hosted),
        rules: Arc::new(rules(&parts.config, labels)),
        room: room(&parts.config),
        capabilities: Arc::clone(capabilities),
        ops: parts.ops.clone(),
        tracker: TaskTracker::new(),
        unwritten: Default::default(),
    }
}

fn launch(parts: &mut Parts) -> Launch {
    Launch {
        gitea: Arc::clone(&parts.gitea),
        board: Arc::clone(&parts.board),
        queue: Arc::clone(&parts.queue),
        sealing: Arc::clone(&parts.sealing),
        grants: Grants::new(Pins::new(Arc::clone(&parts.ledger))),
        unopened: Arc::clone(&parts.unopened),
        host: parts.host.take(),
        backend: parts.backend.clone(),
        kind: parts.config.kind(),
        capacity: capacity(parts),
        shares: room(&parts.config).shares,
        instance: parts.config.instance.clone(),
        ring: Arc::clone(&parts.ring),
        ops: parts.ops.clone(),
        tracker: parts.tracker.clone(),
    }
}

fn migration(parts: &mut Parts, rules: &Arc<Rules>) -> Option<Migration> {
    let (subject, progress) = parts.migration.take()?;
    Some(Migration {
        subject,
        gitea: Arc::clone(&parts.gitea),
        board: Arc::clone(&parts.board),
        queue: Arc::clone(&parts.queue),
        ledger: Arc::clone(&parts.ledger),
        sealing: Arc::clone(&parts.sealing),
        rules: Arc::clone(rules),
        // Gitea looks for silent tasks every five minutes.
        silence: signed(parts.config.gitea.zombie_task_timeout).saturating_add(SignedDuration::from_mins(10)),
        progress,
        ops: parts.ops.clone(),
    })
}

fn reap(parts: &Parts, facade: Arc<Facade>) -> Reap {
    Reap {
        gitea: Arc::clone(&parts.gitea),
        board: Arc::clone(&parts.board),
        backend: parts.backend.clone(),
        instance: parts.config.instance.clone(),
        ops: parts.ops.clone(),
        facade,
        kind: parts.config.kind(),
        works: Works::new(parts.tracker.clone()),
    }
}

fn facade(parts: &Parts, upstream: Upstream, capabilities: Arc<OnceLock<Option<String>>>) -> Facade {
    Facade {
        board: Arc::clone(&parts.board),
        backend: parts.backend.clone(),
        kind: parts.config.kind(),
        instance: parts.config.instance.clone(),
        ring: Arc::clone(&parts.ring),
        accept_form_1: matches!(&parts.config.queue, config::Queue::JetStream(nats) if nats.accept_v1),
        capabilities,
        upstream,
        ops: parts.ops.clone(),
        tracker: parts.tracker.clone(),
        connections: parts.connections,
    }
}

/// An end for the tests of what ends.
#[cfg(test)]
pub(super) fn ended() -> Ended {
    Ended { component: Component::Scheduler, room: "test" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CMP-6: the text names the component, by its word of CMP-1 and CMP-3.
    #[tokio::test]
    async fn an_end_is_told_with_its_component() {
        let ended = named(Component::LocalWorker, "reap", std::future::ready(())).await;
        assert_eq!(ended.to_string(), "component local-worker: its part \"reap\" ended by itself");
    }
}
