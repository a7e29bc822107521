//! The connections to a real nats-server that refuses, goes, comes back, stands still.
#![expect(clippy::unwrap_used, reason = "tests")]

mod outages;
mod refusals;
mod rights;

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::real::{NatsServer, NatsSettings, Seen, eventually};

use super::*;
use crate::config::SecretFile;
use crate::config::nats::{NatsUrl, StreamName, SubjectBase};
use crate::config::secret::SecretRule;

const PRODUCER: &str = "password-of-the-producer";
const WORKER: &str = "password-of-the-worker";
const SOON: Duration = Duration::from_secs(20);

/// Short enough for a test, and long enough for two busy cores.
fn quick() -> Times {
    Times { silence: Duration::from_secs(3), pause: Duration::from_millis(500), ..Times::default() }
}

/// A folder with the password files, and settings of NATS.
struct Bench {
    dir: tempfile::TempDir,
    nats: Nats,
}

impl Bench {
    /// The logins that [`users`] knows.
    fn new(servers: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let login = |user: &str, password: &str| {
            let path = dir.path().join(user);
            std::fs::write(&path, password).unwrap();
            Login { user: user.to_owned(), password: SecretFile::read(&path, SecretRule::Text).ok().unwrap() }
        };
        let nats = Nats {
            servers: servers.iter().map(|server| NatsUrl::parse(server).unwrap()).collect(),
            ca: None,
            stream: StreamName::parse("CI_RUNNER").unwrap(),
            subject_base: SubjectBase::parse("ci.runner").unwrap(),
            accept_v1: false,
            producer: login("ci-producer", PRODUCER),
            worker: login("ci-worker", WORKER),
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { dir, nats }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn producer(&self) -> Connection {
        Connection::open(&self.nats, Role::Producer, quick()).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Why the producer cannot connect.
    async fn refused(&self) -> ConnectError {
        self.refused_within(quick()).await
    }

    async fn refused_within(&self, times: Times) -> ConnectError {
        let Err(error) = Connection::open(&self.nats, Role::Producer, times).await else { panic!("connected") };
        error
    }
}

fn users() -> NatsSettings {
    NatsSettings::default().with_user("ci-producer", PRODUCER).with_user("ci-worker", WORKER)
}

/// Whether a request to JetStream is answered.
async fn works(connection: &Connection) -> bool {
    let context = async_nats::jetstream::new(connection.client().clone());
    connection.is_connected() && context.query_account().await.is_ok()
}

/// Waits until `trouble` says so.
async fn until(
    what: &str,
    limit: Duration,
    connection: &Connection,
    good: impl Fn(Option<&str>) -> bool,
) -> Option<String> {
    eventually(what, limit, async || {
        let trouble = connection.trouble();
        Ok(if good(trouble.as_deref()) { Seen::Done(trouble) } else { Seen::NotYet(format!("{trouble:?}")) })
    })
    .await
    .unwrap()
}
