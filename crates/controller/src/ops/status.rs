//! What `/status` and `gitea-dynamic-runner status` show (NEW-134): schema 1, arrays never null.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::readiness::{Leader, NotReady};
use crate::config::IsolationKind;
use crate::standalone::words::NOT_ISOLATED;

/// The number of this schema; a field may be added, none changes its meaning under the same number.
pub const SCHEMA: u32 = 1;

/// Everything the controller holds, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusSnapshot {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of the controller.
    pub version: String,
    /// Its instance id.
    pub instance: String,
    /// The selected components, in their order (CMP-1).
    pub components: Vec<String>,
    /// When the snapshot was taken.
    pub at: Timestamp,
    /// Whether it can do its work.
    pub ready: bool,
    /// Why not; empty when ready.
    pub not_ready: Vec<NotReady>,
    /// Whether it leads.
    pub leader: Leader,
    /// LOCAL_ISOLATION: `full` or `none`.
    #[serde(default)]
    pub local_isolation: String,
    /// What there is too little of, in one sentence; none when there is enough.
    #[serde(default)]
    pub shortage: Option<String>,
    /// How far the migration from the earlier controller is, in one sentence; none while `ENVELOPE_ACCEPT_V1` is off.
    #[serde(default)]
    pub migration: Option<String>,
    /// The right to fetch, per backend.
    pub permits: Vec<Permits>,
    /// Tasks fetched and not yet gone.
    pub held: Vec<HeldTask>,
    /// Executors that exist.
    pub executors: Vec<ExecutorLine>,
    /// Where what is held and what exists do not agree; what will agree in a moment is left out.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// Objects that are left alone because they cannot be read.
    pub quarantine: Vec<SetApart>,
    /// Messages that were set aside.
    pub set_aside: Vec<SetApart>,
}

impl StatusSnapshot {
    /// A snapshot of a controller that holds nothing.
    #[must_use]
    pub fn empty(instance: &str, components: Vec<String>, at: Timestamp) -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: instance.to_owned(),
            components,
            at,
            ready: false,
            not_ready: Vec::new(),
            leader: Leader::Standby,
            local_isolation: String::new(),
            shortage: None,
            migration: None,
            permits: Vec::new(),
            held: Vec::new(),
            executors: Vec::new(),
            differences: Vec::new(),
            quarantine: Vec::new(),
            set_aside: Vec::new(),
        }
    }
}

/// The right to fetch one more task, counted from what exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permits {
    /// The backend.
    pub backend: String,
    /// Its slots.
    pub capacity: u32,
    /// Executors that exist.
    pub executors: u32,
    /// Tasks held without an executor.
    pub held: u32,
    /// What may be fetched now.
    pub free: u32,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeldTask {
    /// The assignment id.
    pub id: String,
    /// Gitea's task id.
    pub task: i64,
    /// A state of requirements §7.1.
    pub state: String,
    /// The life of its executor; none before the first launch.
    pub epoch: Option<u32>,
    /// The backend.
    pub backend: String,
    /// Seconds since the fetch.
    pub age_seconds: u64,
    /// When it is ended at the latest.
    pub deadline: Timestamp,
    /// What it waits for, in a few words; none when it runs.
    pub waiting_for: Option<String>,
    /// `owner/name`.
    pub repository: String,
    /// The job key.
    pub job_key: String,
}

/// One executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorLine {
    /// Its name.
    pub name: String,
    /// The backend.
    pub backend: String,
    /// `pending`, `running` or `ended`.
    pub state: String,
    /// Which life of its assignment.
    pub epoch: u32,
    /// Whether it has its task.
    pub claimed: bool,
}

/// Where the books and reality do not agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `executor_without_task`, `task_without_executor` or `executor_not_removed`.
    pub kind: String,
    /// The executor.
    pub name: String,
    /// What does not agree, one sentence.
    pub what: String,
}

/// Something set apart, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetApart {
    /// Its name.
    pub name: String,
    /// Why, one sentence.
    pub reason: String,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// The snapshot for people.
#[must_use]
pub fn text(status: &StatusSnapshot) -> String {
    let mut out = String::new();
    let leading = if status.leader == Leader::Leading { "leads" } else { "stands by" };
    let ready = if status.ready { "ready" } else { "not ready" };
    let (instance, version) = (&status.instance, &status.version);
    let _ = writeln!(out, "instance {instance} (version {version}): {ready}, {leading}");
    for NotReady { reason, detail } in &status.not_ready {
        let _ = writeln!(out, "  {reason}: {detail}");
    }
    if status.local_isolation == IsolationKind::None.as_str() {
        let _ = writeln!(out, "NOT ISOLATED: {NOT_ISOLATED}");
    }
    if let Some(shortage) = &status.shortage {
        let _ = writeln!(out, "SHORTAGE: {shortage}");
    }
    if let Some(migration) = &status.migration {
        let _ = writeln!(out, "MIGRATION: {migration}");
    }
    for p in &status.permits {
        let _ = writeln!(out, "{}: {} of {} slots used, {} waiting", p.backend, p.executors, p.capacity, p.held);
    }
    out.push('\n');
    out.push_str(&tasks(&status.held));
    for executor in &status.executors {
        let claimed = if executor.claimed { "has its task" } else { "has no task yet" };
        let _ = writeln!(out, "executor {}: {}, {claimed}", executor.name, executor.state);
    }
    for Difference { name, what, .. } in &status.differences {
        let _ = writeln!(out, "DIFFERENCE {name}: {what}");
    }
    for (kind, list) in [("quarantined", &status.quarantine), ("set aside", &status.set_aside)] {
        for SetApart { name, reason, .. } in list {
            let _ = writeln!(out, "{kind} {name}: {reason}");
        }
    }
    out
}

fn tasks(held: &[HeldTask]) -> String {
    if held.is_empty() {
        return "no tasks held\n".to_owned();
    }
    let head = ["TASK", "JOB", "BACKEND", "STATE", "AGE", "WAITS FOR"].map(str::to_owned);
    let rows = held.iter().map(|t| {
        let job = format!("{}/{}", t.repository, t.job_key);
        let age = humantime::format_duration(std::time::Duration::from_secs(t.age_seconds)).to_string();
        [t.task.to_string(), job, t.backend.clone(), t.state.clone(), age, t.waiting_for.clone().unwrap_or_default()]
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width: Vec<usize> = (0..6).map(|at| rows.iter().map(|r| r[at].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<_> = row.iter().zip(&width).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    pub(crate) fn busy() -> StatusSnapshot {
        let at: Timestamp = "2026-11-01T10:00:00Z".parse().unwrap();
        let mut status = StatusSnapshot::empty("f66f031b", vec!["scheduler".into(), "local-worker".into()], at);
        status.leader = Leader::Leading;
        status.ready = true;
        status.permits.push(Permits { backend: "local".into(), capacity: 2, executors: 1, held: 1, free: 0 });
        status.held.push(HeldTask {
            id: "gitea-task-7".into(),
            task: 7,
            state: "running".into(),
            epoch: Some(1),
            backend: "local".into(),
            age_seconds: 65,
            deadline: at,
            waiting_for: None,
            repository: "acme/app".into(),
            job_key: "build".into(),
        });
        status.held.push(HeldTask {
            id: "gitea-task-12".into(),
            task: 12,
            state: "waiting".into(),
            epoch: None,
            waiting_for: Some("a free slot".into()),
            age_seconds: 5,
            ..status.held[0].clone()
        });
        status.executors.push(ExecutorLine {
            name: "gitea-task-7-f66f031b-e1".into(),
            backend: "local".into(),
            state: "running".into(),
            epoch: 1,
            claimed: true,
        });
        status
    }

    /// NEW-134: schema 1, arrays never null, and it reads back.
    #[test]
    fn json_has_no_null_arrays() {
        let empty = StatusSnapshot::empty("x", Vec::new(), Timestamp::UNIX_EPOCH);
        let json = serde_json::to_value(&empty).unwrap();
        assert_eq!(json["schema"], 1);
        for name in
            ["components", "not_ready", "permits", "held", "executors", "differences", "quarantine", "set_aside"]
        {
            assert!(json[name].is_array(), "{name}");
        }
        assert_eq!(serde_json::from_value::<StatusSnapshot>(json).unwrap(), empty);
    }

    /// NEW-134: what a person reads.
    #[test]
    fn text_for_people() {
        let version = env!("CARGO_PKG_VERSION");
        let expect = format!(
            "instance f66f031b (version {version}): ready, leads\n\
             local: 1 of 2 slots used, 1 waiting\n\
             \n\
             TASK  JOB             BACKEND  STATE    AGE    WAITS FOR\n\
             7     acme/app/build  local    running  1m 5s\n\
             12    acme/app/build  local    waiting  5s     a free slot\n\
             executor gitea-task-7-f66f031b-e1: running, has its task\n"
        );
        assert_eq!(text(&busy()), expect);
    }

    /// NEW-134: what does not agree stands among the executors.
    #[test]
    fn differences_are_said() {
        let mut status = busy();
        let (kind, name) = ("executor_without_task".to_owned(), "gitea-task-5-f66f031b-e1".to_owned());
        status.differences.push(Difference { kind, name, what: "it exists".to_owned() });
        assert!(text(&status).contains("\nDIFFERENCE gitea-task-5-f66f031b-e1: it exists\n"), "{}", text(&status));
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["differences"][0]["kind"], "executor_without_task");
    }

    /// NEW-172: jobs without isolation are not passed over in silence.
    #[test]
    fn no_isolation_is_said() {
        let mut status = busy();
        for (word, said) in [("full", false), ("none", true)] {
            status.local_isolation = word.to_owned();
            assert_eq!(text(&status).contains("NOT ISOLATED"), said, "{word}");
        }
    }
}
