//! What is looked at all the time while a world lives: executors against capacity (I3), messages against claims (I6).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::outcome::Rule;

const LOOK: Duration = Duration::from_millis(25);

/// How long a runner's word may take to reach the desk after its message left the queue.
const WORD_LATE: Duration = Duration::from_secs(3);

/// The watcher of one world.
pub(super) struct Watch {
    found: Arc<Mutex<Vec<(Rule, String)>>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// `accounted` says of a task that a runner has it or that Gitea accepted its end.
    pub(super) fn start(state: PathBuf, capacity: usize, accounted: impl Fn(i64) -> bool + Send + 'static) -> Self {
        let found = Arc::new(Mutex::new(Vec::new()));
        let complaints = Arc::clone(&found);
        let task = tokio::spawn(async move {
            let mut messages = Messages::default();
            let mut ticks = tokio::time::interval(LOOK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let executors = executors(&state);
                let mut wrong = messages.look(queued(&state).ok(), &accounted);
                if executors.len() > capacity {
                    let text = format!("{} executors with capacity {capacity}: {executors:?}", executors.len());
                    wrong.push((Rule::OverCapacity, text));
                }
                complaints.lock().unwrap_or_else(PoisonError::into_inner).extend(wrong);
            }
        });
        Self { found, task }
    }

    /// What was wrong so far.
    pub(super) fn complaints(&self) -> Vec<(Rule, String)> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        found.dedup();
        found
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// I6: what left the queue, and whether somebody has it.
#[derive(Default)]
struct Messages {
    known: BTreeSet<i64>,
    unaccounted: BTreeMap<i64, Instant>,
}

impl Messages {
    fn look(&mut self, queued: Option<BTreeSet<i64>>, accounted: impl Fn(i64) -> bool) -> Vec<(Rule, String)> {
        // A locked file is no evidence.
        let Some(queued) = queued else { return Vec::new() };
        for task in self.known.difference(&queued).filter(|task| !accounted(**task)) {
            self.unaccounted.entry(*task).or_insert_with(Instant::now);
        }
        self.known = queued;
        self.unaccounted.retain(|task, _| !accounted(*task));
        let late: Vec<i64> =
            self.unaccounted.iter().filter(|(_, since)| since.elapsed() > WORD_LATE).map(|(task, _)| *task).collect();
        late.iter()
            .map(|task| {
                self.unaccounted.remove(task);
                (Rule::MessageLost, format!("the message of task {task} left it without a claim and without an end"))
            })
            .collect()
    }
}

/// The names of the executors' folders.
pub(crate) fn executors(state: &Path) -> Vec<String> {
    folders(state).into_iter().filter(|name| name.starts_with("gitea-task-")).collect()
}

/// The names of all folders beside the executors', drafts and remains included.
pub(super) fn folders(state: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(state.join("executors")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The messages that are still in the queue of this state folder, each in words by `told`. A queue that cannot be read is
/// not empty: that is one more word.
pub(crate) fn left_in_queue(state: &Path, told: impl Fn(i64) -> String) -> Vec<String> {
    match queued(state) {
        Ok(tasks) => tasks.into_iter().map(told).collect(),
        Err(error) => vec![format!("a queue that cannot be read: {error}")],
    }
}

/// The tasks whose messages are in the queue; none where no controller has made it yet.
///
/// # Errors
/// The file cannot be read now.
pub fn queued(state: &Path) -> rusqlite::Result<BTreeSet<i64>> {
    let file = state.join("queue.db");
    if !file.exists() {
        return Ok(BTreeSet::new());
    }
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    messages(&rusqlite::Connection::open_with_flags(file, flags)?)
}

/// The tasks whose messages are in an open queue.
pub(crate) fn messages(queue: &rusqlite::Connection) -> rusqlite::Result<BTreeSet<i64>> {
    let mut rows = queue.prepare("SELECT id FROM message")?;
    rows.query_map([], |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// NEW-64: what cannot be read is not taken for nothing.
    #[test]
    fn a_queue_that_cannot_be_read_is_left_over() {
        let state = tempfile::tempdir().unwrap();
        let left = || left_in_queue(state.path(), |task| format!("message {task}"));
        assert_eq!(left(), [""; 0], "it was not made yet");
        let file = state.path().join("queue.db");
        let queue = rusqlite::Connection::open(&file).unwrap();
        queue.execute_batch("CREATE TABLE message (id INTEGER); INSERT INTO message VALUES (7)").unwrap();
        assert_eq!(left(), ["message 7"]);
        drop(queue);
        std::fs::write(&file, "no database, and longer than the header of one".repeat(99)).unwrap();
        assert!(left()[0].contains("cannot be read"), "{:?}", left());
    }

    #[test]
    fn a_message_that_left_unaccounted_is_complained_of_once() {
        let mut messages = Messages::default();
        assert!(messages.look(Some(BTreeSet::from([1, 2, 3])), |_| false).is_empty());
        assert!(messages.look(None, |_| false).is_empty());
        assert!(messages.look(Some(BTreeSet::from([3])), |task| task == 1).is_empty());
        if let Some(since) = messages.unaccounted.get_mut(&2) {
            *since = Instant::now().checked_sub(WORD_LATE * 2).unwrap_or_else(Instant::now);
        }
        assert_eq!(messages.look(Some(BTreeSet::from([3])), |task| task == 1).len(), 1);
        assert!(messages.look(Some(BTreeSet::from([3])), |task| task == 1).is_empty());
    }
}
