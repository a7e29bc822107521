//! Closes and opens the envelopes of one instance: key ring, subject and nonce in one place.

use std::sync::Arc;

use domain::assignment::Assignment;
use domain::envelope::{self, OpenError, Opened, SealError};
use domain::id::{Backend, InstanceId};

use crate::rotation::Ring;

/// The envelope room's keys and names.
pub struct Sealing {
    ring: Arc<Ring>,
    subject_base: String,
    instance: InstanceId,
}

impl Sealing {
    /// Seals for `instance` under `<subject_base>.<instance>.<backend>`.
    #[must_use]
    pub fn new(ring: Arc<Ring>, subject_base: &str, instance: InstanceId) -> Self {
        Self { ring, subject_base: subject_base.trim_end_matches('.').to_owned(), instance }
    }

    /// The sealed envelope of a task.
    ///
    /// # Errors
    ///
    /// When there is no randomness for the nonce, or the task cannot be sealed.
    pub fn seal(&self, assignment: &Assignment, task: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; 12];
        getrandom::fill(&mut nonce).map_err(|_| SealError::NoRandomness)?;
        envelope::seal(&self.ring.now(), &self.subject(assignment.backend), assignment, task, nonce)
    }

    /// The task of an envelope, re-derived and compared (ENV-6).
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(&self, backend: Backend, body: &[u8]) -> Result<Opened, OpenError> {
        envelope::open(&self.ring.now(), &self.subject(backend), body, &self.instance)
    }

    fn subject(&self, backend: Backend) -> String {
        format!("{}.{}.{backend}", self.subject_base, self.instance)
    }
}
