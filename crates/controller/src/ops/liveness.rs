//! Whether a restart would help (NEW-131): only then is the process not alive.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The loops that must turn. Clones share the list.
#[derive(Clone)]
pub struct Liveness {
    start: Instant,
    loops: Arc<Mutex<Vec<Watched>>>,
}

struct Watched {
    name: &'static str,
    limit: Duration,
    turned: Arc<AtomicU64>,
}

/// Held by one loop, which says each time that it turned. Dropping it does not end the watch: a loop that ends without
/// ending the process is what is watched for.
#[derive(Clone)]
pub struct Turn {
    start: Instant,
    turned: Arc<AtomicU64>,
}

impl Turn {
    /// The loop turned.
    pub fn turned(&self) {
        self.turned.store(millis(self.start.elapsed()), Ordering::Relaxed);
    }
}

impl Default for Liveness {
    fn default() -> Self {
        Self { start: Instant::now(), loops: Arc::default() }
    }
}

impl Liveness {
    /// Watches a loop that turns at least every `limit`, its own deadlines included.
    pub fn watch(&self, name: &'static str, limit: Duration) -> Turn {
        let turn = Turn { start: self.start, turned: Arc::default() };
        turn.turned();
        let watched = Watched { name, limit, turned: Arc::clone(&turn.turned) };
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
        turn
    }

    /// The loops that have not turned for longer than their limit.
    #[must_use]
    pub fn stuck(&self) -> Vec<&'static str> {
        self.stuck_at(self.start.elapsed())
    }

    fn stuck_at(&self, elapsed: Duration) -> Vec<&'static str> {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let late = |w: &&Watched| millis(elapsed) > w.turned.load(Ordering::Relaxed).saturating_add(millis(w.limit));
        loops.iter().filter(late).map(|w| w.name).collect()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T73, NEW-131, F136: a loop that stands still is named, and is forgiven when it turns again.
    #[test]
    fn a_loop_that_stands_still() {
        let running = Duration::from_secs(600);
        let liveness = Liveness { start: Instant::now() - running, loops: Arc::default() };
        let turn = liveness.watch("reap", Duration::from_secs(60));
        assert!(liveness.stuck_at(running + Duration::from_secs(59)).is_empty());
        assert_eq!(liveness.stuck_at(running + Duration::from_secs(90)), ["reap"]);
        turn.turned();
        assert!(liveness.stuck().is_empty());
    }
}
