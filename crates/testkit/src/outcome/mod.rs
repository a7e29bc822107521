//! What must be true of every task, whatever was killed, cut or cancelled while it was held.
//!
//! Judged from outside only: from what the double of Gitea recorded, what the stand-in runners told, and what is left on
//! the host. [`judge`] is synchronous and decides from a [`Record`] alone; each [`Violation`] names its task, the
//! [`Rule`] with its requirement, and the evidence.
//!
//! One loss is no violation: a task that Gitea handed out to a controller which was killed before it could keep it
//! (SCH-15). Such a task is counted apart, and only if the record of calls shows that the kill fell into that moment.

mod controllers;
mod ends;
mod log;
mod quiet;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{Duration, Instant};

use crate::gitea::{Call, CallEnd, Gitea, Method, Status};
use crate::world::{Desk, Note};

pub use controllers::{Controller, Death, Interval};

use controllers::Controllers;

/// Everything there is to judge.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Every task that Gitea handed out.
    pub tasks: Vec<TaskRecord>,
    /// Every FetchTask, in order of arrival.
    pub fetches: Vec<Call>,
    /// Register calls that Gitea got.
    pub registrations: usize,
    /// The processes of the controller, in order of their starts.
    pub controllers: Vec<Controller>,
    /// When Gitea was away.
    pub away: Vec<Interval>,
    /// When the queue took nothing: it was away, or it was about to be tried again.
    pub queue_away: Vec<Interval>,
    /// What is on the host after everything has settled, each in words: folders, processes, mounts, messages.
    pub left: Vec<String>,
    /// What was seen to be wrong while it went on: executors above the capacity, messages that left the queue too early.
    pub seen: Vec<(Rule, String)>,
    /// After everything has settled: how many jobs could run at a time, and how many should.
    pub slots: Option<Slots>,
}

/// Jobs that ran at the same time, pushed together after everything else had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// How many ran.
    pub used: usize,
    /// The capacity.
    pub capacity: usize,
}

/// What is known of one task.
#[derive(Debug, Clone)]
pub struct TaskRecord {
    /// Its number.
    pub task: i64,
    /// Its end in Gitea, if it has one.
    pub status: Status,
    /// The rows of its log.
    pub log: Vec<String>,
    /// Whether that log is closed.
    pub archived: bool,
    /// The calls about it, in order of arrival: its FetchTask, UpdateTask, UpdateLog.
    pub calls: Vec<Call>,
    /// What its runners told, in order.
    pub told: Vec<Note>,
}

impl TaskRecord {
    /// What its runners told with this verb.
    pub fn told(&self, verb: &str) -> impl Iterator<Item = &str> {
        self.told.iter().filter(move |note| note.verb == verb).map(|note| note.rest.as_str())
    }

    /// How often a runner began it.
    #[must_use]
    pub fn starts(&self) -> usize {
        self.told("task").count()
    }

    /// The UpdateTask calls, in order.
    fn updates(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.method == Method::UpdateTask)
    }

    /// The FetchTask that handed it out.
    fn fetch(&self) -> Option<&Call> {
        self.calls.iter().find(|call| call.method == Method::FetchTask)
    }
}

impl Record {
    /// Reads the tasks from the double and the desk; the rest is for the caller to tell.
    #[must_use]
    pub fn of(gitea: &Gitea, desk: &Desk) -> Self {
        let (calls, notes) = (gitea.calls(), desk.notes());
        let states = gitea.jobs().into_iter().filter_map(|job| gitea.find(job));
        let task = |state: crate::gitea::JobState| {
            let task = state.task?;
            Some(TaskRecord {
                task,
                status: state.status,
                log: state.log.into_iter().map(|line| line.content).collect(),
                archived: state.archived,
                calls: calls.iter().filter(|call| call.task == Some(task)).cloned().collect(),
                told: notes.iter().filter(|note| note.task == task).cloned().collect(),
            })
        };
        Self {
            tasks: states.filter_map(task).collect(),
            fetches: calls.iter().filter(|call| call.method == Method::FetchTask).cloned().collect(),
            registrations: calls.iter().filter(|call| call.method == Method::Register).count(),
            ..Self::default()
        }
    }
}

/// The rules, each with the requirement it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A job is begun at most once after the claim.
    RunTwice,
    /// Every task that is held comes to an end, and not by Gitea's own time-outs.
    NoEnd,
    /// Exactly one outcome is told and accepted.
    TwoOutcomes,
    /// An end that the job did not bring about itself has a reason of the closed list in its log.
    NoReason,
    /// SUCCESS stands only where the job ended by itself in success.
    FalseSuccess,
    /// A result that was taken from the runner is the one that stands.
    ResultLost,
    /// The log has every row of the runner once and in order.
    Rows,
    /// The log is closed.
    LogOpen,
    /// Nothing but the end of a log is sent once a result was answered.
    UpdateAfterEnd,
    /// A held task is never silent for more than 60 s while a controller lives.
    Silence,
    /// Calls about one task are made one after another.
    Overlap,
    /// There is one FetchTask at a time.
    TwoFetches,
    /// A task is lost only to a kill between Gitea's commit of FetchTask and our write.
    LostWithoutKill,
    /// There is one registration.
    RegisteredTwice,
    /// The controller ends when it is told to, within its limit, and never by itself.
    EndedByItself,
    /// Nothing is left over.
    LeftOver,
    /// A message leaves the queue only for a confirmed claim or an accepted end.
    MessageLost,
    /// Executors never exceed the capacity.
    OverCapacity,
    /// No slot is lost.
    SlotLost,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::RunTwice,
        Self::NoEnd,
        Self::TwoOutcomes,
        Self::NoReason,
        Self::FalseSuccess,
        Self::ResultLost,
        Self::Rows,
        Self::LogOpen,
        Self::UpdateAfterEnd,
        Self::Silence,
        Self::Overlap,
        Self::TwoFetches,
        Self::LostWithoutKill,
        Self::RegisteredTwice,
        Self::EndedByItself,
        Self::LeftOver,
        Self::MessageLost,
        Self::OverCapacity,
        Self::SlotLost,
    ];

    /// Whether it is about one task, and not about the whole.
    #[must_use]
    pub fn is_of_a_task(self) -> bool {
        !matches!(
            self,
            Self::TwoFetches
                | Self::RegisteredTwice
                | Self::EndedByItself
                | Self::LeftOver
                | Self::MessageLost
                | Self::OverCapacity
                | Self::SlotLost
        )
    }

    /// The requirement or fault it comes from.
    #[must_use]
    pub fn requirement(self) -> &'static str {
        match self {
            Self::RunTwice => "NEW-63",
            Self::NoEnd => "NEW-30",
            Self::TwoOutcomes => "NEW-26",
            Self::NoReason => "NEW-29",
            Self::FalseSuccess => "NEW-158",
            Self::ResultLost => "NEW-112",
            Self::Rows => "NEW-28",
            Self::LogOpen => "NEW-166",
            Self::UpdateAfterEnd => "NEW-163",
            Self::Silence => "NEW-21, NEW-33",
            Self::Overlap => "NEW-32",
            Self::TwoFetches => "SCH-4",
            Self::LostWithoutKill => "SCH-15",
            Self::RegisteredTwice => "SCH-1",
            Self::EndedByItself => "CMP-10",
            Self::LeftOver => "NEW-64",
            Self::MessageLost => "NEW-52",
            Self::OverCapacity | Self::SlotLost => "NEW-55",
        }
    }
}

/// A rule that is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Of which task; none when it is about no single one.
    pub task: Option<i64>,
    /// The rule.
    pub rule: Rule,
    /// What shows it.
    pub evidence: String,
}

impl Violation {
    fn of(task: &TaskRecord, rule: Rule, evidence: impl Into<String>) -> Self {
        Self { task: Some(task.task), rule, evidence: evidence.into() }
    }

    fn general(rule: Rule, evidence: impl Into<String>) -> Self {
        Self { task: None, rule, evidence: evidence.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            Some(task) => write!(f, "task {task}: ")?,
            None => f.write_str("in all: ")?,
        }
        write!(f, "{:?} ({}): {}", self.rule, self.rule.requirement(), self.evidence)
    }
}

/// What came out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What is broken.
    pub violations: Vec<Violation>,
    /// The tasks that were lost in the only way in which one may be lost (SCH-15).
    pub lost: Vec<Loss>,
}

/// A task that a kill took between Gitea's commit of its FetchTask and our write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Its number.
    pub task: i64,
    /// What shows that the kill fell into that moment.
    pub evidence: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}: lost (SCH-15): {}", self.task, self.evidence)
    }
}

/// Judges everything.
#[must_use]
pub fn judge(record: &Record) -> Judgement {
    let controllers = Controllers::new(&record.controllers);
    let mut judgement = Judgement { violations: in_all(record, &controllers), lost: Vec::new() };
    for task in &record.tasks {
        match ends::unkept(task, &controllers, &record.queue_away) {
            Some(Ok(loss)) => judgement.lost.push(loss),
            Some(Err(violation)) => judgement.violations.push(violation),
            None => judgement.violations.extend(of_task(task, record, &controllers)),
        }
    }
    judgement
}

fn of_task(task: &TaskRecord, record: &Record, controllers: &Controllers<'_>) -> Vec<Violation> {
    let mut violations = ends::broken(task);
    violations.extend(log::broken(task));
    violations.extend(quiet::updates_after_end(task, controllers, &record.queue_away));
    violations.extend(quiet::silence(task, &record.away, controllers));
    violations.extend(quiet::overlaps(task, controllers));
    violations
}

fn in_all(record: &Record, controllers: &Controllers<'_>) -> Vec<Violation> {
    let mut violations: Vec<Violation> =
        record.seen.iter().map(|(rule, text)| Violation::general(*rule, text.clone())).collect();
    violations.extend(record.left.iter().map(|left| Violation::general(Rule::LeftOver, left.clone())));
    violations.extend(quiet::concurrent_fetches(&record.fetches, controllers));
    if record.registrations > 1 {
        let evidence = format!("{} Register calls", record.registrations);
        violations.push(Violation::general(Rule::RegisteredTwice, evidence));
    }
    if let Some(slots) = record.slots.filter(|slots| slots.used < slots.capacity) {
        let evidence = format!("{} of {} jobs ran at the same time", slots.used, slots.capacity);
        violations.push(Violation::general(Rule::SlotLost, evidence));
    }
    violations
}

/// The longest time that a task which was kept went without a sign of life while a controller worked and Gitea was there.
#[must_use]
pub fn longest_gap(record: &Record) -> Duration {
    let controllers = Controllers::new(&record.controllers);
    let kept = record.tasks.iter().filter(|task| ends::unkept(task, &controllers, &record.queue_away).is_none());
    kept.filter_map(|task| quiet::longest_gap(task, &record.away, &controllers)).max().unwrap_or_default()
}

/// When the answer to a call was out; none when it never was.
fn answered(call: &Call) -> Option<Instant> {
    matches!(call.end, CallEnd::Answered { status: 200, .. }).then(|| call.instant + call.took.unwrap_or_default())
}
