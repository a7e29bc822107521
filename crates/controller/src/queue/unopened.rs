//! Messages that do not open: wrong key, other version, damaged, forged (NEW-38, NEW-51, F23).
//!
//! They are neither lost nor run. Each is tried again with a delay, counted, and shown. One whose number is proven
//! otherwise has a life on the board and ends with a reason like every task that waited too long; of the others nobody
//! may say anything to Gitea, since whoever wrote them may have chosen the number. After the same wait they are taken
//! out of the queue, and a record without secrets stays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use domain::capability::KeyRing;
use domain::id::{AssignmentId, PayloadDigest};
use domain::reason::Reason;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ops::metrics::Metrics;
use crate::ops::status::SetApart;
use crate::queue::ledger::{self, Entry, Kind, Ledger};
use crate::queue::{Disposition, Queue, QueueError, Waiting};

/// Pause before the next try; keys and programs are changed by people.
pub const RETRY: SignedDuration = SignedDuration::from_secs(60);

/// A try to open what waits.
pub struct Tried {
    at: Timestamp,
    /// Only to know them again: keys that were replaced are not kept.
    keys: Weak<KeyRing>,
}

impl Tried {
    /// With these keys.
    #[must_use]
    pub fn now(at: Timestamp, keys: &Arc<KeyRing>) -> Self {
        Self { at, keys: Arc::downgrade(keys) }
    }

    /// Whether `next` may bring something new: there are other keys, or [`RETRY`] has passed, so that what still does not open
    /// goes on being counted and told (ENV-7).
    #[must_use]
    pub fn is_past(&self, next: &Self) -> bool {
        !self.keys.ptr_eq(&next.keys) || next.at.duration_since(self.at) >= RETRY
    }
}

/// What is kept of a message that was set aside: nothing that was inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    id: AssignmentId,
    digest: PayloadDigest,
    bytes: usize,
    class: String,
    enqueued_at: Timestamp,
}

impl Record {
    fn shown(&self, since: Timestamp) -> SetApart {
        let Self { id, digest, bytes, class, .. } = self;
        let reason = format!("its message did not open: {class} (payload {digest}, {bytes} bytes sealed)");
        SetApart { name: id.to_string(), reason, since: Some(since) }
    }
}

/// The messages that do not open, and the records of those that were set aside.
pub struct Unopened {
    ledger: Arc<dyn Ledger>,
    metrics: Metrics,
    waiting: Mutex<BTreeMap<AssignmentId, Record>>,
    set_aside: Mutex<BTreeMap<String, SetApart>>,
}

impl Unopened {
    /// With the records of former processes.
    ///
    /// # Errors
    ///
    /// See [`QueueError`].
    pub async fn load(ledger: Arc<dyn Ledger>, metrics: Metrics) -> Result<Self, QueueError> {
        let records = ledger.list(Kind::SetAside).await?.into_iter().filter_map(|entry| {
            let record: Record = serde_json::from_str(&entry.value).ok()?;
            Some((entry.key, record.shown(entry.at)))
        });
        let set_aside = Mutex::new(records.collect());
        let this = Self { ledger, metrics, waiting: Mutex::default(), set_aside };
        this.metrics.set_aside(locked(&this.set_aside).len());
        Ok(this)
    }

    /// What was set aside, for `status`.
    #[must_use]
    pub fn set_aside(&self) -> Vec<SetApart> {
        locked(&self.set_aside).values().cloned().collect()
    }

    /// A message did not open; `class` is one word.
    pub fn failed(&self, class: &'static str) {
        self.metrics.unopened(class);
    }

    /// A former process left this message, and nothing proves its number.
    pub fn found(&self, row: &Waiting, class: &str) {
        let Waiting { id, digest, body, enqueued_at, .. } = row;
        let (digest, class) = (digest.clone(), class.to_owned());
        let record = Record { id: *id, digest, bytes: body.len(), class, enqueued_at: *enqueued_at };
        locked(&self.waiting).insert(*id, record);
    }

    /// Whether any message waits to be opened that nobody may say anything of.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !locked(&self.waiting).is_empty()
    }

    /// Whether this is one of those.
    #[must_use]
    pub fn holds(&self, row: &Waiting) -> bool {
        locked(&self.waiting).get(&row.id).is_some_and(|record| record.digest == row.digest)
    }

    /// It opened after all.
    pub fn opened(&self, id: AssignmentId) {
        locked(&self.waiting).remove(&id);
    }

    /// Sets aside what has waited for `limit`: first the record, then the message goes.
    ///
    /// # Errors
    ///
    /// See [`QueueError`]; what was not done is done in the next pass.
    pub async fn pass(&self, queue: &dyn Queue, now: Timestamp, limit: SignedDuration) -> Result<(), QueueError> {
        let overdue: Vec<Record> = {
            let waiting = locked(&self.waiting);
            waiting.values().filter(|record| now.duration_since(record.enqueued_at) >= limit).cloned().collect()
        };
        for record in overdue {
            let key = ledger::life(record.id, &record.digest);
            let value = serde_json::to_string(&record).unwrap_or_default();
            self.ledger.put(Kind::SetAside, Entry { key: key.clone(), value, at: now }).await?;
            let message = super::Key { id: record.id, digest: record.digest.clone() };
            queue.settle(message, Disposition::Reject { reason: Reason::Internal }).await?;
            tracing::error!(
                component = "worker",
                assignment = %record.id,
                task_id = record.id.task().get(),
                class = record.class,
                "message set aside: it never opened; Gitea ends the task by its own time-out"
            );
            locked(&self.waiting).remove(&record.id);
            let mut set_aside = locked(&self.set_aside);
            set_aside.insert(key, record.shown(now));
            self.metrics.set_aside(set_aside.len());
        }
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call on a map: a panic leaves no half of it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use domain::capability::Key;

    use super::*;

    /// NEW-38, ENV-7, F23: what did not open is tried again with other keys at once, and with the same ones after a minute.
    #[test]
    fn when_it_is_tried_again() {
        let keys = |letter: &str| Arc::new(KeyRing::new(Key::new(letter.repeat(32).as_bytes()).unwrap(), None));
        let (these, others, begun) = (keys("1"), keys("2"), Timestamp::from_second(1_900_000_000).unwrap());
        let tried = Tried::now(begun, &these);
        let after = |seconds, keys: &Arc<KeyRing>| Tried::now(begun + SignedDuration::from_secs(seconds), keys);
        assert!(!tried.is_past(&after(0, &these)) && !tried.is_past(&after(59, &these)));
        assert!(tried.is_past(&after(60, &these)));
        assert!(tried.is_past(&after(0, &others)));
        drop(these);
        assert!(tried.is_past(&after(0, &keys("1"))), "another ring in the place of the former one");
    }
}
