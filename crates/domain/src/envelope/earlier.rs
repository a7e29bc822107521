//! Version 1, the earlier controller's envelope: read while its subjects are drained, never written (ENV-4, NEW-41).
//!
//! It is not sealed, so it proves nothing: what counts is derived from its task, and an envelope that says something
//! else about that task is refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::OpenError;
use crate::assignment::{Assignment, Rules};
use crate::id::{AssignmentId, Backend};
use crate::identity::{JobKey, Repository, SpiffeId};
use jiff::Timestamp;

/// An envelope of version 1 whose id is its task's. No `Debug`: it holds the task.
pub struct Earlier {
    /// The assignment's name.
    pub id: AssignmentId,
    /// Where it was to run.
    pub backend: Backend,
    /// Whose it is.
    pub repository: Repository,
    /// The job.
    pub job_key: JobKey,
    /// Who it was to be.
    pub spiffe_id: SpiffeId,
    /// The task's very bytes.
    pub task: Zeroizing<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer {
    version: u32,
    id: AssignmentId,
    backend: Backend,
    task: Zeroizing<String>,
    identity: Identity,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    #[serde(rename = "Repository")]
    repository: Repository,
    #[serde(rename = "Task")]
    job_key: JobKey,
    #[serde(rename = "SPIFFEID")]
    spiffe_id: SpiffeId,
}

/// Reads an envelope of version 1. Only for the migration (`ENVELOPE_ACCEPT_V1`).
///
/// # Errors
///
/// [`OpenError::Malformed`], [`OpenError::UnknownVersion`], or [`OpenError::Contradiction`] when the task has another
/// number.
pub fn read_v1(envelope: &[u8]) -> Result<Earlier, OpenError> {
    let outer: Outer = serde_json::from_slice(envelope).map_err(|_| OpenError::Malformed)?;
    if outer.version != 1 {
        return Err(OpenError::UnknownVersion(outer.version));
    }
    let task = Zeroizing::new(STANDARD.decode(outer.task.as_bytes()).map_err(|_| OpenError::Malformed)?);
    if crate::assignment::task_id(&task) != Some(outer.id.task()) {
        return Err(OpenError::Contradiction);
    }
    let Identity { repository, job_key, spiffe_id } = outer.identity;
    Ok(Earlier { id: outer.id, backend: outer.backend, repository, job_key, spiffe_id, task })
}

impl Earlier {
    /// What today's rules make of its task. The class of its identity may differ: the earlier controller knew none.
    ///
    /// # Errors
    ///
    /// [`OpenError::Contradiction`] when the task does not say the repository, job and backend of the envelope, or can
    /// never run here.
    pub fn assignment(&self, rules: &Rules, fetched_at: Timestamp) -> Result<Assignment, OpenError> {
        let derived = Assignment::from_task(&self.task, rules, fetched_at).map_err(|_| OpenError::Contradiction)?;
        let same =
            derived.repository == self.repository && derived.job_key == self.job_key && derived.backend == self.backend;
        if same { Ok(derived) } else { Err(OpenError::Contradiction) }
    }
}
