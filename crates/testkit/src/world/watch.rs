//! What is looked at all the time while a world lives: executors against capacity (I3), messages against claims (I6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::backend::Executors;
use crate::outcome::Rule;
use crate::queue::Queue;

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
    pub(super) fn start(
        executors: Executors,
        queue: Queue,
        capacity: usize,
        accounted: impl Fn(i64) -> bool + Send + 'static,
    ) -> Self {
        let found = Arc::new(Mutex::new(Vec::new()));
        let complaints = Arc::clone(&found);
        let task = tokio::spawn(async move {
            let mut messages = Messages::default();
            let mut ticks = tokio::time::interval(LOOK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let executors = executors.names();
                // A server that is frozen holds nobody up but this.
                let looked = queue.clone();
                let queued = tokio::task::spawn_blocking(move || looked.tasks()).await;
                let mut wrong = messages.look(queued.ok().and_then(Result::ok), &accounted);
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
        // A locked file and a server that is away are no evidence.
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

#[cfg(test)]
mod tests {
    use super::*;

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
