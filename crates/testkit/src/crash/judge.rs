//! Whether a run was as it must be (NEW-148, invariants I1 to I8 of faults.md).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;

use super::Scene;
use super::stage::Stage;
use crate::gitea::{Gitea, JobState, Status};
use crate::outcome::{self, Record, Rule, Violation};
use crate::world::messages;

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
        let state = stage.cast.gitea.state(job);
        let Some(task) = state.task else {
            wrong.push(format!("job {key} was not fetched"));
            continue;
        };
        let starts = stage.desk.told(task, "task").len();
        let found = if lost.contains(&task) { of_lost(&state, starts) } else { of_job(scene, key, &state, starts) };
        wrong.extend(found.into_iter().map(|what| format!("job {key}: {what}")));
    }
    wrong.extend(secrets_in_clear(&stage.state(), &stage.cast.gitea));
    wrong
}

/// SCH-15: no executor, and Gitea's own end.
fn of_lost(state: &JobState, starts: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    wrong.extend((starts > 0).then(|| format!("it was lost and started {starts} times")));
    wrong.extend((!state.status.is_end()).then(|| format!("it was lost and is {:?}", state.status)));
    wrong
}

fn of_job(scene: Scene, key: &str, state: &JobState, starts: usize) -> Vec<String> {
    let fate = scene.fate(key);
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: String| wrong.extend((!holds).then_some(what));
    let rows = state.rows();
    must(state.attempts.len() == 1, format!("it was handed out {} times", state.attempts.len()));
    let given_up = state.status == Status::Failure && starts == 0;
    must(state.status == fate.status || given_up, format!("it ended {:?}, not {:?}", state.status, fate.status));
    let said: Vec<&str> = rows.iter().copied().filter(|row| fate.rows.contains(row)).collect();
    let expected = if starts == 0 { &[] } else { fate.rows };
    // A runner that vanishes takes with it what nobody had acknowledged; what was, is judged with the rest.
    let enough = said == expected || fate.status == Status::Failure && expected.starts_with(&said);
    must(enough, format!("its steps said {said:?}, not {expected:?}"));
    wrong
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
    let tasks = gitea.jobs().into_iter().filter_map(|job| gitea.handed_out(gitea.state(job).task?));
    let secrets: BTreeSet<String> = tasks.flat_map(|task| task.secrets.into_values()).filter(|s| s.len() > 8).collect();
    let mut found = Vec::new();
    search(state, &secrets, &mut found);
    found
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

    use super::*;

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
