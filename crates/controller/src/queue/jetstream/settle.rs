//! What became of a message: it goes, or it comes again (PRC-9, NEW-45, NEW-46, NEW-52).

use std::time::Duration;

use jiff::Timestamp;

use super::Inner;
use super::records::TRIES;
use crate::queue::ledger::{Entry, Kind, Ledger as _, life};
use crate::queue::{Disposition, Key, QueueError};

impl Inner {
    pub(super) async fn settle(&self, key: Key, disposition: Disposition) -> Result<(), QueueError> {
        match disposition {
            Disposition::Ack => self.bury(&key, "acknowledged").await,
            // Not a fact about the task, as an acknowledgement is, but what a leader makes of a message.
            Disposition::Reject { reason } => {
                self.still_leads()?;
                tracing::info!(assignment = %key.id, %reason, "message rejected");
                self.bury(&key, reason.as_str()).await
            }
            Disposition::Retry { at, error } => self.retry(&key, at, error).await,
            Disposition::Release => {
                self.put_back(&key, Duration::ZERO).await;
                Ok(())
            }
        }
    }

    /// The record first: a message that comes back without it would be tried at once, as if nothing had been. Without room for
    /// it this process remembers the try all the same, and the message is in nobody's hand.
    async fn retry(&self, key: &Key, at: Timestamp, error: String) -> Result<(), QueueError> {
        let Some(tries) = self.shelf().failed(key, at, error) else { return Ok(()) };
        let value = serde_json::to_string(&tries).unwrap_or_default();
        let record = Entry { key: life(key.id, &key.digest), value, at: self.clock.now() };
        match self.records.write(TRIES, &record).await {
            Ok(()) | Err(QueueError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        self.shelf().recall(key.clone(), tries);
        let pause = Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default();
        self.put_back(key, pause).await;
        Ok(())
    }

    pub(super) async fn put_back(&self, key: &Key, pause: Duration) {
        let lease = self.shelf().release(key);
        if let Some(reply) = lease {
            self.worker.give_back(&reply, pause).await;
        }
    }

    /// Tombstone, then the message, then what was noted about it. Without room for a tombstone it goes all the same: a
    /// full server must be able to empty itself. Also where no message is known: a publish whose answer was lost may have
    /// left one, and the tombstone meets it when it comes.
    async fn bury(&self, key: &Key, outcome: &str) -> Result<(), QueueError> {
        let tombstone = Entry { key: life(key.id, &key.digest), value: outcome.to_owned(), at: self.clock.now() };
        match self.records.put_if_absent(Kind::Tombstone, tombstone).await {
            Ok(_) | Err(QueueError::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        self.remove(key).await
    }

    /// The message goes, and what was noted about its tries. It is read before anything is done with its place, which may be
    /// that of another message when the stream was made anew, and once more after an acknowledgement, which may be answered
    /// without an effect, or not at all, when the consumer was made anew. Whoever says that a task has begun or ended states a fact about the
    /// task; so a message that is not ours to acknowledge is taken out by its place.
    pub(super) async fn remove(&self, key: &Key) -> Result<(), QueueError> {
        let (lease, place) = {
            let shelf = self.shelf();
            (shelf.lease(key), shelf.place(key))
        };
        if let Some(place) = place
            && self.lies_at(key, place).await?
        {
            let still_there = match lease {
                Some(reply) => {
                    if let Err(failure) = self.worker.acknowledge(&reply).await {
                        tracing::warn!(
                            component = "queue",
                            assignment = %key.id,
                            ?failure,
                            "no answer to an acknowledgement; the message is taken out by its place"
                        );
                    }
                    self.lies_at(key, place).await?
                }
                None => true,
            };
            if still_there {
                self.worker.delete(&self.names.stream, place).await?;
            }
        }
        if self.shelf().tries(key).is_some() {
            self.records.erase(TRIES, &life(key.id, &key.digest)).await?;
        }
        self.shelf().forget(key);
        Ok(())
    }
}
