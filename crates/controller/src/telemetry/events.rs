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
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Log, LogFormat, LogLevel};
    use crate::telemetry::lines::Lines;
    use crate::telemetry::{Colours, Names, Secrets, subscriber, subscriber_at};

    fn logged(secrets: &Secrets, what: impl FnOnce()) -> Vec<Value> {
        logged_at(std::time::Instant::now, secrets, what)
    }

    fn logged_at(now: fn() -> std::time::Instant, secrets: &Secrets, what: impl FnOnce()) -> Vec<Value> {
        let (lines, log) = (Lines::default(), Log { format: LogFormat::Json, level: LogLevel::Info });
        tracing::subscriber::with_default(
            subscriber_at(now, log, secrets.writer(lines.clone()), Colours::Off, Names::default()),
            what,
        );
        let text = lines.text();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn subject() -> Subject {
        let assignment = AssignmentId::of(TaskId::try_from(7).unwrap());
        Subject { backend: Some(Backend::Local), assignment, epoch: Some(Epoch::FIRST) }
    }

    #[track_caller]
    fn check(line: &Value, expect: Value) {
        let mut line = line.clone();
        assert!(line.as_object_mut().unwrap().remove("timestamp").is_some_and(|t| t.as_str().unwrap().ends_with('Z')));
        assert_eq!(line, expect);
    }

    /// §3, CMP-11: every line is one JSON object with the fields of the specification and no others.
    #[test]
    fn fields_of_the_families() {
        let lines = logged(&Secrets::default(), || {
            let retry = Detail::retry(Duration::from_secs(2), "no room");
            assignment_transition(AssignmentEvent::BackendRetry, &subject(), retry);
            let created = Some(Phase::Pending);
            executor_transition(ExecutorEvent::Created, &subject(), "gitea-task-7-x-e1", created, Detail::default());
            leader_transition(LeaderEvent::Acquired, None);
            runner_stopped(&"scheduler leadership lost", None);
        });
        check(
            &lines[0],
            json!({"level": "INFO", "message": "assignment transition", "component": "worker", "event": "backend_retry",
                "backend": "local", "assignment": "gitea-task-7", "task_id": 7, "epoch": 1,
                "retry_delay": 2_000_000_000,
                "cause": "no room"}),
        );
        check(
            &lines[1],
            json!({"level": "INFO", "message": "executor transition", "component": "worker",
                "event": "executor_created",
                "backend": "local", "assignment": "gitea-task-7", "task_id": 7, "epoch": 1,
                "executor": "gitea-task-7-x-e1", "phase": "pending"}),
        );
        check(
            &lines[2],
            json!({"level": "INFO", "message": "leader transition", "component": "scheduler", "event": "acquired"}),
        );
        check(
            &lines[3],
            json!({"level": "ERROR", "message": "runner stopped", "component": "controller",
                "error": "scheduler leadership lost"}),
        );
    }

    /// NEW-127: what was granted is no warning; what was refused or changed hands is one.
    #[test]
    fn an_identity_that_was_granted_is_no_warning() {
        let audit = |event| Audit {
            event,
            spiffe_id: None,
            task: TaskId::try_from(7).unwrap(),
            repository: None,
            repository_id: None,
            git_ref: None,
            event_name: None,
            class: None,
            executor: None,
            until: None,
            rule: "event",
        };
        let lines =
            logged(&Secrets::default(), || AuditEvent::ALL.iter().for_each(|event| identity_audit(&audit(*event))));
        let levels: Vec<_> = lines.iter().map(|line| (line["event"].as_str(), line["level"].as_str())).collect();
        let expected = [("granted", "INFO"), ("refused", "WARN"), ("pin_changed", "WARN")];
        assert_eq!(levels, expected.map(|(event, level)| (Some(event), Some(level))));
    }

    /// A person at a terminal gets colours, and the program goes on: the library panics when it was built without them.
    #[test]
    fn a_terminal_gets_colours() {
        let (lines, log) = (Lines::default(), Log { format: LogFormat::Text, level: LogLevel::Info });
        let writer = Secrets::default().writer(lines.clone());
        tracing::subscriber::with_default(subscriber(log, writer, Colours::On), || runner_stopped(&"test", None));
        let text = lines.text();
        assert!(text.contains("\u{1b}["), "{text:?}");
    }

    /// NEW-142, T69: an hour of a removal that fails every 2 s, of a full disk that every task meets, and of a full pool:
    /// fewer than 50 lines, nothing is lost from the sums, and the pool is no error.
    #[test]
    fn an_hour_of_trouble() {
        use std::sync::LazyLock;
        use std::sync::atomic::{AtomicU64, Ordering};
        static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        let now = || *START + Duration::from_secs(SECONDS.load(Ordering::Relaxed));
        let lines = logged_at(now, &Secrets::default(), || {
            for second in 0..3600 {
                SECONDS.store(second, Ordering::Relaxed);
                let wait = format!("a free slot, at place {} in line (4 of 4 taken)", second % 7 + 1);
                let wait = Detail { cause: Some(&wait), ..Detail::default() };
                assignment_transition(AssignmentEvent::CapacityWait, &subject(), wait);
                if second % 2 == 0 {
                    let error = format!("removal: not empty after {second} ms");
                    let of = Subject { epoch: Some(Epoch::FIRST.next()), ..subject() };
                    assignment_processing_error(&of, &error);
                }
                scheduler_error(&format!("dispatch Gitea task {second}: the queue is full"));
            }
        });
        assert!(lines.len() < 50, "{} lines", lines.len());
        let sum = |what: &str| {
            let of_it = lines.iter().filter(|line| line["message"] == what);
            of_it.map(|line| 1 + line["repeated"].as_u64().unwrap_or(0)).sum::<u64>()
        };
        assert_eq!(sum("assignment processing error"), 1 + 11 * 150);
        assert_eq!(sum("scheduler error"), 1 + 11 * 300);
        let waits: Vec<_> = lines.iter().filter(|line| line["event"] == "capacity_wait").collect();
        assert_eq!(waits.len(), 12);
        assert!(waits.iter().all(|line| line["level"] == "INFO"));
    }

    /// NEW-142: what differs in its words, or in its executor where nothing failed, is written.
    #[test]
    fn only_the_same_is_left_out() {
        let lines = logged(&Secrets::default(), || {
            for cause in ["terminal mark: no space", "removal: no space", "removal: no space"] {
                assignment_processing_error(&subject(), &cause);
            }
            for epoch in [Epoch::FIRST, Epoch::FIRST.next()] {
                let of = Subject { epoch: Some(epoch), ..subject() };
                assignment_transition(AssignmentEvent::Received, &of, Detail::default());
            }
        });
        let told: Vec<_> =
            lines.iter().map(|line| line["error"].as_str().or(line["event"].as_str()).unwrap()).collect();
        assert_eq!(told, ["terminal mark: no space", "removal: no space", "received", "received"]);
    }

    /// NEW-141: a secret inside an error text does not reach the log.
    #[test]
    fn secrets_do_not_reach_the_log() {
        let secrets = Secrets::default();
        secrets.add("deadbeefdeadbeef");
        let lines = logged(&secrets, || scheduler_error(&"fetch Gitea task: token deadbeefdeadbeef refused"));
        assert_eq!(lines[0]["error"], "fetch Gitea task: token [redacted] refused");
    }

    /// §3: the vocabulary, word for word.
    #[test]
    fn vocabulary() {
        let words: Vec<_> = AssignmentEvent::ALL.iter().map(|e| e.as_str()).collect();
        assert_eq!(
            words.join(" "),
            "received capacity_wait capacity_acquired backend_retry backend_ready claim_timeout runner_claimed acked \
             backend_pending fetched refused dispatched offered confirmed cancelled interrupted terminal_accepted \
             terminal_marked reported gave_up"
        );
        let words: Vec<_> = ExecutorEvent::ALL.iter().map(|e| e.as_str()).collect();
        assert_eq!(
            words.join(" "),
            "executor_absent executor_created executor_found identity_target_pending identity_bound identity_rejected \
             executor_lost executor_relaunched executor_finished identity_released executor_deleted \
             executor_quarantined executor_adopted"
        );
    }
}
