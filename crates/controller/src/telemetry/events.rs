//! The events with a fixed vocabulary (requirements §3): one function per family, one variant per word.
//!
//! Durations: `retry_delay` is an integer of nanoseconds, as in the earlier controller; every other one is
//! `…_seconds`. A failure is logged once, at the place that handles it.

use std::fmt;
use std::time::Duration;

use domain::id::{AssignmentId, Backend, Epoch, TaskId};
use domain::identity::SpiffeId;
use domain::reason::Reason;
use tracing::{error, info, warn};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $(#[doc = concat!("`", $word, "`")] $variant),* }

        impl $name {
            /// Every word, in the order of the specification.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word in the `event` field.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
    };
}

words! {
    /// What happens to an assignment.
    AssignmentEvent {
        Received = "received", CapacityWait = "capacity_wait", CapacityAcquired = "capacity_acquired",
        BackendRetry = "backend_retry", BackendReady = "backend_ready", ClaimTimeout = "claim_timeout",
        RunnerClaimed = "runner_claimed", Acked = "acked", BackendPending = "backend_pending",
        Fetched = "fetched", Refused = "refused", Dispatched = "dispatched", Offered = "offered",
        Confirmed = "confirmed", Cancelled = "cancelled", Interrupted = "interrupted",
        TerminalAccepted = "terminal_accepted", TerminalMarked = "terminal_marked", Reported = "reported",
        GaveUp = "gave_up",
    }
}

words! {
    /// What happens to an executor.
    ExecutorEvent {
        Absent = "executor_absent", Created = "executor_created", Found = "executor_found",
        IdentityTargetPending = "identity_target_pending", IdentityBound = "identity_bound",
        IdentityRejected = "identity_rejected", Lost = "executor_lost", Relaunched = "executor_relaunched",
        Finished = "executor_finished", IdentityReleased = "identity_released", Deleted = "executor_deleted",
        Quarantined = "executor_quarantined", Adopted = "executor_adopted",
    }
}

words! {
    /// What happens to leadership.
    LeaderEvent { Acquired = "acquired", Lost = "lost", Released = "released", Standby = "standby" }
}

words! {
    /// What happens to the process.
    ControllerEvent { Starting = "starting", Ready = "ready", Draining = "draining", Stopped = "stopped" }
}

words! {
    /// What happens to messages that the earlier controller left (NEW-41).
    MigrationEvent {
        Begun = "begun", TakenIn = "taken_in", Removed = "removed", Left = "left", Drained = "drained",
    }
}

words! {
    /// What an identity decision was.
    AuditEvent { Granted = "granted", Refused = "refused", PinChanged = "pin_changed" }
}

words! {
    /// How far an executor is.
    Phase { Pending = "pending", Running = "running", Succeeded = "succeeded", Failed = "failed" }
}

/// Whose event it is: the common fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Field `backend`; none while it is not yet known.
    pub backend: Option<Backend>,
    /// Fields `assignment` and `task_id`.
    pub assignment: AssignmentId,
    /// Field `epoch`; none before the first launch.
    pub epoch: Option<Epoch>,
}

impl Subject {
    /// An assignment that has no executor yet.
    #[must_use]
    pub fn waiting(backend: Option<Backend>, assignment: AssignmentId) -> Self {
        Self { backend, assignment, epoch: None }
    }

    fn backend(&self) -> Option<&'static str> {
        self.backend.map(Backend::as_str)
    }

    fn task(&self) -> i64 {
        self.assignment.task().get()
    }

    fn epoch(&self) -> Option<u32> {
        self.epoch.map(Epoch::get)
    }
}

/// What an event may say beyond its word.
#[derive(Debug, Clone, Copy, Default)]
pub struct Detail<'a> {
    /// Field `retry_delay`, nanoseconds.
    pub retry_delay: Option<Duration>,
    /// Field `reason`, of the closed list.
    pub reason: Option<Reason>,
    /// Field `cause`: one sentence, no payload text.
    pub cause: Option<&'a str>,
}

impl<'a> Detail<'a> {
    /// A closed-list reason and its sentence.
    #[must_use]
    pub fn because(reason: Reason, cause: &'a str) -> Self {
        Self { reason: Some(reason), cause: Some(cause), ..Self::default() }
    }

    /// Another try after this pause.
    #[must_use]
    pub fn retry(delay: Duration, cause: &'a str) -> Self {
        Self { retry_delay: Some(delay), cause: Some(cause), ..Self::default() }
    }
}

/// INFO `assignment transition`.
pub fn assignment_transition(event: AssignmentEvent, of: &Subject, detail: Detail<'_>) {
    info!(
        component = "worker",
        event = event.as_str(),
        backend = of.backend(),
        assignment = %of.assignment,
        task_id = of.task(),
        epoch = of.epoch(),
        retry_delay = detail.retry_delay.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        reason = detail.reason.map(Reason::as_str),
        cause = detail.cause,
        "assignment transition"
    );
}

/// INFO `executor transition`; `executor` is its name.
pub fn executor_transition(
    event: ExecutorEvent,
    of: &Subject,
    executor: &str,
    phase: Option<Phase>,
    detail: Detail<'_>,
) {
    info!(
        component = "worker",
        event = event.as_str(),
        backend = of.backend(),
        assignment = %of.assignment,
        task_id = of.task(),
        epoch = of.epoch(),
        executor,
        phase = phase.map(Phase::as_str),
        reason = detail.reason.map(Reason::as_str),
        cause = detail.cause,
        "executor transition"
    );
}

/// WARN `executor log`: how an executor ended that did not end in order, and the last lines it wrote.
pub fn executor_log(of: Option<&Subject>, executor: &str, cause: &str, said: &str) {
    warn!(
        component = "worker",
        backend = of.and_then(Subject::backend),
        assignment = of.map(|of| of.assignment.to_string()),
        task_id = of.map(Subject::task),
        epoch = of.and_then(Subject::epoch),
        executor,
        cause,
        said,
        "executor log"
    );
}

/// INFO `leader transition`; `holder` names who holds it, where that is known.
pub fn leader_transition(event: LeaderEvent, holder: Option<&str>) {
    info!(component = "scheduler", event = event.as_str(), holder, "leader transition");
}

/// INFO `controller transition`; `components` is the selection (CMP-1).
pub fn controller_transition(event: ControllerEvent, instance: &str, components: &str) {
    let version = env!("CARGO_PKG_VERSION");
    info!(component = "controller", event = event.as_str(), instance, components, version, "controller transition");
}

/// `migration`: WARN where an operator has something to look at or to do, else INFO. `place` is that of a message in the
/// stream.
pub fn migration(
    event: MigrationEvent,
    subject: &str,
    place: Option<u64>,
    assignment: Option<AssignmentId>,
    cause: &str,
) {
    macro_rules! tell {
        ($level:ident) => {
            $level!(
                component = "queue",
                event = event.as_str(),
                subject,
                place,
                assignment = assignment.map(|id| id.to_string()),
                task_id = assignment.map(|id| id.task().get()),
                cause,
                "migration"
            )
        };
    }
    match event {
        MigrationEvent::Left | MigrationEvent::Drained => tell!(warn),
        MigrationEvent::Begun | MigrationEvent::TakenIn | MigrationEvent::Removed => tell!(info),
    }
}

/// Who is allowed to be whom, for which task (NEW-127). The only event that shows a SPIFFE ID.
#[derive(Debug, Clone, Copy)]
pub struct Audit<'a> {
    /// The decision.
    pub event: AuditEvent,
    /// The identity; none where there is none.
    pub spiffe_id: Option<&'a SpiffeId>,
    /// The task.
    pub task: TaskId,
    /// `owner/name`, as the task says it.
    pub repository: Option<&'a str>,
    /// The number behind that name.
    pub repository_id: Option<i64>,
    /// The ref.
    pub git_ref: Option<&'a str>,
    /// Gitea's event name.
    pub event_name: Option<&'a str>,
    /// `trusted` or `untrusted`.
    pub class: Option<&'a str>,
    /// The executor's name.
    pub executor: Option<&'a str>,
    /// Until when, RFC 3339.
    pub until: Option<jiff::Timestamp>,
    /// The rule that decided.
    pub rule: &'a str,
}

/// `identity audit`: INFO of what was granted, WARN of everything else.
pub fn identity_audit(audit: &Audit<'_>) {
    macro_rules! tell {
        ($level:ident) => {
            $level!(
                component = "identity",
                event = audit.event.as_str(),
                spiffe_id = audit.spiffe_id.map(SpiffeId::as_str),
                task_id = audit.task.get(),
                repository = audit.repository,
                repository_id = audit.repository_id,
                git_ref = audit.git_ref,
                event_name = audit.event_name,
                class = audit.class,
                executor = audit.executor,
                until = audit.until.map(|t| t.to_string()),
                rule = audit.rule,
                "identity audit"
            )
        };
    }
    match audit.event {
        AuditEvent::Granted => tell!(info),
        AuditEvent::Refused | AuditEvent::PinChanged => tell!(warn),
    }
}

/// ERROR `scheduler error`: `declare scheduler labels: …`, `fetch Gitea task: …`, `dispatch Gitea task <id>: …`.
pub fn scheduler_error(cause: &dyn fmt::Display) {
    error!(component = "scheduler", error = %cause, "scheduler error");
}

/// ERROR `assignment processing error`.
pub fn assignment_processing_error(of: &Subject, cause: &dyn fmt::Display) {
    error!(
        component = "worker",
        backend = of.backend(),
        assignment = %of.assignment,
        task_id = of.task(),
        epoch = of.epoch(),
        error = %cause,
        "assignment processing error"
    );
}

/// ERROR `backend lifecycle error`.
pub fn backend_lifecycle_error(backend: Backend, cause: &dyn fmt::Display) {
    error!(component = "lifecycle", backend = backend.as_str(), error = %cause, "backend lifecycle error");
}

/// ERROR `configuration error`: one line per wrong setting (CFG-2).
pub fn configuration_error(wrong: &crate::config::SettingError) {
    error!(
        component = "config",
        setting = wrong.name,
        error = wrong.problem,
        remedy = wrong.remedy,
        "configuration error"
    );
}

/// ERROR `runner stopped`: the one line of a fatal error (CMP-11), and what to do where that is known.
pub fn runner_stopped(cause: &dyn fmt::Display, remedy: Option<&str>) {
    error!(component = "controller", error = %cause, remedy, "runner stopped");
}

#[cfg(test)]
mod tests;
