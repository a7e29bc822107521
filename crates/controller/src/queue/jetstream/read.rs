//! What lies in the stream, known without a delivery (NEW-157), and whether it is ours (NEW-41, PRC-2).

use domain::id::{AssignmentId, Backend};

use super::Inner;
use super::api::Lying;
use super::records::TRIES;
use super::shelf::Tries;
use crate::queue::ledger::Ledger as _;
use crate::queue::{Key, QueueError, Waiting};

impl Inner {
    /// What former processes left: where each message lies, and its failed tries.
    pub(super) async fn remember(&self) -> Result<(), QueueError> {
        for record in self.records.read_all(TRIES).await? {
            let tries = serde_json::from_str::<Tries>(&record.value);
            if let (Some(key), Ok(tries)) = (key_of_life(&record.key), tries) {
                self.shelf().recall(key, tries);
            }
        }
        for backend in self.backends.clone() {
            self.read(backend, |key, lying| self.shelf().lies(&key, lying.sequence)).await?;
        }
        Ok(())
    }

    /// Every message of a backend that is not over, oldest first, by reading: that delivers none (NEW-157).
    async fn read(&self, backend: Backend, mut each: impl FnMut(Key, Lying)) -> Result<(), QueueError> {
        let (stream, subject) = (&self.names.stream, self.names.subject(backend));
        let mut from = 1;
        while let Some(lying) = self.worker.next(stream, &subject, from).await? {
            from = lying.sequence.saturating_add(1);
            let key = self.ours(lying.id.as_deref(), backend, lying.sequence)?;
            if self.records.is_ended(key.id, &key.digest).await? {
                self.worker.delete(stream, lying.sequence).await?;
            } else {
                each(key, lying);
            }
        }
        Ok(())
    }

    pub(super) async fn list(&self, backend: Backend) -> Result<Vec<Waiting>, QueueError> {
        let mut all = Vec::new();
        self.read(backend, |key, lying| {
            let mut shelf = self.shelf();
            shelf.lies(&key, lying.sequence);
            let tries = shelf.tries(&key);
            all.push(Waiting {
                attempts: tries.map_or(0, |tries| tries.attempts),
                next_try: tries.map_or(lying.time, |tries| tries.next_try),
                last_error: tries.map(|tries| tries.last_error.clone()),
                enqueued_at: lying.time,
                leased: shelf.lease(&key).is_some(),
                body: lying.body,
                id: key.id,
                digest: key.digest,
            });
        })
        .await?;
        Ok(all)
    }

    /// Nothing is taken past a message that is not ours (NEW-41, PRC-2).
    pub(super) fn ours(&self, id: Option<&str>, backend: Backend, place: u64) -> Result<Key, QueueError> {
        id.and_then(|id| self.names.key(id)).ok_or_else(|| {
            let (stream, subject) = (&self.names.stream, self.names.subject(backend));
            let migration = id.and_then(|id| id.parse::<AssignmentId>().ok()).map_or_else(String::new, |_| {
                let earlier = self.names.earlier_subject(backend);
                format!(
                    " (it has an id of the earlier controller, whose messages are never taken from here: \
                     ENVELOPE_ACCEPT_V1=true takes them from {earlier})"
                )
            });
            QueueError::Unusable {
                cause: format!("message {place} of stream {stream} on {subject} was not written by this instance"),
                remedy: format!(
                    "find out who writes there; `nats stream get {stream} {place}` shows it, and `nats stream rmm {stream} \
                     {place}` removes it{migration}. Nothing is started until then"
                ),
            }
        })
    }
}

/// The message whose records have this key.
fn key_of_life(text: &str) -> Option<Key> {
    let (id, digest) = text.split_once('.')?;
    Some(Key { id: id.parse().ok()?, digest: digest.to_owned().try_into().ok()? })
}
