//! The last word before an identity is given to an executor: whose it is (NEW-122), and a line that says so (NEW-127).

use domain::assignment::{Assignment, Evidence, evidence_of};
use domain::id::{Epoch, TaskId, executor_name};
use domain::identity::TrustClass;
use domain::reason::{Reason, Refusal};
use jiff::Timestamp;

use crate::pins::Pins;
use crate::queue::QueueError;
use crate::telemetry::events::{Audit, AuditEvent, identity_audit};

/// Grants identities to executors.
pub struct Grants {
    pins: Pins,
}

/// Why an executor does not get its identity.
pub enum NotGranted {
    /// Never; Gitea is told.
    Refused(Refusal),
    /// Not now: what was pinned is not known.
    Later(QueueError),
}

impl Grants {
    /// By these pins.
    #[must_use]
    pub fn new(pins: Pins) -> Self {
        Self { pins }
    }

    /// Grants the identity of this task to the executor of this epoch.
    ///
    /// # Errors
    ///
    /// See [`NotGranted`].
    pub async fn grant(
        &self,
        assignment: &Assignment,
        task: &[u8],
        epoch: Epoch,
        now: Timestamp,
    ) -> Result<(), NotGranted> {
        let evidence = assignment.evidence(task);
        let executor = executor_name(assignment.id, &assignment.instance, epoch);
        let audit = Audit {
            spiffe_id: Some(&assignment.spiffe_id),
            class: Some(class(assignment.class)),
            executor: Some(&executor),
            until: Some(assignment.deadline),
            ..audit(AuditEvent::Granted, assignment.id.task(), &evidence)
        };
        match self.pins.check(assignment, now).await {
            Ok(Ok(())) => {
                identity_audit(&audit);
                Ok(())
            }
            Ok(Err(refusal)) => {
                identity_audit(&Audit { event: AuditEvent::PinChanged, until: None, rule: "pin", ..audit });
                Err(NotGranted::Refused(refusal))
            }
            Err(error) => Err(NotGranted::Later(error)),
        }
    }
}

/// A task that gets no identity at all, where the identity is the reason.
pub fn refused(task_id: TaskId, task: &[u8], refusal: &Refusal) {
    let of_identity = [Reason::PolicyRefused, Reason::InvalidJobKey, Reason::InvalidRepository];
    if of_identity.contains(&refusal.reason) {
        let evidence = Evidence { rule: refusal.reason.as_str(), ..evidence_of(task) };
        identity_audit(&audit(AuditEvent::Refused, task_id, &evidence));
    }
}

fn audit(event: AuditEvent, task: TaskId, evidence: &Evidence) -> Audit<'_> {
    Audit {
        event,
        spiffe_id: None,
        task,
        repository: evidence.repository.as_deref(),
        repository_id: evidence.repository_id,
        git_ref: evidence.git_ref.as_deref(),
        event_name: evidence.event.as_deref(),
        class: None,
        executor: None,
        until: None,
        rule: evidence.rule,
    }
}

fn class(class: TrustClass) -> &'static str {
    match class {
        TrustClass::Trusted => "trusted",
        TrustClass::Untrusted => "untrusted",
    }
}
