//! What one job may take of the facade, so that a flood of one slows that one only (NEW-98, F104).
//!
//! Two things are shared out: the memory of messages that are read whole, and connections. Who wants more than its part
//! of the memory waits with its body unread; who opens too many connections is refused on them. What is streamed holds
//! no memory of ours and is not counted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::id::AssignmentId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of messages of all jobs together that are being read or carried out.
const TOTAL: usize = 256 << 20;
/// Of one job: a log call and a state at their largest.
const OF_ONE: usize = 32 << 20;
/// Messages up to this size wait for their own job's part only: a small call gets through whatever others do.
const SMALL: usize = super::SMALL_BODY;
/// Most connections of one job: a package manager's parallel downloads, each of which is one. No job gets more than half
/// of all.
const CONNECTIONS: usize = 256;
/// What is counted at once; semaphores count in 32 bits.
const UNIT: usize = 1 << 10;

/// The memory of one message, given back when it is dropped: by whoever carries the message out, not by who sent it.
pub(super) struct Memory {
    _of_one: OwnedSemaphorePermit,
    _of_all: Option<OwnedSemaphorePermit>,
    _job: Arc<Job>,
}

/// A connection of a job.
pub(super) struct Seat {
    _permit: OwnedSemaphorePermit,
    _job: Arc<Job>,
}

/// See the module.
pub(super) struct Shares {
    total: Arc<Semaphore>,
    connections: usize,
    jobs: Mutex<HashMap<AssignmentId, Weak<Job>>>,
}

struct Job {
    memory: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

impl Shares {
    /// `connections` are there at a time for all jobs together.
    pub(super) fn new(connections: usize) -> Self {
        let connections = CONNECTIONS.min(connections / 2);
        Self { total: Arc::new(Semaphore::new(TOTAL / UNIT)), connections, jobs: Mutex::default() }
    }

    /// Waits until there is room for a message of so many bytes, at most [`super::LARGE_BODY`].
    pub(super) async fn memory(&self, id: AssignmentId, bytes: usize) -> Option<Memory> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        // First the own part, so that a job that floods stands in its own line and not in everybody's.
        let job = self.job(id);
        let of_one = Arc::clone(&job.memory).acquire_many_owned(units).await.ok()?;
        let of_all = match bytes {
            0..=SMALL => None,
            _ => Some(Arc::clone(&self.total).acquire_many_owned(units).await.ok()?),
        };
        Some(Memory { _of_one: of_one, _of_all: of_all, _job: job })
    }

    /// One more connection of this job, unless it has too many.
    pub(super) fn seat(&self, id: AssignmentId) -> Option<Seat> {
        let job = self.job(id);
        let permit = Arc::clone(&job.connections).try_acquire_owned().ok()?;
        Some(Seat { _permit: permit, _job: job })
    }

    /// What a job has in use is remembered as long as it uses something.
    fn job(&self, id: AssignmentId) -> Arc<Job> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = jobs.get(&id).and_then(Weak::upgrade) {
            return job;
        }
        jobs.retain(|_, job| job.strong_count() > 0);
        let job = Arc::new(Job {
            memory: Arc::new(Semaphore::new(OF_ONE / UNIT)),
            connections: Arc::new(Semaphore::new(self.connections)),
        });
        jobs.insert(id, Arc::downgrade(&job));
        job
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use futures::FutureExt as _;

    use super::*;

    fn id(task: i64) -> AssignmentId {
        format!("gitea-task-{task}").parse().unwrap()
    }

    const LARGE: usize = super::super::LARGE_BODY;

    /// NEW-98, F104, T27: one job that floods waits for itself; all others get their part, and what it gave back it can
    /// have again.
    #[test]
    fn a_flood_waits_for_itself() {
        let shares = Shares::new(1024);
        let take = |task, bytes| shares.memory(id(task), bytes).now_or_never().flatten();
        let mut first = vec![take(1, LARGE).unwrap(), take(1, LARGE).unwrap()];
        assert!(take(1, LARGE).is_none());
        assert!(take(1, 1).is_none(), "it stands in its own line");
        let _second = take(2, LARGE).unwrap();
        first.pop();
        assert!(take(1, LARGE).is_some());
    }

    /// NEW-98: many that flood leave the small calls of the others alone, and stay inside the total.
    #[test]
    fn many_floods_leave_small_calls_alone() {
        let shares = Shares::new(1024);
        let take = |task, bytes| shares.memory(id(task), bytes).now_or_never().flatten();
        let all: Vec<_> = (1..=TOTAL / LARGE).map(|task| take(i64::try_from(task).unwrap(), LARGE).unwrap()).collect();
        assert!(take(1000, LARGE).is_none());
        assert!(take(1001, SMALL).is_some());
        drop(all);
        assert!(take(1000, LARGE).is_some());
    }

    /// NEW-98: connections are counted per job.
    #[test]
    fn connections_are_counted() {
        let shares = Shares::new(1024);
        let seats: Vec<_> = (0..CONNECTIONS).map(|_| shares.seat(id(1)).unwrap()).collect();
        assert!(shares.seat(id(1)).is_none());
        assert!(shares.seat(id(2)).is_some());
        drop(seats);
        assert!(shares.seat(id(1)).is_some());
        let few = Shares::new(4);
        let _half = [few.seat(id(1)).unwrap(), few.seat(id(1)).unwrap()];
        assert!(few.seat(id(1)).is_none() && few.seat(id(2)).is_some());
    }
}
