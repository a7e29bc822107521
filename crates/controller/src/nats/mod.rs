//! The two connections to NATS (CFG-3): one publishes, one consumes, each as a user with its own rights, and nothing of
//! one is ever done through the other.
//!
//! What can happen to a connection, and what follows:
//!
//! | what happens | what follows |
//! |---|---|
//! | no server can be reached at the start | tried again with growing pauses for 30 s, then [`ConnectError`] with the last cause |
//! | the start is refused: login, certificate, rights, no JetStream in the account | [`ConnectError`] at once: no second try would change it |
//! | the connection ends, or a server says nothing for 9 s | [`Connection::trouble`] until one is connected again; tried for ever, 3.6 s apart at most (NEW-47) |
//! | a request is to be made meanwhile | whoever makes it waits for [`Connection::is_connected`] or gives up, because the client would keep it and send it later. One that slips in ends after 5 s, and may be carried out all the same |
//! | a request is not answered | an error after 5 s; it may have been carried out |
//! | a server refuses the login later, for example since the password was changed | as if no server could be reached: the next try hands out the newest password |
//!
//! Names of one role: `gitea-dynamic-runner-producer` is the client's name, and its answers come to
//! `_INBOX.gitea-dynamic-runner-producer.>`; the worker's likewise. A user of the producer needs at least the right to
//! subscribe to that and to publish to `$JS.API.INFO`, which the start asks to know that JetStream is there.
//!
//! Only the servers of the setting are used, never others that a server tells of: it tells them before it has shown its
//! certificate. Authorities are read from their file for each connection.

mod connection;
mod error;
mod health;
mod options;
mod password;
#[cfg(test)]
mod tests;

pub use connection::Connection;
pub use error::{Cause, ConnectError};
pub use options::Times;
pub use password::Password;

use std::sync::Arc;

use async_nats::jetstream::ErrorCode;

use crate::config::nats::{Login, Nats};
use crate::config::table;
use crate::ops::metrics::Metrics;
use crate::ops::readiness::Readiness;

/// What is stored lies on so many servers, where there are as many.
pub(crate) const REPLICAS: usize = 3;

/// What JetStream says where there are fewer.
pub(crate) const TOO_FEW_SERVERS: [ErrorCode; 3] =
    [ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED, ErrorCode::INSUFFICIENT_RESOURCES, ErrorCode::CLUSTER_NO_PEERS];

/// What can be done where it lies on fewer.
pub(crate) const FEW_REPLICAS: &str = "let three servers of the cluster run and start again, with the right to STREAM.UPDATE, or do it by hand (nats stream edit)";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Publishes tasks.
    Producer,
    /// Consumes them.
    Worker,
}

impl Role {
    /// The word in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Worker => "worker",
        }
    }

    /// The name the server shows (requirements §1.3).
    #[must_use]
    pub fn client_name(self) -> &'static str {
        match self {
            Self::Producer => "gitea-dynamic-runner-producer",
            Self::Worker => "gitea-dynamic-runner-worker",
        }
    }

    /// What the subjects of answers begin with, one more token each: rights can be as narrow as that.
    #[must_use]
    pub fn inbox_prefix(self) -> String {
        format!("_INBOX.{}", self.client_name())
    }

    /// The settings of its user and its password.
    #[must_use]
    pub fn settings(self) -> [&'static str; 2] {
        match self {
            Self::Producer => [table::NATS_PRODUCER_USER.name, table::NATS_PRODUCER_PASSWORD_FILE.name],
            Self::Worker => [table::NATS_WORKER_USER.name, table::NATS_WORKER_PASSWORD_FILE.name],
        }
    }

    pub(crate) fn login(self, nats: &Nats) -> &Login {
        match self {
            Self::Producer => &nats.producer,
            Self::Worker => &nats.worker,
        }
    }
}

/// Both connections.
pub struct Connections {
    /// The one that publishes.
    pub producer: Arc<Connection>,
    /// The one that consumes.
    pub worker: Arc<Connection>,
}

impl Connections {
    /// Opens both, side by side.
    ///
    /// # Errors
    /// Of the first one that fails, within 30 s.
    pub async fn open(nats: &Nats) -> Result<Self, ConnectError> {
        let open = async |role| Connection::open(nats, role, Times::default()).await.map(Arc::new);
        let (producer, worker) = tokio::try_join!(open(Role::Producer), open(Role::Worker))?;
        Ok(Self { producer, worker })
    }

    fn both(&self) -> [&Connection; 2] {
        [&self.producer, &self.worker]
    }

    /// What is wrong with either; none while both are connected.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let troubles: Vec<_> = self.both().into_iter().filter_map(Connection::trouble).collect();
        (!troubles.is_empty()).then(|| troubles.join("; "))
    }

    /// Shows both as they are now (NEW-47, NEW-131). To be called every few seconds.
    pub fn show(&self, metrics: &Metrics, readiness: &Readiness) {
        for connection in self.both() {
            metrics.nats_connected(connection.role(), connection.is_connected());
        }
        let trouble = self.trouble();
        readiness.set(|conditions| conditions.connection_trouble = trouble);
    }
}
