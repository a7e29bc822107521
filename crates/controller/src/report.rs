//! Writes what the system itself has to say to Gitea: failure certificates, and closing rows of logs nobody closes
//! (NEW-26, NEW-166). Each is repeated until Gitea's answer carries a result, then never again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::AssignmentId;
use domain::lifecycle::{Event, Row, certificate};
use runner_proto::runner::v1 as proto;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::backoff;
use crate::board::{Board, View};
use crate::correspondence::Correspondence;
use crate::gitea::{GiteaError, Trouble};
use crate::ops::Ops;
use crate::pulse::sign_of_life;
use crate::telemetry::events::{Subject, assignment_processing_error};
use crate::wire::{outcome_of, proto_steps, proto_time, result_of};

/// A pass that takes longer than this is stuck (NEW-131).
const STUCK: Duration = Duration::from_secs(60);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What the room needs.
pub struct Report {
    /// Lives.
    pub board: Arc<Board>,
    /// Liveness.
    pub ops: Ops,
    /// Reports under way.
    pub tracker: TaskTracker,
    /// Whose report is under way.
    pub under_way: Mutex<BTreeSet<AssignmentId>>,
}

impl Report {
    /// Reports until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut changes = self.board.changes();
        let turn = self.ops.liveness.watch("report", STUCK);
        while !stop.is_cancelled() {
            turn.turned();
            for view in self.board.views_that(|wants| wants.certificate.is_some() || wants.closing_row) {
                if self.board.may_decide() && self.under_way().insert(view.id) {
                    let (this, stop) = (Arc::clone(&self), stop.clone());
                    self.tracker.spawn(async move {
                        this.until_accepted(view.id, &stop).await;
                        this.under_way().remove(&view.id);
                    });
                }
            }
            tokio::select! {
                () = changes.next() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, BTreeSet<AssignmentId>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The `report` retry loop.
    async fn until_accepted(&self, id: AssignmentId, stop: &CancellationToken) {
        let mut pauses = backoff(FIRST_RETRY, LONGEST_RETRY);
        while let Err(error) = self.once(id).await {
            assignment_processing_error(&Subject::waiting(None, id), &format!("report: {error}"));
            tokio::select! {
                () = tokio::time::sleep(pauses.pause()) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn once(&self, id: AssignmentId) -> Result<(), GiteaError> {
        let Some(View { lane, .. }) = self.board.view(id) else { return Ok(()) };
        // The turn first: a call of the runner that is still on its way may yet bring the true end.
        let turn = lane.turn().await;
        let Some(view) = self.board.view(id).filter(|_| self.board.may_decide()) else { return Ok(()) };
        let gitea = Correspondence::new(&self.board, id, &turn);
        let sent = if view.wants.certificate.is_some() {
            self.certify(id, &gitea).await
        } else if view.wants.closing_row {
            let content = "The task has ended; nothing more is written to this log.".to_owned();
            gitea.close(&[Row { time: self.board.now(), content }]).await
        } else {
            Ok(())
        };
        match sent {
            Err(error) if error.trouble == Trouble::TaskUnknown => {
                self.board.apply(id, Event::TaskUnknown);
                Ok(())
            }
            other => other,
        }
    }

    async fn certify(&self, id: AssignmentId, gitea: &Correspondence<'_>) -> Result<(), GiteaError> {
        if let Some(view) = self.board.view(id).filter(|view| view.life.is_asked_before_its_end()) {
            gitea.state(sign_of_life(&view.life)).await?;
            if self.board.view(id).is_none_or(|view| view.wants.certificate.is_none()) {
                return Ok(());
            }
        }
        // Gitea has no result yet, so it may be asked: without rows it tells how many there are.
        gitea.rows(0, &[]).await?;
        let Some(view) = self.board.view(id) else { return Ok(()) };
        let Some(ending) = view.wants.certificate else { return Ok(()) };
        let now = self.board.now();
        let certificate = certificate(&view.life, &ending, now);
        // The calls before may have taken long. An end of ours over a job that another process began would be a false one.
        if self.board.may_decide() && !view.life.log().is_closed() {
            gitea.close(&certificate.rows).await?;
        }
        if !self.board.may_decide() {
            return Ok(());
        }
        let state = proto::TaskState {
            result: result_of(Some(certificate.outcome)),
            started_at: Some(proto_time(view.life.fetched_at())).into(),
            stopped_at: Some(proto_time(now)).into(),
            steps: proto_steps(&certificate.steps),
            ..Default::default()
        };
        let request = proto::UpdateTaskRequest { state: Some(state).into(), ..Default::default() };
        let Some(answer) = gitea.state(request).await? else { return Ok(()) };
        if outcome_of(&answer.state).is_none() {
            return Err(GiteaError::malformed("UpdateTask", "the task goes on after its end was sent"));
        }
        Ok(())
    }
}
