//! Closes and opens the envelopes of one instance: key ring, subject and nonce in one place.

use std::sync::Arc;

use domain::assignment::Assignment;
use domain::capability::KeyRing;
use domain::envelope::{self, OpenError, Opened, SealError};
use domain::id::{AssignmentId, Backend, InstanceId};

/// Why a message does not give its task. What was wrong in words of ours alone: whoever wrote the message may have
/// chosen every other word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its message does not open: {class}")]
pub struct Unopenable {
    /// One word of a closed list.
    pub class: &'static str,
    /// The number it lies under is authentic, so Gitea may be told of it.
    pub proven: bool,
}

impl Unopenable {
    fn of(error: &OpenError, claimed: impl FnOnce() -> bool) -> Self {
        let class = match error {
            OpenError::Malformed => "malformed",
            OpenError::UnknownVersion(_) => "unknown_version",
            OpenError::UnknownKey(_) => "unknown_key",
            OpenError::ForeignInstance(_) => "foreign_instance",
            OpenError::NotAuthentic => "not_authentic",
            // The cipher has proven the outside, and with it the number; only what lies inside contradicts it.
            OpenError::Contradiction => return Self { class: "contradiction", proven: claimed() },
        };
        Self { class, proven: false }
    }
}

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

    /// The keys as they are now.
    #[must_use]
    pub fn keys(&self) -> Arc<KeyRing> {
        self.ring.now()
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

    /// The task of the envelope that lies under `id`, re-derived and compared (ENV-6).
    ///
    /// # Errors
    ///
    /// When it does not open, or holds another task.
    pub fn open(&self, backend: Backend, id: AssignmentId, body: &[u8]) -> Result<Opened, Unopenable> {
        match envelope::open(&self.ring.now(), &self.subject(backend), body, &self.instance) {
            Ok(opened) if opened.assignment.id == id => Ok(opened),
            Ok(_) => Err(Unopenable { class: "another_task", proven: false }),
            Err(error) => Err(Unopenable::of(&error, || envelope::claims(body) == Some(id))),
        }
    }

    fn subject(&self, backend: Backend) -> String {
        format!("{}.{}.{backend}", self.subject_base, self.instance)
    }
}
