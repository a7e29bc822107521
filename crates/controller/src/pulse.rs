//! Keeps every held task alive in Gitea, hears cancels, and lets time pass for every life (NEW-21, NEW-33, NEW-30).
//!
//! A heartbeat that fails is sent again at the next beat; Gitea's zombie limit is minutes away. One that is carried out
//! without an answer has done its duty.

use std::sync::Arc;
use std::time::Duration;

use domain::lifecycle::{Action, Event};
use runner_proto::runner::v1 as proto;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::board::{Board, View};
use crate::gitea::Trouble;
use crate::telemetry::events::{Subject, assignment_processing_error};
use crate::wire::{outcome_of, proto_steps};

const BEAT: Duration = Duration::from_secs(1);

/// What the room needs.
pub struct Pulse {
    /// Lives.
    pub board: Arc<Board>,
    /// Heartbeats under way.
    pub tracker: TaskTracker,
}

impl Pulse {
    /// Beats until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut beat = tokio::time::interval(BEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = beat.tick() => {}
                () = stop.cancelled() => return,
            }
            for view in self.board.views() {
                let actions = self.board.apply(view.id, Event::Tick).unwrap_or_default();
                if actions.contains(&Action::Heartbeat) {
                    let this = Arc::clone(&self);
                    self.tracker.spawn(async move { this.heartbeat(view).await });
                }
            }
        }
    }

    async fn heartbeat(&self, view: View) {
        // Who has the turn sends a sign of life itself.
        let Ok(turn) = view.lane.turn_if_free() else { return };
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
