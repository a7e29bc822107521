//! The invariants of faults.md Part B that can be read off the double and the desk at the end of a test.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use domain::reason::Reason;
use runner_proto::runner::v1::Result as TaskResult;

use super::desk::Desk;
use crate::gitea::{Gitea, JobId, JobState, Status};

/// What a scenario breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// So many UpdateTask calls on tasks that had ended: the one that learns of the end, and its repetition (NEW-163).
    UpdatesAfterEnd(usize),
    /// So many questions about the log of such a task: a controller that died had heard of the end and told nobody.
    QuestionsAfterEnd(usize),
    /// This job's task may stay without an end, or have one that nobody gives a reason for.
    Unended(JobId),
    /// Gitea was away: reports may be further apart.
    Gaps,
    /// The state folder lost its registration once.
    RegisteredAgain,
    /// A message was taken out of the queue.
    MessageLost,
    /// Gitea gave a number to two tasks.
    Renumbered,
}

const LONGEST_GAP: Duration = Duration::from_secs(60);

/// What is broken.
pub(super) fn broken(gitea: &Gitea, desk: &Desk, allowed: &[Allowance]) -> Vec<String> {
    let mut broken = executed_twice(&desk.executions());
    broken.retain(|_| !allowed.contains(&Allowance::Renumbered));
    broken.extend(gitea.jobs().into_iter().filter(|job| !allowed.contains(&Allowance::Unended(*job))).filter_map(
        |job| {
            let state = gitea.find(job)?;
            let told = state.task.map(|task| results_told(desk, task)).unwrap_or_default();
            without_end(&state, &told)
        },
    ));
    if !allowed.contains(&Allowance::Gaps) {
        let wide = gitea.largest_gaps().into_iter().filter(|(_, gap)| *gap > LONGEST_GAP);
        broken.extend(wide.map(|(task, gap)| format!("I7: {gap:?} between two reports of task {task}")));
    }
    let of_updates = |allowance: &Allowance| if let Allowance::UpdatesAfterEnd(count) = allowance { *count } else { 0 };
    let of_questions =
        |allowance: &Allowance| if let Allowance::QuestionsAfterEnd(count) = allowance { *count } else { 0 };
    let late: usize = allowed.iter().map(of_updates).sum();
    let asked: usize = allowed.iter().map(of_questions).sum();
    let registrations = if allowed.contains(&Allowance::RegisteredAgain) { 2 } else { 1 };
    let counters = gitea.counters();
    let must = [
        (counters.max_concurrent_fetches <= 1, "more than one FetchTask at a time (SCH-4)"),
        (counters.overlapping_calls == 0, "two calls of one task at a time (F162)"),
        (counters.updates_after_end <= late, "UpdateTask after the end (F160)"),
        (counters.questions_after_end <= asked, "UpdateLog without rows after an end that was told (NEW-163)"),
        (counters.registers <= registrations, "more registrations than one"),
    ];
    broken.extend(must.iter().filter(|(holds, _)| !holds).map(|(_, text)| format!("{text}: {counters:?}")));
    let lost = desk.notes().into_iter().filter(|note| note.verb == "rows-lost");
    broken.extend(lost.map(|note| format!("the runner of task {} lost rows: {}", note.task, note.rest)));
    broken
}

/// I5: what is in the log or in a file of the state folder, but for those that are made to hold secrets of ours.
pub(super) fn exposed(state: &Path, log: &str, secrets: &[(&'static str, String)]) -> Vec<String> {
    let mut found = Vec::new();
    let mut search = |place: &str, content: &[u8]| {
        let holds = |secret: &str| content.windows(secret.len()).any(|part| part == secret.as_bytes());
        let held = secrets.iter().filter(|(_, secret)| holds(secret));
        found.extend(held.map(|(what, _)| format!("I5: {what} is in clear in {place}")));
    };
    search("the log", log.as_bytes());
    let mut folders = vec![state.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if path == state.join("keys") || path == state.join("registration.json") {
                continue;
            }
            match kind {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => {
                    search(&path.display().to_string(), &std::fs::read(&path).unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    found
}

/// The results that the runner of a task reported, in the end or on the sly.
fn results_told(desk: &Desk, task: i64) -> Vec<String> {
    let sly = desk.told(task, "tried").into_iter().filter_map(|tried| Some(tried.split_once(' ')?.1.to_owned()));
    desk.told(task, "final").into_iter().chain(sly).collect()
}

/// I1.
fn executed_twice(executions: &BTreeMap<i64, usize>) -> Vec<String> {
    let twice = executions.iter().filter(|(_, times)| **times > 1);
    twice.map(|(task, times)| format!("I1: task {task} was executed {times} times")).collect()
}

/// I2: a fetched task has an end, its log is closed, and an end that no runner reported has its reason in the log.
fn without_end(state: &JobState, told: &[String]) -> Option<String> {
    let task = state.task?;
    if !state.status.is_end() {
        return Some(format!("I2: task {task} has no end: {:?}", state.status));
    }
    if !state.archived {
        return Some(format!("I2: the log of task {task} is not closed: {:?}", state.rows()));
    }
    let reported = |result: TaskResult| told.iter().any(|word| word == crate::stand_in::name(result));
    let reasoned = state.rows().iter().any(|row| Reason::ALL.iter().any(|reason| gives(row, *reason)));
    let explained = match state.status {
        // A user's cancel wins over what the runner says, and needs no words.
        Status::Cancelled => true,
        Status::Success => reported(TaskResult::Success),
        status => reported(status.result()) || reasoned,
    };
    (!explained).then(|| format!("I2: nobody says why task {task} is {:?}: {:?}", state.status, state.rows()))
}

/// The row that a failure certificate begins with.
fn gives(row: &str, reason: Reason) -> bool {
    row.strip_prefix("##[error]").is_some_and(|text| text.starts_with(&format!("{reason}:")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitea::LogLine;

    fn state(status: Status, rows: &[&str]) -> JobState {
        let line = |row: &&str| LogLine { time: None, content: (*row).to_owned() };
        JobState {
            job: JobId(1),
            run: 1,
            status,
            result: None,
            task: Some(1),
            attempts: vec![1],
            runner: None,
            steps: Vec::new(),
            log: rows.iter().map(line).collect(),
            archived: true,
            outputs: BTreeMap::new(),
            started: None,
            stopped: None,
            updated: None,
            completed_webhooks: 1,
            updates_after_end: 0,
        }
    }

    #[test]
    fn a_secret_is_found_in_the_log_and_in_any_file_but_its_own() {
        let state = tempfile::tempdir().map(|dir| (dir.path().to_owned(), dir));
        let Ok((state, _dir)) = state else { panic!("no folder") };
        let secrets = [("a key", "correct-horse".to_owned())];
        let put = |name: &str| {
            let path = state.join(name);
            assert!(path.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok()));
            assert!(std::fs::write(path, "a correct-horse here").is_ok());
        };
        put("keys/one.key");
        put("registration.json");
        assert_eq!(exposed(&state, "nothing", &secrets), [""; 0]);
        put("executors/one/meta.json");
        assert_eq!(exposed(&state, "correct-horse", &secrets).len(), 2);
    }

    #[test]
    fn an_end_needs_a_runner_or_a_reason() {
        let told = ["FAILURE".to_owned()];
        assert!(without_end(&state(Status::Running, &[]), &[]).is_some());
        assert!(without_end(&state(Status::Failure, &["oh"]), &[]).is_some());
        assert!(without_end(&state(Status::Success, &[]), &[]).is_some());
        assert!(without_end(&JobState { archived: false, ..state(Status::Cancelled, &[]) }, &[]).is_some());
        assert_eq!(without_end(&state(Status::Failure, &[]), &told), None);
        assert_eq!(without_end(&state(Status::Failure, &["##[error]deadline: 5 s"]), &[]), None);
        assert_eq!(without_end(&state(Status::Cancelled, &[]), &[]), None);
        assert_eq!(executed_twice(&BTreeMap::from([(1, 1), (2, 2)])).len(), 1);
    }
}
