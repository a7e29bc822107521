//! Keeps every held task alive in Gitea, hears cancels, and lets time pass for every life (NEW-21, NEW-33, NEW-30). While
//! nobody can be asked who leads, only the first: no life reaches a deadline, and signs of life are few (NEW-47).
//!
//! A heartbeat that fails is sent again at the next beat; Gitea's zombie limit is minutes away. One that is carried out
//! without an answer has done its duty.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::AssignmentId;
use domain::lifecycle::{Action, Event, Life, Row};
use runner_proto::runner::v1 as proto;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::board::{Board, View};
use crate::correspondence::Correspondence;
use crate::gitea::GiteaError;
use crate::ops::Ops;
use crate::telemetry::events::{Subject, assignment_processing_error};
use crate::wire::proto_steps;

const BEAT: Duration = Duration::from_secs(1);
/// Calls under way: each has a connection of its own, and a start finds thousands of tasks at once (NEW-11). Enough that a
/// Gitea of which half the calls hang still hears of thousands of tasks before it takes one for dead.
const AT_ONCE: usize = 256;
/// A beat that takes longer than this is stuck (NEW-131).
const STUCK: Duration = Duration::from_secs(60);

/// What the room needs.
pub struct Pulse {
    /// Lives.
    pub board: Arc<Board>,
    /// Liveness.
    pub ops: Ops,
    /// Slots there are.
    pub capacity: usize,
    /// Heartbeats under way.
    pub tracker: TaskTracker,
    /// Whose turn it is to speak, and who waits for it.
    pub line: Line,
}

/// Who may speak: so many at a time, and nobody stands in it twice.
pub struct Line {
    places: Semaphore,
    waiting: Mutex<BTreeSet<AssignmentId>>,
}

impl Default for Line {
    fn default() -> Self {
        Self { places: Semaphore::new(AT_ONCE), waiting: Mutex::default() }
    }
}

impl Line {
    /// Joins it; false: it stands in it.
    fn join(&self, id: AssignmentId) -> bool {
        self.waiting().insert(id)
    }

    /// Waits for the turn of who has joined.
    async fn turn(&self, id: AssignmentId) -> Option<SemaphorePermit<'_>> {
        let place = self.places.acquire().await.ok();
        self.waiting().remove(&id);
        place
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<AssignmentId>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pulse {
    /// Beats until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut beat = tokio::time::interval(BEAT);
        let turn = self.ops.liveness.watch("pulse", STUCK);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beat.tick() => {}
                () = stop.cancelled() => return,
            }
            turn.turned();
            // Nobody is judged by a time in which this process may not lead; a sign of life judges nobody.
            let time = if self.board.may_decide() { Event::Tick } else { Event::Rest };
            if time == Event::Tick {
                self.tell_places();
            }
            for view in self.board.views() {
                let actions = self.board.apply(view.id, time.clone()).unwrap_or_default();
                let speaks = actions.iter().any(|action| matches!(action, Action::Heartbeat | Action::Tell(_)));
                if speaks && self.line.join(view.id) {
                    let this = Arc::clone(&self);
                    self.tracker.spawn(async move {
                        let _place = this.line.turn(view.id).await;
                        this.speak(view, actions).await;
                    });
                }
            }
        }
    }

    /// Who waits behind full slots hears its place in line (NEW-28).
    fn tell_places(&self) {
        if self.board.occupancy().executors < self.capacity {
            return;
        }
        let mut line = self.board.views_that(|wants| wants.launch);
        line.sort_by_key(|view| (view.life.fetched_at(), view.id));
        for (at, view) in line.into_iter().enumerate() {
            self.board.apply(view.id, Event::InLine { place: at + 1, slots: self.capacity });
        }
    }

    async fn speak(&self, view: View, actions: Vec<Action>) {
        // Who has the turn sends a sign of life itself.
        let Ok(turn) = view.lane.turn_if_free() else { return };
        // Whoever had the turn before may have heard of its end: then nothing more is sent (NEW-163).
        let Some(View { life, .. }) = self.board.view(view.id).filter(|now| speaks(&now.life)) else { return };
        let gitea = Correspondence::new(&self.board, view.id, &turn);
        for action in actions {
            let (what, said) = match action {
                // A row that is lost is only missing: the next change is told again.
                // A row of ours behind the claim would be in the place of the runner's.
                Action::Tell(row) if life.is_before_its_claim() => ("waiting room", tell(&gitea, row).await),
                Action::Heartbeat => ("heartbeat", gitea.state(sign_of_life(&life)).await.map(drop)),
                _ => continue,
            };
            if let Err(error) = said {
                assignment_processing_error(&Subject::waiting(None, view.id), &format!("{what}: {error}"));
            }
        }
    }
}

/// Nothing of ours keeps a task alive that has ended, or that is to end (NEW-163, NEW-167).
fn speaks(life: &Life) -> bool {
    !life.is_over() && !life.is_cancelling()
}

async fn tell(gitea: &Correspondence<'_>, row: Row) -> Result<(), GiteaError> {
    let index = gitea.next_row().await?;
    gitea.rows(index, &[row]).await.map(drop)
}

/// Without steps before the first one started, with all of them afterwards: what is left out runs again for Gitea.
pub(crate) fn sign_of_life(life: &Life) -> proto::UpdateTaskRequest {
    let steps = if life.steps().any_started() { proto_steps(life.steps()) } else { vec![] };
    let state = proto::TaskState { steps, ..Default::default() };
    proto::UpdateTaskRequest { state: Some(state).into(), ..Default::default() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use domain::id::TaskId;
    use futures::FutureExt as _;

    use super::*;

    /// NEW-11, NEW-21: thousands that are to speak at once do so a few at a time, each of them once; who has spoken may join
    /// again.
    #[test]
    fn a_few_speak_at_a_time() {
        let id = |number: usize| AssignmentId::of(TaskId::try_from(i64::try_from(number).unwrap()).unwrap());
        let line = Line::default();
        let all: Vec<_> = (1..=3 * AT_ONCE).map(id).collect();
        assert!(all.iter().all(|id| line.join(*id)));
        assert!(!line.join(id(1)), "it stands in it already");
        let mut turns: Vec<_> = all.iter().filter_map(|id| line.turn(*id).now_or_never().flatten()).collect();
        assert_eq!(turns.len(), AT_ONCE);
        assert!(line.join(id(1)), "it speaks now, and may have more to say later");
        turns.pop();
        assert!(line.turn(id(3 * AT_ONCE)).now_or_never().is_some(), "the place of one that has spoken");
    }
}
