//! Into the stream: one message per task, also when an answer was lost (PUB-1, PUB-2, NEW-39).

use async_nats::header::{HeaderMap, NATS_MESSAGE_ID};

use super::Inner;
use super::api::Stored;
use super::failure::Failure;
use crate::queue::ledger::Ledger as _;
use crate::queue::{Key, Message, Published, QueueError};

impl Inner {
    /// The tombstone is read beside the storing and not before it: until the task is stored it is in our memory only
    /// (SCH-15). What was stored although there is one starts nothing meanwhile: whoever reads the stream or is handed the
    /// message looks for the tombstone himself, and takes the message out.
    pub(super) async fn publish(&self, message: Message) -> Result<Published, QueueError> {
        let key = Key { id: message.id, digest: message.digest.clone() };
        let _turn = self.publishing.lock().await;
        let (ended, stored) = tokio::join!(self.records.is_ended(key.id, &key.digest), self.store_once(&message, &key));
        match ended {
            Ok(false) => stored,
            Ok(true) => {
                if stored.is_ok()
                    && let Err(error) = self.remove(&key).await
                {
                    tracing::debug!(component = "queue", assignment = %key.id, %error, "taken out by whoever meets it");
                }
                Err(QueueError::Ended { id: key.id, digest: key.digest })
            }
            // Stored or not, whether it may be is not known: published again, which finds what is stored.
            Err(unknown) => Err(stored.err().unwrap_or(unknown)),
        }
    }

    async fn store_once(&self, message: &Message, key: &Key) -> Result<Published, QueueError> {
        let known = self.shelf().of(key.id);
        if let Some((stored, place)) = known {
            if self.lies_at(&stored, place).await? {
                return same(stored, key.clone());
            }
            self.shelf().forget(&stored);
        }
        // An id that the server remembers is that of an answer that was lost, or of a message that is gone: believed after
        // comparing, else published under one more id (PUB-2). Each round knows a later place, so they end.
        let mut remembered = None;
        let place = loop {
            let stored = self.store(message, key, remembered).await?;
            if !stored.duplicate {
                break stored.sequence;
            }
            if self.lies_at(key, stored.sequence).await? {
                self.shelf().lies(key, stored.sequence);
                return Ok(Published::Duplicate);
            }
            remembered = Some(stored.sequence);
        };
        self.shelf().lies(key, place);
        Ok(Published::New)
    }

    pub(super) async fn store(&self, message: &Message, key: &Key, again: Option<u64>) -> Result<Stored, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, self.names.message_id(key, again));
        // Another stream that takes our subjects must not swallow a task.
        headers.insert("Nats-Expected-Stream", self.names.stream.as_str());
        self.producer.publish(&self.names.subject(message.backend), headers, message.body.clone().into()).await
    }

    /// Whether the message of this life lies there.
    pub(super) async fn lies_at(&self, key: &Key, place: u64) -> Result<bool, QueueError> {
        let lying = self.worker.at(&self.names.stream, place).await?;
        Ok(lying.and_then(|lying| self.names.key(&lying.id?)).as_ref() == Some(key))
    }
}

fn same(stored: Key, offered: Key) -> Result<Published, QueueError> {
    if stored == offered {
        return Ok(Published::Duplicate);
    }
    Err(QueueError::Conflict { id: offered.id, stored: stored.digest, offered: offered.digest })
}
