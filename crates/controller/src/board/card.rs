//! What never changes about an assignment.

use domain::assignment::Assignment;
use domain::id::{AssignmentId, Backend, PayloadDigest};
use domain::identity::{JobKey, Repository, SpiffeId};
use domain::metadata::ExecutorRecord;
use jiff::Timestamp;

use crate::queue::Key;

/// The facts of an assignment.
#[derive(Clone)]
pub struct Card {
    /// Its name.
    pub id: AssignmentId,
    /// Where its executor is made.
    pub backend: Backend,
    /// Whose job it is.
    pub repository: Repository,
    /// The job's key in its workflow.
    pub job_key: JobKey,
    /// The identity of its executor.
    pub spiffe_id: SpiffeId,
    /// Tells it from an older life of the same task id.
    pub digest: PayloadDigest,
    /// When Gitea handed it out.
    pub fetched_at: Timestamp,
    /// The run deadline.
    pub deadline: Timestamp,
}

impl Card {
    /// Its message in the queue.
    pub(super) fn message(&self) -> Key {
        Key { id: self.id, digest: self.digest.clone() }
    }

    /// The card of a task that was fetched or found in the queue.
    #[must_use]
    pub fn of_assignment(assignment: &Assignment) -> Self {
        Self {
            id: assignment.id,
            backend: assignment.backend,
            repository: assignment.repository.clone(),
            job_key: assignment.job_key.clone(),
            spiffe_id: assignment.spiffe_id.clone(),
            digest: assignment.digest.clone(),
            fetched_at: assignment.fetched_at,
            deadline: assignment.deadline,
        }
    }

    /// The card of an executor that was found.
    #[must_use]
    pub fn of_executor(record: &ExecutorRecord) -> Self {
        Self {
            id: record.id,
            backend: record.backend,
            repository: record.repository.clone(),
            job_key: record.job_key.clone(),
            spiffe_id: record.spiffe_id.clone(),
            digest: record.digest.clone(),
            fetched_at: record.fetched_at,
            deadline: record.deadline,
        }
    }
}
