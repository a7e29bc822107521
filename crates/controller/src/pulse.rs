//! Keeps every held task alive in Gitea, hears cancels, and lets time pass for every life (NEW-21, NEW-33, NEW-30).
//!
//! A heartbeat that fails is sent again at the next beat; Gitea's zombie limit is minutes away. One that is carried out
//! without an answer has done its duty.

use std::sync::Arc;
use std::time::Duration;

use domain::lifecycle::{Action, Event, Row};
use runner_proto::runner::v1 as proto;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::board::{Board, View};
use crate::gitea::{Trouble, Turn};
use crate::ops::Ops;
use crate::telemetry::events::{Subject, assignment_processing_error};
use crate::wire::{outcome_of, proto_row, proto_steps};

const BEAT: Duration = Duration::from_secs(1);
/// A beat that takes longer than this is stuck (NEW-131).
const STUCK: Duration = Duration::from_secs(60);

/// What the room needs.
pub struct Pulse {
    /// Lives.
    pub board: Arc<Board>,
    /// Liveness.
    pub ops: Ops,
    /// Heartbeats under way.
    pub tracker: TaskTracker,
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
            for view in self.board.views() {
                let actions = self.board.apply(view.id, Event::Tick).unwrap_or_default();
                if actions.iter().any(|action| matches!(action, Action::Heartbeat | Action::Tell(_))) {
                    let this = Arc::clone(&self);
                    self.tracker.spawn(async move { this.speak(view, actions).await });
                }
            }
        }
    }

    async fn speak(&self, view: View, actions: Vec<Action>) {
        // Who has the turn sends a sign of life itself.
        let Ok(turn) = view.lane.turn_if_free() else { return };
        // Whoever had the turn before may have heard of its end: then nothing more is sent (NEW-163).
        if self.board.view(view.id).is_none_or(|now| now.life.is_over()) {
            return;
        }
        for action in actions {
            match action {
                Action::Tell(row) => self.tell(&view, &turn, &row).await,
                Action::Heartbeat => self.heartbeat(&view, &turn).await,
                _ => {}
            }
        }
    }

    /// A row that is lost is only missing: the next change is told again.
    async fn tell(&self, view: &View, turn: &Turn<'_>, row: &Row) {
        let index = i64::try_from(view.life.log().rows_stored()).unwrap_or(i64::MAX);
        let request = proto::UpdateLogRequest { index, rows: vec![proto_row(row)], ..Default::default() };
        match turn.update_log(request).await {
            Ok(ack) => drop(self.board.apply(view.id, Event::LogStored { ack })),
            Err(error) => {
                assignment_processing_error(&Subject::waiting(None, view.id), &format!("waiting room: {error}"))
            }
        }
    }

    async fn heartbeat(&self, view: &View, turn: &Turn<'_>) {
        let Some(View { life, .. }) = self.board.view(view.id) else { return };
        let steps = if life.steps().any_started() { proto_steps(life.steps()) } else { vec![] };
        let state = proto::TaskState { steps, ..Default::default() };
        match turn.update_task(proto::UpdateTaskRequest { state: Some(state).into(), ..Default::default() }).await {
            Ok(answer) => {
                let outcome = outcome_of(&answer.state);
                self.board.apply(view.id, Event::Answered { outcome });
            }
            Err(error) if error.trouble == Trouble::TaskUnknown => {
                self.board.apply(view.id, Event::TaskUnknown);
            }
            Err(error) => assignment_processing_error(&Subject::waiting(None, view.id), &format!("heartbeat: {error}")),
        }
    }
}
