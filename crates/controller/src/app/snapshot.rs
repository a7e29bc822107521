//! The board as `status` shows it (NEW-134).

use domain::id::{Backend, executor_name};
use domain::lifecycle::{Executor, Life, Phase};
use domain::policy::Shares;
use jiff::Timestamp;

use super::differences::differences;
use crate::board::{Board, Room, View};
use crate::config::{Config, IsolationKind};
use crate::ops::status::{ExecutorLine, HeldTask, Permits, SetApart, StatusSnapshot};

/// What the settings say about how much may be held.
pub(super) fn room(config: &Config) -> Room {
    let capacity = &config.capacity;
    let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let shares = Shares { per_owner: capacity.per_owner, per_repository: capacity.per_repository };
    Room { capacity: number(config.slots().get()), look_ahead: number(capacity.look_ahead), shares }
}

/// What the controller holds at this moment.
pub(super) fn snapshot(
    board: &Board,
    kind: Backend,
    instance: &str,
    components: Vec<String>,
    room: &Room,
    isolation: IsolationKind,
    at: Timestamp,
) -> StatusSnapshot {
    let views = board.views();
    let occupancy = board.occupancy();
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let permits = Permits {
        backend: kind.to_string(),
        capacity: number(room.capacity),
        executors: number(occupancy.executors),
        held: number(occupancy.held),
        free: number(board.permits(room)),
    };
    StatusSnapshot {
        local_isolation: isolation.as_str().to_owned(),
        permits: vec![permits],
        held: views.iter().filter_map(|view| held_task(view, at)).collect(),
        executors: views.iter().filter_map(|view| executor(view, kind, instance)).collect(),
        differences: instance
            .parse()
            .map(|instance| differences(&views, board.listed().as_ref(), &board.strays(), &instance, at))
            .unwrap_or_default(),
        quarantine: board.strays().unreadable.into_iter().map(set_apart).collect(),
        ..StatusSnapshot::empty(instance, components, at)
    }
}

fn set_apart((name, reason): (String, String)) -> SetApart {
    SetApart { name, reason, since: None }
}

fn held_task(view: &View, at: Timestamp) -> Option<HeldTask> {
    let card = view.card.as_ref()?;
    let waits = matches!(view.life.phase(), Phase::Fetched | Phase::Waiting);
    Some(HeldTask {
        id: view.id.to_string(),
        task: view.id.task().get(),
        state: state(view.life.phase()).to_owned(),
        epoch: (view.life.executor() != Executor::Absent).then(|| view.life.epoch().get()),
        backend: card.backend.to_string(),
        age_seconds: u64::try_from(at.duration_since(card.fetched_at).as_secs()).unwrap_or_default(),
        deadline: card.deadline,
        waiting_for: waits.then(|| view.life.waiting_for().to_owned()),
        repository: card.repository.to_string(),
        job_key: card.job_key.to_string(),
    })
}

fn executor(view: &View, kind: Backend, instance: &str) -> Option<ExecutorLine> {
    let state = executor_word(&view.life)?;
    let claimed = !matches!(view.life.phase(), Phase::Waiting | Phase::Creating | Phase::Bound | Phase::Offered);
    let name =
        instance.parse().map(|instance| executor_name(view.id, &instance, view.life.epoch())).unwrap_or_default();
    Some(ExecutorLine {
        name,
        backend: kind.to_string(),
        state: state.to_owned(),
        epoch: view.life.epoch().get(),
        claimed,
    })
}

/// The word of requirements §7.1.
pub(super) fn state(phase: &Phase) -> &'static str {
    match phase {
        Phase::Fetched => "fetched",
        Phase::Waiting => "waiting",
        Phase::Creating => "creating",
        Phase::Bound => "bound",
        Phase::Offered => "offered",
        Phase::Claimed => "claimed",
        Phase::Running => "running",
        Phase::Ending(_) => "ending",
        Phase::Final(_) => "final",
        Phase::Draining(_) => "draining",
        Phase::Gone => "gone",
    }
}

/// How far its executor is; none: it has none.
pub(super) fn executor_word(life: &Life) -> Option<&'static str> {
    match life.executor() {
        Executor::Absent => None,
        Executor::Present if matches!(life.phase(), Phase::Creating | Phase::Bound) => Some("pending"),
        Executor::Present => Some("running"),
        Executor::Ended => Some("ended"),
    }
}
