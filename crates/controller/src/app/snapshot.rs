//! The board as `status` shows it (NEW-134).

use domain::id::executor_name;
use domain::lifecycle::{Executor, Phase};
use jiff::Timestamp;

use super::parts::KIND;
use crate::board::{Board, View};
use crate::config::IsolationKind;
use crate::ops::status::{ExecutorLine, HeldTask, Permits, SetApart, StatusSnapshot};

/// What the settings say about the slots of this host.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    pub(super) capacity: u32,
    pub(super) look_ahead: u32,
    pub(super) isolation: IsolationKind,
}

/// What the controller holds at this moment.
pub(super) fn snapshot(
    board: &Board,
    instance: &str,
    components: Vec<String>,
    Slots { capacity, look_ahead, isolation }: Slots,
    at: Timestamp,
) -> StatusSnapshot {
    let views = board.views();
    let occupancy = board.occupancy();
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (executors, held) = (number(occupancy.executors), number(occupancy.held));
    let free = (capacity.saturating_sub(executors) + look_ahead).saturating_sub(held);
    StatusSnapshot {
        local_isolation: isolation.as_str().to_owned(),
        permits: vec![Permits { backend: KIND.to_string(), capacity, executors, held, free }],
        held: views.iter().filter_map(|view| held_task(view, at)).collect(),
        executors: views.iter().filter_map(|view| executor(view, instance)).collect(),
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

fn executor(view: &View, instance: &str) -> Option<ExecutorLine> {
    let state = match view.life.executor() {
        Executor::Absent => return None,
        Executor::Present => "running",
        Executor::Ended => "ended",
    };
    let claimed = !matches!(view.life.phase(), Phase::Waiting | Phase::Creating | Phase::Bound | Phase::Offered);
    let name =
        instance.parse().map(|instance| executor_name(view.id, &instance, view.life.epoch())).unwrap_or_default();
    Some(ExecutorLine {
        name,
        backend: KIND.to_string(),
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
