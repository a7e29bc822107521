//! Out of the stream, to somebody with a free slot: each message to one hand at a time (NEW-34, NEW-43, CON-3, CON-4).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::api::Handed;
use super::failure::Failure;
use super::shelf::Turn;
use super::{Inner, consumer};
use crate::lease::Act;
use crate::queue::ledger::Ledger as _;
use crate::queue::{Delivery, Key, QueueError};
use domain::id::Backend;

/// How often a consumer without a leader is asked again.
const LEADER_YET: Duration = Duration::from_millis(50);

impl Inner {
    pub(super) async fn pull(this: &Arc<Self>, backend: Backend, now: Timestamp) -> Result<Option<Leased>, QueueError> {
        let durable = this.names.durable(backend);
        loop {
            // The consumer has the same name for whoever leads: what is taken by one who does no longer would be nobody's
            // until its time for an acknowledgement is over.
            this.still_leads()?;
            let handed = this.next(&durable, backend).await?;
            let Some(handed) = handed else { return Ok(None) };
            match this.judge(&handed, backend, now).await {
                Ok(Some((key, attempts))) => return Ok(Some(Leased::new(this, key, attempts, handed))),
                Ok(None) => {}
                Err(error) => {
                    this.worker.give_back(&handed.reply, Duration::ZERO).await;
                    return Err(error);
                }
            }
        }
    }

    /// Whoever does not lead decides nothing of a message.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn still_leads(&self) -> Result<(), QueueError> {
        let permitted = self.tenure.as_ref().map_or(Ok(()), |tenure| tenure.permits(Act::Decide));
        permitted
            .map_err(|fenced| QueueError::Unavailable { cause: format!("this process may decide nothing: {fenced}") })
    }

    /// What the consumer hands out. Somebody may have removed it (CON-4), of which an old server says nothing: it is set
    /// right, and asked again. One that was just made in a cluster is answered for a moment by nobody.
    async fn next(&self, durable: &str, backend: Backend) -> Result<Option<Handed>, QueueError> {
        let (stream, patience) = (&self.names.stream, Instant::now() + self.pace.answer);
        match self.worker.pull(stream, durable).await {
            Err(failure @ (Failure::Nobody { .. } | Failure::Refused { .. } | Failure::Silent { .. })) => {
                tracing::debug!(component = "queue", consumer = durable, ?failure, "nobody hands out");
                let _turn = self.shaping.lock().await;
                consumer::set_right(&self.worker, &self.names, self.pace.ack_wait, backend).await?;
            }
            other => return Ok(other?),
        }
        loop {
            match self.worker.pull(stream, durable).await {
                Err(Failure::Nobody { .. }) if Instant::now() < patience => tokio::time::sleep(LEADER_YET).await,
                other => return Ok(other?),
            }
        }
    }

    /// What becomes of a message that the server handed out: leased, with its failed tries, or not now.
    async fn judge(&self, handed: &Handed, backend: Backend, now: Timestamp) -> Result<Option<(Key, u32)>, QueueError> {
        let key = self.ours(handed.id.as_deref(), backend, handed.sequence)?;
        let turn = self.shelf().handed(&key, handed.sequence, handed.reply.clone(), now);
        let attempts = match turn {
            Turn::Leased { attempts } => attempts,
            Turn::Joined => return Ok(None),
            Turn::NotYet { pause } => {
                self.worker.give_back(&handed.reply, pause).await;
                return Ok(None);
            }
        };
        // With the lease in hand: a settlement under way has either written its tombstone by now, or was joined.
        let ended = match self.records.is_ended(key.id, &key.digest).await {
            Ok(true) => self.remove(&key).await.map(|()| true),
            other => other,
        };
        match ended {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some((key, attempts))),
            Err(error) => {
                self.shelf().release(&key);
                Err(error)
            }
        }
    }
}

/// A delivery on its way to the caller. When the caller is gone before it arrives, it is given back.
pub(super) struct Leased {
    inner: Arc<Inner>,
    delivery: Option<Delivery>,
}

impl Leased {
    fn new(inner: &Arc<Inner>, Key { id, digest }: Key, attempts: u32, handed: Handed) -> Self {
        let delivery = Some(Delivery { id, digest, attempts, body: handed.body.into() });
        Self { inner: Arc::clone(inner), delivery }
    }

    pub(super) fn keep(mut self) -> Option<Delivery> {
        self.delivery.take()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let (Some(delivery), Ok(runtime)) = (self.delivery.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let inner = Arc::clone(&self.inner);
        runtime.spawn(async move { inner.put_back(&delivery.key(), Duration::ZERO).await });
    }
}
