//! Starts every room. A room returns its name when it ends.

use std::sync::{Arc, OnceLock};

use domain::policy::{LabelMap, SelfHosted, Shares};

use super::Rooms;
use super::gauges::{self, Gauges};
use super::parts::{KIND, Parts, rules};
use super::shutdown::Shutdown;
use crate::facade::{self, Facade, Upstream};
use crate::fetch::Fetch;
use crate::grants::Grants;
use crate::launch::Launch;
use crate::ops;
use crate::pins::Pins;
use crate::pulse::Pulse;
use crate::reap::Reap;
use crate::report::Report;

pub(super) fn start(parts: Parts, upstream: Upstream, shutdown: &Shutdown) -> Rooms {
    let capabilities = Arc::new(OnceLock::new());
    let fetch = Arc::new(fetch(&parts, &capabilities));
    let launch = Arc::new(launch(&parts));
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
    };
    let traffic = upstream.traffic();
    let facade = Arc::new(facade(&parts, upstream, capabilities));
    let reap = Arc::new(reap(&parts, Arc::clone(&facade)));
    let Parts { identity, facade_listener, ops_listener, ops, board, config, rotation, .. } = parts;
    let mut rooms = Rooms::new();
    let (stop_fetch, fetched) = (shutdown.fetch.clone(), shutdown.fetched.clone());
    rooms.spawn(async move {
        fetch.run(stop_fetch).await;
        fetched.cancel();
        // Its end is awaited by the others' order, not by theirs.
        "scheduler"
    });
    let stop = || shutdown.rooms.clone();
    rooms.spawn(named("launch", launch.run(stop())));
    rooms.spawn(named("reap", reap.run(stop())));
    rooms.spawn(named("pulse", Arc::new(pulse).run(stop())));
    rooms.spawn(named("report", report.run(stop())));
    rooms.spawn(named("facade", facade::serve(facade_listener, identity.acceptor(), facade, stop())));
    rooms.spawn(named("secrets", rotation.run(stop())));
    let capacity = config.capacity.local.get();
    let gauges = Gauges { board, identity, ops: ops.clone(), kind: KIND, capacity, traffic };
    rooms.spawn(named("gauges", gauges::run(gauges, stop())));
    rooms.spawn(named("ops", ops::serve(ops_listener, ops, stop())));
    rooms
}

async fn named(name: &'static str, room: impl Future<Output = ()>) -> &'static str {
    room.await;
    name
}

fn capacity(parts: &Parts) -> usize {
    usize::try_from(parts.config.capacity.local.get()).unwrap_or(usize::MAX)
}

fn shares(parts: &Parts) -> Shares {
    let crate::config::Capacity { per_owner, per_repository, .. } = parts.config.capacity;
    Shares { per_owner, per_repository }
}

fn fetch(parts: &Parts, capabilities: &Arc<OnceLock<Option<String>>>) -> Fetch {
    let labels = LabelMap::new(&[KIND], "vm", &parts.config.labels.extra);
    let self_hosted = if parts.config.labels.declare_self_hosted { SelfHosted::Declared } else { SelfHosted::Left };
    Fetch {
        gitea: Arc::clone(&parts.gitea),
        board: Arc::clone(&parts.board),
        queue: parts.queue.clone(),
        ledger: parts.queue.ledger(),
        sealing: Arc::clone(&parts.sealing),
        labels: labels.declared(&[KIND], self_hosted),
        rules: Arc::new(rules(&parts.config, labels)),
        capacity: capacity(parts),
        look_ahead: usize::try_from(parts.config.capacity.look_ahead).unwrap_or_default(),
        shares: shares(parts),
        capabilities: Arc::clone(capabilities),
        ops: parts.ops.clone(),
        tracker: parts.tracker.clone(),
        unwritten: Default::default(),
    }
}

fn launch(parts: &Parts) -> Launch {
    Launch {
        gitea: Arc::clone(&parts.gitea),
        board: Arc::clone(&parts.board),
        queue: parts.queue.clone(),
        sealing: Arc::clone(&parts.sealing),
        grants: Grants::new(Pins::new(parts.queue.ledger())),
        unopened: Arc::clone(&parts.unopened),
        backend: parts.backend.clone(),
        kind: KIND,
        capacity: capacity(parts),
        shares: shares(parts),
        instance: parts.config.instance.clone(),
        ring: Arc::clone(&parts.ring),
        ops: parts.ops.clone(),
        tracker: parts.tracker.clone(),
    }
}

fn reap(parts: &Parts, facade: Arc<Facade>) -> Reap {
    Reap {
        gitea: Arc::clone(&parts.gitea),
        board: Arc::clone(&parts.board),
        backend: parts.backend.clone(),
        instance: parts.config.instance.clone(),
        ops: parts.ops.clone(),
        facade,
        kind: KIND,
        tracker: parts.tracker.clone(),
        busy: Default::default(),
    }
}

fn facade(parts: &Parts, upstream: Upstream, capabilities: Arc<OnceLock<Option<String>>>) -> Facade {
    Facade {
        board: Arc::clone(&parts.board),
        backend: parts.backend.clone(),
        kind: KIND,
        instance: parts.config.instance.clone(),
        ring: Arc::clone(&parts.ring),
        capabilities,
        upstream,
        ops: parts.ops.clone(),
        tracker: parts.tracker.clone(),
    }
}
