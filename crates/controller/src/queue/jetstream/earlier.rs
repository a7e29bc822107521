//! The subject on which the earlier controller left its messages (requirements §1.3; NEW-41, F27), in the same stream as
//! ours. It is read by place: no consumer takes part, whatever the earlier one's had given up is found, and nothing goes but
//! by [`EarlierSubject::remove`].
//!
//! | call | fails | hangs | carried out without an answer |
//! |---|---|---|---|
//! | next, taker | nothing has changed | 5 s, then the same | the same |
//! | remove | the message stays, and is judged again | 5 s, then the same | the repeat finds nothing to do |

use std::sync::Arc;

use async_nats::jetstream::ErrorCode;
use domain::id::Backend;
use jiff::Timestamp;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::names::Names;
use super::{Inner, JetStream, stream};
use crate::queue::QueueError;

/// What the earlier controller left for one backend. Cloning gives another handle.
#[derive(Clone)]
pub struct EarlierSubject {
    inner: Arc<Inner>,
    backend: Backend,
    end: u64,
}

/// A message that was left there. No `Debug`: it holds a task in clear.
pub struct Left {
    /// Its place in the stream.
    pub place: u64,
    /// When it was stored: the earlier controller did so as soon as Gitea had handed the task out.
    pub stored_at: Timestamp,
    /// It was there before this process was; what comes later proves that somebody still writes.
    pub in_time: bool,
    /// The envelope, with the task and its secrets in clear.
    pub body: Zeroizing<Vec<u8>>,
}

impl JetStream {
    /// The earlier controller's subject of a backend, with the end of what is taken from it: the last place that the stream
    /// has now.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub async fn earlier(&self, backend: Backend) -> Result<EarlierSubject, QueueError> {
        let (_, end) = stream::info(&self.inner.producer, &self.inner.names.stream).await?.places();
        Ok(EarlierSubject { inner: Arc::clone(&self.inner), backend, end })
    }
}

impl EarlierSubject {
    /// For one backend.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The subject, for people.
    #[must_use]
    pub fn subject(&self) -> String {
        self.inner.names.earlier_subject(self.backend)
    }

    /// The stream it lies in, for people.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.inner.names.stream
    }

    /// The first message at this place or behind it.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub async fn next(&self, from: u64) -> Result<Option<Left>, QueueError> {
        let lying = self.inner.worker.next(self.stream(), &self.subject(), from).await?;
        Ok(lying.map(|lying| Left {
            place: lying.sequence,
            stored_at: lying.time,
            in_time: lying.sequence < self.end,
            body: Zeroizing::new(lying.body),
        }))
    }

    /// Takes a message out for good: its bytes are overwritten at the server. One that is gone is `Ok`.
    ///
    /// # Errors
    /// See [`QueueError`]; none of a process that may decide nothing is carried out.
    pub async fn remove(&self, place: u64) -> Result<(), QueueError> {
        self.inner.still_leads()?;
        Ok(self.inner.worker.erase(self.stream(), place).await?)
    }

    /// The consumer of the earlier controller, while somebody waits at it for messages: then that controller runs, and works
    /// on what we would take.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub async fn taker(&self) -> Result<Option<String>, QueueError> {
        #[derive(Deserialize)]
        struct Info {
            #[serde(default)]
            num_waiting: u64,
            #[serde(default)]
            push_bound: bool,
        }
        let durable = Names::earlier_durable(self.backend);
        match self.inner.worker.ask_for::<Info>(&format!("CONSUMER.INFO.{}.{durable}", self.stream())).await {
            Ok(Info { num_waiting: 0, push_bound: false }) => Ok(None),
            Ok(_) => Ok(Some(durable)),
            Err(failure) if failure.is(ErrorCode::CONSUMER_NOT_FOUND) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }
}
