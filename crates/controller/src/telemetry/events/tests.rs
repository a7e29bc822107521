//! The lines of the log, field by field.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::config::{Log, LogFormat, LogLevel};
use crate::telemetry::lines::{Lines, hear};
use crate::telemetry::{Colours, Names, Secrets, subscriber, subscriber_at};

fn logged(secrets: &Secrets, what: impl FnOnce()) -> Vec<Value> {
    logged_at(std::time::Instant::now, secrets, what)
}

fn logged_at(now: fn() -> std::time::Instant, secrets: &Secrets, what: impl FnOnce()) -> Vec<Value> {
    let (lines, log) = (Lines::default(), Log { format: LogFormat::Json, level: LogLevel::Info });
    let _log = hear(subscriber_at(now, log, secrets.writer(lines.clone()), Colours::Off, Names::default()));
    what();
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
    let lines = logged(&Secrets::default(), || AuditEvent::ALL.iter().for_each(|event| identity_audit(&audit(*event))));
    let levels: Vec<_> = lines.iter().map(|line| (line["event"].as_str(), line["level"].as_str())).collect();
    let expected = [("granted", "INFO"), ("refused", "WARN"), ("pin_changed", "WARN")];
    assert_eq!(levels, expected.map(|(event, level)| (Some(event), Some(level))));
}

/// A person at a terminal gets colours, and the program goes on: the library panics when it was built without them.
#[test]
fn a_terminal_gets_colours() {
    let (lines, log) = (Lines::default(), Log { format: LogFormat::Text, level: LogLevel::Info });
    let writer = Secrets::default().writer(lines.clone());
    let _log = hear(subscriber(log, writer, Colours::On));
    runner_stopped(&"test", None);
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
    let told: Vec<_> = lines.iter().map(|line| line["error"].as_str().or(line["event"].as_str()).unwrap()).collect();
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
    let words: Vec<_> = MigrationEvent::ALL.iter().map(|e| e.as_str()).collect();
    assert_eq!(words.join(" "), "begun taken_in removed left drained");
}
