//! One launch: still wanted, granted, offered, created; whatever goes wrong is told to its life.

use std::sync::Arc;
use std::time::Duration;

use domain::assignment::Assignment;
use domain::id::{AssignmentId, Epoch};
use domain::lifecycle::{Event, Life, Phase};
use domain::metadata::ExecutorRecord;
use runner_proto::runner::v1 as proto;
use zeroize::Zeroizing;

use super::Launch;
use crate::backend::{BackendError, Ensured, Launch as Order};
use crate::backoff::backoff;
use crate::correspondence::Correspondence;
use crate::gitea::GiteaError;
use crate::grants::NotGranted;
use crate::queue::{Key, QueueError};
use crate::wire::outcome_of;

/// A create that takes longer counts as failed with unknown outcome.
const CREATE_DEADLINE: Duration = Duration::from_secs(90);
pub(super) const FIRST_RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

impl Launch {
    pub(super) async fn launch(&self, assignment: Assignment, task: Zeroizing<Vec<u8>>, epoch: Epoch, attempts: u32) {
        let id = assignment.id;
        let after = |pause: Duration| self.board.now().saturating_add(pause).unwrap_or_else(|_| self.board.now());
        let failed = |permanent, cause: String, remedy: String, pause: Duration| {
            let retry_at = after(pause);
            self.board.apply(id, Event::LaunchFailed { epoch, permanent, cause, remedy, retry_at });
        };
        let pause = backoff(FIRST_RETRY, LONGEST_RETRY).after(attempts).pause();
        // No sooner than the backend asked for.
        let at_least = |asked: Option<Duration>| pause.max(asked.unwrap_or_default());
        match self.still_wanted(id, epoch).await {
            Ok(true) => {}
            Ok(false) => return failed(None, "Gitea no longer wants it".to_owned(), String::new(), pause),
            Err(error) => return failed(None, error.to_string(), String::new(), pause),
        }
        match self.begins_here(&assignment).await {
            Ok(Ok(())) => {}
            Ok(Err(host)) => {
                let cause =
                    format!("its start began on another host ({host}), whose executors cannot be seen from here");
                let remedy = "Start the runner on that host again, or run the job again.".to_owned();
                return failed(None, cause, remedy, pause);
            }
            Err(error) => return failed(None, error.to_string(), String::new(), pause),
        }
        match self.grants.grant(&assignment, &task, epoch, self.board.now()).await {
            Ok(()) => {}
            Err(NotGranted::Refused(refusal)) => {
                return failed(Some(refusal.reason), refusal.cause, refusal.remedy, pause);
            }
            Err(NotGranted::Later(error)) => return failed(None, error.to_string(), String::new(), pause),
        }
        match assignment.served_task(&task) {
            Ok(served) => self.board.offer(id, epoch, Arc::new(served)),
            Err(refusal) => return failed(Some(refusal.reason), refusal.cause, refusal.remedy, pause),
        }
        drop(task);
        let _making = self.board.makes(id, epoch);
        match self.create(&assignment, epoch).await {
            Ok(()) => {}
            Err(BackendError::Permanent { reason, cause, remedy }) => failed(Some(reason), cause, remedy, pause),
            // Another life of this number is in the way; `reap` removes it, and the next epoch has another name.
            Err(error @ BackendError::Conflict { .. }) => failed(None, error.to_string(), String::new(), pause),
            Err(BackendError::Transient { cause, retry_after }) => {
                failed(None, cause, String::new(), at_least(retry_after));
                self.look_for(id, epoch).await;
            }
            Err(BackendError::QuotaUsedUp { cause, retry_after }) => {
                let retry_at = after(at_least(retry_after));
                self.board.apply(id, Event::QuotaUsedUp { epoch, cause, retry_at });
            }
        }
    }

    /// With one host only nobody else could have begun it.
    async fn begins_here(&self, assignment: &Assignment) -> Result<Result<(), String>, QueueError> {
        let Some(host) = &self.host else { return Ok(Ok(())) };
        let message = Key { id: assignment.id, digest: assignment.digest.clone() };
        host.begins(&message, self.board.now()).await
    }

    /// Asks Gitea once more before anything is created (NEW-23).
    async fn still_wanted(&self, id: AssignmentId, epoch: Epoch) -> Result<bool, GiteaError> {
        let Some(lane) = self.board.lane(id) else { return Ok(false) };
        let turn = lane.turn().await;
        // Whoever had the turn before may have heard of its end: then nothing more is asked (NEW-163).
        let creating = |life: &Life| life.epoch() == epoch && *life.phase() == Phase::Creating;
        if !self.board.read(id, creating).unwrap_or_default() {
            return Ok(false);
        }
        let answer = Correspondence::new(&self.board, id, &turn).state(proto::UpdateTaskRequest::default()).await?;
        Ok(answer.is_some_and(|answer| outcome_of(&answer.state).is_none()))
    }

    async fn create(&self, assignment: &Assignment, epoch: Epoch) -> Result<(), BackendError> {
        let id = assignment.id;
        loop {
            let Some(view) = self.board.view(id) else { return Ok(()) };
            if view.life.epoch() != epoch || !matches!(view.life.phase(), Phase::Creating | Phase::Bound) {
                return Ok(());
            }
            // Gitea was asked before this, which may have taken long.
            if !self.board.may_decide() {
                tokio::time::sleep(FIRST_RETRY).await;
                continue;
            }
            let order = self.order(assignment, epoch, view.life.steps_text());
            let ensured =
                tokio::time::timeout(CREATE_DEADLINE, self.backend.ensure(order)).await.unwrap_or_else(|_| {
                    let cause = format!("the backend gave no answer within {} s", CREATE_DEADLINE.as_secs());
                    Err(BackendError::Transient { cause, retry_after: None })
                })?;
            match ensured {
                Ensured::Ready => {
                    self.board.apply(id, Event::ExecutorReady { epoch });
                    return Ok(());
                }
                Ensured::NotYet => {
                    self.board.apply(id, Event::ExecutorPending { epoch });
                    tokio::time::sleep(FIRST_RETRY).await;
                }
            }
        }
    }

    fn order(&self, assignment: &Assignment, epoch: Epoch, steps: String) -> Order {
        let record = ExecutorRecord {
            id: assignment.id,
            instance: self.instance.clone(),
            backend: assignment.backend,
            epoch,
            digest: assignment.digest.clone(),
            repository: assignment.repository.clone(),
            job_key: assignment.job_key.clone(),
            spiffe_id: assignment.spiffe_id.clone(),
            fetched_at: assignment.fetched_at,
            deadline: assignment.deadline,
            claim: None,
            interrupted_at: None,
            steps: Some(steps),
            terminal: false,
        };
        let capability = self.ring.now().issue(&self.instance, assignment.id, epoch, assignment.deadline);
        Order { record, labels: assignment.runs_on.clone(), capability }
    }
}
