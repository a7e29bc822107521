//! Whether a run was as it must be (NEW-148, invariants I1 to I8 of faults.md).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use domain::reason::Reason;
use runner_proto::runner::v1::Result as TaskResult;

use super::Scene;
use super::scene::Fate;
use super::stage::Stage;
use crate::gitea::{Gitea, JobId, Status};
use crate::outcome::{self, Interval, Record, Rule, Violation};
use crate::queue::messages;

/// A secret of every job.
pub(super) const SECRET: &str = "correct-horse-battery-staple";

/// What is wrong with a run that is over: against what must be true of every task, and against what the scene promises of
/// its jobs.
pub(super) fn wrong(stage: &Stage, scene: Scene) -> Vec<String> {
    let mut wrong = stage.keeper.wrong();
    let lost = stage.keeper.lost();
    let record = Record { controllers: stage.keeper.controllers(), ..Record::of(&stage.cast.gitea, &stage.desk) };
    // Nobody can keep what a registration brought whose answer never came.
    let registrations = record.registrations - usize::from(stage.keeper.unregistered() && record.registrations > 1);
    let judgement = outcome::judge(&Record { registrations, ..record });
    // Which tasks were lost is seen from the queue of the dead controller, which is exact.
    let by_time = |violation: &&Violation| violation.rule == Rule::LostWithoutKill;
    let seen = |violation: &&Violation| by_time(violation) && violation.task.is_some_and(|task| lost.contains(&task));
    wrong.extend(judgement.violations.iter().filter(|each| !seen(each)).map(ToString::to_string));
    let others = judgement.lost.iter().filter(|loss| !lost.contains(&loss.task));
    wrong.extend(others.map(|loss| format!("{loss}, although it was stored")));
    for (key, job) in stage.jobs() {
        let Some(course) = Course::of(stage, job) else {
            wrong.push(format!("job {key} was not fetched"));
            continue;
        };
        let found = if lost.contains(&course.task) { course.wrong_of_lost() } else { course.wrong(&scene.fate(key)) };
        wrong.extend(found.into_iter().map(|what| format!("job {key}: {what}")));
    }
    wrong.extend(secrets_in_clear(&stage.state(), &stage.cast.gitea));
    let held = secrets(&stage.cast.gitea).into_iter().flat_map(|secret| stage.executors.holding(&secret));
    wrong.extend(held.map(|object| format!("a secret in clear in {object}")));
    wrong
}

/// Whether a task was given up by an orderly stop.
pub(super) fn some_given_up(stage: &Stage) -> bool {
    stage.jobs().into_iter().filter_map(|(_, job)| Course::of(stage, job)).any(|course| course.is_given_up())
}

/// What became of a job, seen from outside.
struct Course {
    task: i64,
    status: Status,
    attempts: usize,
    rows: Vec<String>,
    starts: usize,
    /// When Gitea was first told that it failed.
    failed: Option<Instant>,
    /// When a controller was under its orderly stop.
    stops: Vec<Interval>,
}

impl Course {
    /// None of a job that nobody fetched.
    fn of(stage: &Stage, job: JobId) -> Option<Self> {
        let state = stage.cast.gitea.state(job);
        let task = state.task?;
        let calls = stage.cast.gitea.calls_of(task);
        Some(Self {
            task,
            status: state.status,
            attempts: state.attempts.len(),
            rows: state.log.into_iter().map(|line| line.content).collect(),
            starts: stage.desk.told(task, "task").len(),
            failed: calls.iter().find(|call| call.told() == Some(TaskResult::Failure)).map(|call| call.instant),
            stops: stage.keeper.stops(),
        })
    }

    /// NEW-16: what an orderly stop finds in no queue yet is ended with a reason. Nothing else ends a job that never began:
    /// a controller that was killed keeps its tasks or loses one (SCH-15), and an executor is replaced (NEW-63).
    fn is_given_up(&self) -> bool {
        let reason = format!("##[error]{}:", Reason::QueueUnavailable);
        let by_a_stop = |at| self.stops.iter().any(|(from, to)| (from..=to).contains(&at));
        let explained = self.rows.iter().any(|row| row.starts_with(&reason));
        self.starts == 0 && self.status == Status::Failure && explained && self.failed.as_ref().is_some_and(by_a_stop)
    }

    /// SCH-15: no executor, and Gitea's own end.
    fn wrong_of_lost(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        wrong.extend((self.starts > 0).then(|| format!("it was lost and started {} times", self.starts)));
        wrong.extend((!self.status.is_end()).then(|| format!("it was lost and is {:?}", self.status)));
        wrong
    }

    fn wrong(&self, fate: &Fate) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut must = |holds: bool, what: String| wrong.extend((!holds).then_some(what));
        must(self.attempts == 1, format!("it was handed out {} times", self.attempts));
        let said: Vec<&str> = self.rows.iter().map(String::as_str).filter(|row| fate.rows.contains(row)).collect();
        if self.is_given_up() {
            must(said.is_empty(), format!("it was given up, and its steps said {said:?}"));
            return wrong;
        }
        must(self.status == fate.status, format!("it ended {:?}, not {:?}", self.status, fate.status));
        must(self.starts > 0 || fate.rows.is_empty(), "it never began".to_owned());
        // A runner that vanishes takes with it what nobody had acknowledged; what was, is judged with the rest.
        let enough = said == fate.rows || fate.status == Status::Failure && fate.rows.starts_with(&said);
        must(enough, format!("its steps said {said:?}, not {:?}", fate.rows));
        wrong
    }
}

/// The tasks whose messages a dead controller left; none where it had not made the queue yet. Looking at the database
/// itself would change it.
///
/// # Errors
/// There is a queue and it cannot be read: what was stored is then unknown, which excuses no loss.
pub(super) fn stored(state: &Path) -> anyhow::Result<BTreeSet<i64>> {
    let copy = tempfile::tempdir()?;
    for name in ["queue.db", "queue.db-wal", "queue.db-journal"] {
        match std::fs::copy(state.join(name), copy.path().join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context(name),
            _ => {}
        }
    }
    let file = copy.path().join("queue.db");
    if !file.exists() {
        return Ok(BTreeSet::new());
    }
    // What a kill left half written is undone in the copy, as the next controller will do it.
    let queue = rusqlite::Connection::open(file)?;
    Ok(if queue.table_exists(None, "message")? { messages(&queue)? } else { BTreeSet::new() })
}

/// Files of the state folder with a secret of a task in them. What a job itself writes is its own affair.
pub(super) fn secrets_in_clear(state: &Path, gitea: &Gitea) -> Vec<String> {
    let mut found = Vec::new();
    search(state, &secrets(gitea), &mut found);
    found
}

/// The secrets of all tasks so far.
fn secrets(gitea: &Gitea) -> BTreeSet<String> {
    let tasks = gitea.jobs().into_iter().filter_map(|job| gitea.handed_out(gitea.state(job).task?));
    tasks.flat_map(|task| task.secrets.into_values()).filter(|secret| secret.len() > 8).collect()
}

fn search(folder: &Path, secrets: &BTreeSet<String>, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            search(&path, secrets, found);
        } else if kind.is_file() {
            let content = std::fs::read(&path).unwrap_or_default();
            let holds = |secret: &String| content.windows(secret.len()).any(|part| part == secret.as_bytes());
            found.extend(secrets.iter().any(holds).then(|| format!("a secret in clear in {}", path.display())));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the judge: that the program keeps a rule is not shown here, so no requirement is named.
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use super::*;

    /// A job whose orderly end found it unstored: the stop began a second before its FAILURE and ended a second later.
    fn given_up() -> Course {
        let failed = Instant::now();
        let second = Duration::from_secs(1);
        Course {
            task: 7,
            status: Status::Failure,
            attempts: 1,
            rows: vec!["##[error]queue_unavailable: the runner was stopped".to_owned()],
            starts: 0,
            failed: Some(failed),
            stops: vec![(failed.checked_sub(second).unwrap(), failed + second)],
        }
    }

    #[test]
    fn a_job_that_never_began_fails_by_an_orderly_stop_only() {
        let never_began = |course: Course, scene: Scene, key| {
            assert!(!course.is_given_up());
            course.wrong(&scene.fate(key)).contains(&"it never began".to_owned())
        };
        assert!(given_up().is_given_up());
        assert_eq!(given_up().wrong(&Scene::Stop.fate("second")), [""; 0]);
        // A restart ends what waits.
        let later = |from: Instant| from + Duration::from_secs(2);
        let by_the_next = Course { failed: given_up().failed.map(later), ..given_up() };
        assert!(never_began(by_the_next, Scene::Stop, "second"));
        assert!(never_began(Course { stops: vec![], ..given_up() }, Scene::Jobs, "first"));
        // Another reason is none of a stop.
        let launches = vec!["##[error]claim_timeout: 4 executors ended".to_owned()];
        assert!(never_began(Course { rows: launches.clone(), ..given_up() }, Scene::Stop, "second"));
        // FAILURE is promised of this one, but after it began.
        assert!(never_began(Course { rows: launches, stops: vec![], ..given_up() }, Scene::Deaths, "vanishing"));
        let began = Course { starts: 1, rows: vec!["last words".to_owned()], ..given_up() };
        assert_eq!(began.wrong(&Scene::Deaths.fate("vanishing")), [""; 0]);
        let cancelled = Course { status: Status::Cancelled, rows: vec![], ..given_up() };
        assert_eq!(cancelled.wrong(&Scene::Cancels.fate("waiting")), [""; 0]);
    }

    #[test]
    fn only_a_queue_that_was_not_made_yet_stores_nothing() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(stored(state.path()).unwrap(), BTreeSet::new());
        let file = state.path().join("queue.db");
        std::fs::write(&file, "").unwrap();
        assert_eq!(stored(state.path()).unwrap(), BTreeSet::new());
        let queue = rusqlite::Connection::open(&file).unwrap();
        queue
            .execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE message (id INTEGER); INSERT INTO message VALUES (7)")
            .unwrap();
        assert_eq!(stored(state.path()).unwrap(), BTreeSet::from([7]));
        queue.execute_batch("ALTER TABLE message RENAME COLUMN id TO task").unwrap();
        assert!(stored(state.path()).unwrap_err().to_string().contains("no such column"));
        drop(queue);
        std::fs::write(&file, "no database, and longer than the header of one".repeat(99)).unwrap();
        assert!(stored(state.path()).unwrap_err().to_string().contains("not a database"));
    }
}
