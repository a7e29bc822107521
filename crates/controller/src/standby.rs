//! A replica waits for its turn (NEW-59, SCH-10, SCH-12): it holds no task, no consumer, no executor and no port of the
//! facade, answers `/livez`, and is not ready, so that no Service routes to it.
//!
//! Two things make a leader: the lock of the state folder, of which there is one for each folder, and what
//! `LEADER_ELECTION` names, of which there is one for the instance: a lease in NATS, a Lease in Kubernetes, or nothing but
//! the lock. The lock comes first: while a former leader of this folder lives, frozen or not, nobody else may touch the
//! executors there. Whoever has the lock knows that a lease of either kind which this folder's former leader left is nobody's,
//! and need not wait until it has run out. A process that keeps no files has no such lock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::account::host_name;
use crate::app::Signals;
use crate::clock::Clock;
use crate::config::{Config, Election, Nats, Queue};
use crate::kubernetes::Cluster;
use crate::lease::{Held, KeyValueLease, KubernetesLease, Leadership as _, Unconfirmed};
use crate::nats::Connections;
use crate::ops::liveness::Liveness;
use crate::ops::metrics::Metrics;
use crate::ops::readiness::{Leader, Readiness};
use crate::ops::status::StatusSnapshot;
use crate::ops::{self, Ops};
use crate::rotation::Passwords;
use crate::standalone::{self, StartError};
use crate::telemetry::Secrets;
use crate::telemetry::events::{LeaderEvent, leader_transition};

/// How often the lock of the state folder is tried.
const LOCK_AGAIN: Duration = Duration::from_millis(500);

/// What a replica has when its turn comes.
pub struct Turn {
    /// The leadership.
    pub held: Held,
    /// To NATS, where the queue is there.
    pub connections: Option<Connections>,
    /// Their passwords, as they were last read.
    pub passwords: Passwords,
    /// Where `OPS_LISTEN` is served.
    pub ops_listener: TcpListener,
    /// What has come since the wait began and was not heard yet, and what comes.
    pub signals: Signals,
}

/// Waits for the turn; none when a signal came first. `cluster` is where Pods are made; `folder` is the lock of the state
/// folder where it is held already. Passwords that are replaced meanwhile are told to `secrets` before they are used (NEW-140).
///
/// # Errors
/// What keeps it from waiting: NATS or Kubernetes refuses it, its port is taken, the state folder cannot be used.
pub async fn turn(
    config: &Config,
    cluster: Option<&Cluster>,
    folder: Option<Held>,
    secrets: &Secrets,
) -> anyhow::Result<Option<Turn>> {
    let mut signals = Signals::listen()?;
    let connections = tokio::select! {
        opened = connect(&config.queue) => opened?,
        () = signals.next() => return Ok(None),
    };
    let listener = ops::address::bind(&config.ops).await.map_err(anyhow::Error::msg)?;
    let stop = CancellationToken::new();
    let (ops, passwords) = (waiting(config), passwords(&config.queue, connections.as_ref()));
    let metrics = ops.metrics.clone();
    let serving = tokio::spawn(ops::serve(listener, ops, stop.clone()));
    leader_transition(LeaderEvent::Standby, None);
    let held = tokio::select! {
        held = lead(config, connections.as_ref(), cluster, folder) => Some(held?),
        () = signals.next() => None,
        () = passwords.watch(secrets, &metrics) => None,
    };
    stop.cancel();
    let ops_listener = serving.await.context("the server of OPS_LISTEN ended")?;
    Ok(held.map(|held| Turn { held, connections, passwords, ops_listener, signals }))
}

/// Connections exist where the queue needs them, and whoever leads has them from its first moment on.
async fn connect(queue: &Queue) -> anyhow::Result<Option<Connections>> {
    match queue {
        Queue::Embedded => Ok(None),
        Queue::JetStream(nats) => Ok(Some(Connections::open(nats).await?)),
    }
}

fn passwords(queue: &Queue, connections: Option<&Connections>) -> Passwords {
    match (queue, connections) {
        (Queue::JetStream(nats), Some(connections)) => Passwords::new(connections, nats),
        _ => Passwords::default(),
    }
}

async fn lead(
    config: &Config,
    connections: Option<&Connections>,
    cluster: Option<&Cluster>,
    folder: Option<Held>,
) -> anyhow::Result<Held> {
    // One-host mode: the registration lies in this folder, so nobody else can lead while its lock is held.
    let alone = folder.is_some();
    let folder = match folder {
        None if config.keeps_files => Some(lock(config).await?),
        held => held,
    };
    let place = folder.as_ref().and_then(Held::place);
    let lease = match (config.election, &config.queue, connections, cluster) {
        (Election::File, ..) => return folder.context("LEADER_ELECTION=file: there is no lock to agree by"),
        (Election::Nats, Queue::JetStream(nats), Some(connections), _) => {
            let unconfirmed = if alone { Unconfirmed::GoesOn } else { Unconfirmed::Rests };
            in_nats(config, nats, connections, place).when_unconfirmed(unconfirmed).acquire().await?
        }
        (Election::Kubernetes, _, _, Some(cluster)) => {
            let lease = KubernetesLease::new(cluster.clone(), &config.instance, &host_name());
            lease.at(place).acquire().await?
        }
        // Settings that ask for it are refused before.
        (election, ..) => anyhow::bail!("LEADER_ELECTION: there is nothing to agree by {election:?} with"),
    };
    Ok(match folder {
        Some(folder) => lease.keeping(folder),
        None => lease,
    })
}

fn in_nats(config: &Config, nats: &Nats, connections: &Connections, place: Option<&str>) -> KeyValueLease {
    let bucket = format!("{}_LEADER", nats.stream.as_str());
    // Of its own: what others wait for must not hold up a renewal.
    let context = async_nats::jetstream::new(connections.producer.client().clone());
    KeyValueLease::new(context, &bucket, &config.instance, &name()).at(place)
}

/// The lock of the state folder, however long its holder keeps it.
async fn lock(config: &Config) -> Result<Held, StartError> {
    let mut told = false;
    loop {
        match standalone::lead(&config.state_dir).await {
            Err(StartError::Locked { holder, .. }) => {
                if !told {
                    tracing::warn!(
                        component = "controller",
                        "the state folder is in use by {holder}; this process waits until that one has ended"
                    );
                }
                told = true;
                tokio::time::sleep(LOCK_AGAIN).await;
            }
            other => return other,
        }
    }
}

/// Who we are to the other replicas and to whoever reads the lease.
fn name() -> String {
    format!("{} process {}", host_name(), std::process::id())
}

/// What a standby tells.
fn waiting(config: &Config) -> Ops {
    let metrics = Metrics::new(&config.instance);
    metrics.leader(Leader::Standby);
    let instance = config.instance.to_string();
    let components: Vec<String> = config.components.iter().map(|c| c.as_str().to_owned()).collect();
    Ops {
        readiness: Readiness::default(),
        metrics,
        liveness: Liveness::default(),
        clock: Clock::start(),
        snapshot: Arc::new(move |at| StatusSnapshot::empty(&instance, components.clone(), at)),
    }
}
