//! One lane per task: UpdateTask and UpdateLog of one task go to Gitea strictly one after another, whoever sends them.
//! Overlapping UpdateLog calls lose acknowledged rows on Gitea 1.26 (contract §9), and a retry that races its
//! predecessor reorders states (NEW-32, F162).

use std::sync::Arc;

use domain::id::TaskId;
use runner_proto::runner::v1 as proto;
use tokio::sync::{Mutex, MutexGuard, TryLockError};

use super::{Gitea, GiteaError};

/// The lane of one task.
pub struct Lane {
    task: TaskId,
    gitea: Arc<Gitea>,
    turn: Mutex<()>,
}

/// The right to send for one task until it is dropped.
pub struct Turn<'a> {
    lane: &'a Lane,
    _held: MutexGuard<'a, ()>,
}

impl Lane {
    /// The lane of `task`; there must be only one per task.
    #[must_use]
    pub fn new(gitea: Arc<Gitea>, task: TaskId) -> Self {
        Self { task, gitea, turn: Mutex::new(()) }
    }

    /// Waits for the turn; first come, first served.
    pub async fn turn(&self) -> Turn<'_> {
        Turn { lane: self, _held: self.turn.lock().await }
    }

    /// The turn if nobody has it: a heartbeat never queues behind a call that is a sign of life itself.
    ///
    /// # Errors
    ///
    /// When somebody has it.
    pub fn turn_if_free(&self) -> Result<Turn<'_>, TryLockError> {
        Ok(Turn { lane: self, _held: self.turn.try_lock()? })
    }
}

impl Turn<'_> {
    /// See [`Gitea::waits_for_cancelled`].
    #[must_use]
    pub fn waits_for_cancelled(&self) -> bool {
        self.lane.gitea.waits_for_cancelled()
    }

    /// Sends an UpdateTask; the task id of its state is this lane's.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn update_task(
        &self,
        mut request: proto::UpdateTaskRequest,
    ) -> Result<proto::UpdateTaskResponse, GiteaError> {
        request.state.get_or_insert_default().id = self.lane.task.get();
        self.lane.gitea.update_task(request).await
    }

    /// Sends rows; returns how many Gitea holds now.
    ///
    /// # Errors
    ///
    /// See [`GiteaError`].
    pub async fn update_log(&self, mut request: proto::UpdateLogRequest) -> Result<u64, GiteaError> {
        request.task_id = self.lane.task.get();
        self.lane.gitea.update_log(request).await
    }
}
