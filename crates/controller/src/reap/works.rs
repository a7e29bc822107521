//! Work on single objects, carried out beside the passes: one piece at a time for each, and a pause after one that failed,
//! whatever the others do (NEW-74). A later pass asks again for what did not succeed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::backoff::Backoff;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::backend::Observed;
use crate::backoff::backoff;

const FIRST_REST: Duration = Duration::from_secs(2);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// One piece of work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Marking or removing the object of this name.
    Object(String),
    /// Saying what the executor of this name left, beside the work on its object: while that waits for its next try, an end may
    /// have to be noted.
    LastReport(String),
}

/// What is under way, and what rests.
pub struct Works {
    tracker: TaskTracker,
    busy: Mutex<BTreeSet<Work>>,
    /// Names of objects that the last piece of work failed for.
    resting: Mutex<BTreeMap<String, Rest>>,
}

/// A pause of one object, which grows with every failure.
struct Rest {
    until: Instant,
    pauses: Backoff,
}

impl Works {
    /// None yet; what is begun is also known to `tracker`.
    #[must_use]
    pub fn new(tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self { tracker, busy: Mutex::default(), resting: Mutex::default() })
    }

    /// Begins it, unless the same is under way or its object rests.
    pub(super) fn begin<F>(self: &Arc<Self>, work: Work, carry_out: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if matches!(&work, Work::Object(name) if self.rests(name)) || !self.busy().insert(work.clone()) {
            return;
        }
        let (this, carried_out) = (Arc::clone(self), carry_out());
        self.tracker.spawn(async move {
            carried_out.await;
            this.busy().remove(&work);
        });
    }

    /// Waits until nothing is under way.
    pub(super) async fn done(&self) {
        self.tracker.wait().await;
    }

    /// Work on this object succeeded.
    pub(super) fn succeeded(&self, name: &str) {
        self.resting().remove(name);
    }

    /// Work on this object failed: the next piece is begun after a pause.
    pub(super) fn failed(&self, name: &str) {
        let mut resting = self.resting();
        let fresh = || Rest { until: Instant::now(), pauses: backoff(FIRST_REST, LONGEST_REST) };
        let rest = resting.entry(name.to_owned()).or_insert_with(fresh);
        rest.until = Instant::now() + rest.pauses.pause();
    }

    /// Nothing rests any more.
    pub(super) fn wake_all(&self) {
        self.resting().clear();
    }

    /// An object that is gone rests no more.
    pub(super) fn keep(&self, objects: &[Observed]) {
        let mut resting = self.resting();
        if !resting.is_empty() {
            let there: BTreeSet<&str> = objects.iter().map(|object| object.name.as_str()).collect();
            resting.retain(|name, _| there.contains(name.as_str()));
        }
    }

    fn rests(&self, name: &str) -> bool {
        self.resting().get(name).is_some_and(|rest| Instant::now() < rest.until)
    }

    fn resting(&self) -> MutexGuard<'_, BTreeMap<String, Rest>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(&self) -> MutexGuard<'_, BTreeSet<Work>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
