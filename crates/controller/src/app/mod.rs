//! Wires the rooms together, lets them run, and ends them in order.
//!
//! Every room is owned here: one that ends before it was asked to ends the process (NEW-150).

mod differences;
mod gauges;
mod parts;
mod patience;
mod rooms;
mod shutdown;
mod snapshot;
pub mod walls;

use std::sync::Arc;

use domain::id::{AssignmentId, TaskId};
use tokio::net::TcpListener;
use tokio::task::JoinError;

use crate::board::Board;
use crate::config::Config;
use crate::descriptors::Descriptors;
use crate::facade::Upstream;
use crate::kubernetes::Cluster;
use crate::lease::Held;
use crate::nats::Connections;
use crate::ops::readiness::Leader;
use crate::rotation::Passwords;
use crate::standalone::runner::Found;
use crate::telemetry::Installed;
use crate::telemetry::events::{ControllerEvent, LeaderEvent, controller_transition, leader_transition};
use crate::telemetry::human::JobName;
use parts::Parts;
use rooms::{Ended, Rooms};
use shutdown::Shutdown;
pub use shutdown::Signals;
use walls::Proven;

/// What a controller is made of: its settings, and what was found out about this host.
pub struct Start {
    /// The settings.
    pub config: Config,
    /// Where executors are made.
    pub place: Place,
    /// How many files it may open.
    pub descriptors: Descriptors,
    /// To NATS, where the queue is there.
    pub nats: Option<Connections>,
    /// Their passwords, as they were last read.
    pub passwords: Passwords,
    /// Where `OPS_LISTEN` is served already, by a process that waited for its turn.
    pub ops_listener: Option<TcpListener>,
}

/// Where executors are made, and what was found out about it.
pub enum Place {
    /// On this host.
    Host {
        /// The official runner.
        runner: Found,
        /// What keeps jobs apart.
        walls: Proven,
    },
    /// In Pods.
    Cluster(Cluster),
}

/// Runs a controller until a signal or a failure. Whoever calls proves that it leads, and has listened for signals since
/// before it waited for that: one that came meanwhile is heard here.
///
/// # Errors
///
/// Whatever keeps it from starting, and the end of any of its parts that nobody asked for.
pub async fn run(start: Start, held: Held, mut signals: Signals, telemetry: &Installed) -> anyhow::Result<()> {
    leader_transition(LeaderEvent::Acquired, None);
    let config = &start.config;
    let (instance, components) = (config.instance.to_string(), config.components.to_string());
    let say = |event| controller_transition(event, &instance, &components);
    say(ControllerEvent::Starting);
    let upstream = Upstream::new(config.gitea.url.as_str(), config.facade.paths.clone())?;
    let parts = tokio::select! {
        parts = Parts::build(start, telemetry.secrets.clone(), held.tenure()) => match parts {
            Ok(parts) => parts,
            // The next one may have what this one lacks, and must not wait until the lease has run out.
            Err(error) => {
                held.release().await;
                return Err(error);
            }
        },
        // Nothing runs yet that would have to end in order (CMP-7, CMP-10).
        () = signals.next() => {
            held.release().await;
            say(ControllerEvent::Stopped);
            return Ok(());
        }
    };
    let (readiness, tracker) = (parts.ops.readiness.clone(), parts.tracker.clone());
    let board = Arc::clone(&parts.board);
    telemetry.names.learn(job_names(Arc::clone(&board)));
    readiness.set(|conditions| {
        conditions.leader = Leader::Leading;
        conditions.facade_listening = true;
    });
    parts.ops.metrics.leader(Leader::Leading);
    let shutdown = Shutdown::default();
    let mut rooms = rooms::start(parts, upstream, &shutdown);
    say(ControllerEvent::Ready);
    let result = tokio::select! {
        () = signals.next() => Ok(()),
        () = held.lost() => Err(anyhow::anyhow!("scheduler leadership lost")),
        Some(ended) = rooms.join_next() => Err(unasked(ended)),
    };
    if held.tenure().over().is_some() {
        // Whatever a leader does is now another one's to do; what is in hand is only let go of.
        shutdown.rooms.cancel();
    }
    say(ControllerEvent::Draining);
    readiness.set(|conditions| conditions.draining = true);
    tokio::select! {
        () = shutdown.drain(&board, &tracker, &mut rooms) => {}
        () = signals.next() => tracing::warn!(component = "controller", "stopping at once: a second signal came"),
    }
    held.release().await;
    leader_transition(LeaderEvent::Released, None);
    say(ControllerEvent::Stopped);
    result
}

/// Why the process ends when a room did: it returned, or it panicked in a build that does not end at a panic at once.
fn unasked(ended: Result<Ended, JoinError>) -> anyhow::Error {
    match ended {
        Ok(ended) => anyhow::anyhow!("{ended}"),
        Err(error) => anyhow::anyhow!("a component ended by itself: {error}"),
    }
}

/// What the log for people asks the board.
fn job_names(board: Arc<Board>) -> impl Fn(i64) -> Option<JobName> {
    move |task| {
        let card = board.card(AssignmentId::of(TaskId::try_from(task).ok()?))?;
        let (repository, job) = (card.repository.to_string(), card.job_key.to_string());
        Some(JobName { repository, job, spiffe_id: card.spiffe_id.to_string() })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    async fn panics() -> Ended {
        panic!("a rule was broken")
    }

    /// T73, NEW-150, NEW-60, F136, F49: a room that returns and one that panics are both noticed, and the process ends
    /// with the reason.
    #[tokio::test]
    async fn a_room_that_ends_is_the_end_and_its_reason() {
        let mut rooms = Rooms::new();
        rooms.spawn(async { rooms::ended() });
        let returned = unasked(rooms.join_next().await.unwrap()).to_string();
        assert_eq!(returned, r#"component scheduler: its part "test" ended by itself"#);
        rooms.spawn(panics());
        let panicked = unasked(rooms.join_next().await.unwrap()).to_string();
        assert!(panicked.contains("a rule was broken"), "{panicked}");
    }
}
