//! A NATS server with the users that a controller needs, and one of the tests' own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;

use super::{Queue, Reader};
use crate::real::{Error, NatsServer, NatsSettings, Signal};

/// The names that a controller uses on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// `NATS_STREAM`.
    pub stream: String,
    /// `NATS_SUBJECT_BASE`.
    pub base: String,
    /// `INSTANCE_ID`; none: the one that the controller derives, and nobody else uses the stream.
    pub instance: Option<String>,
}

impl Names {
    /// The program's own, for one who is alone on a server.
    #[must_use]
    pub fn alone() -> Self {
        Self { stream: "CI_RUNNER".to_owned(), base: "ci.runner".to_owned(), instance: None }
    }
}

/// The test's own user, who may do anything.
const JUDGE: (&str, &str) = ("judge", "judge-password-51c0");
const PRODUCER: &str = "ci-producer";
const WORKER: &str = "ci-worker";

/// The passwords of the two users of a controller.
#[derive(Clone, PartialEq, Eq)]
pub struct Passwords {
    /// Who publishes.
    pub producer: String,
    /// Who consumes.
    pub worker: String,
}

impl Passwords {
    /// Which nobody else has; `number` tells apart one pair from the next.
    fn number(number: u32) -> Self {
        let make = |who: &str| format!("password-of-{who}-{number}-{}", uuid::Uuid::new_v4().simple());
        Self { producer: make("producer"), worker: make("worker") }
    }
}

/// A server that controllers can use. Dropping it ends it and removes what it stored.
pub struct Broker {
    server: Mutex<NatsServer>,
    settings: NatsSettings,
    passwords: std::sync::Mutex<Passwords>,
    url: String,
    port: u16,
    folder: PathBuf,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Broker {
    /// Starts one with these settings and our users on top of them.
    ///
    /// # Errors
    /// As of [`NatsServer::start`].
    pub async fn start(settings: NatsSettings) -> Result<Arc<Self>, Error> {
        let passwords = Passwords::number(0);
        let server = NatsServer::start(with_users(&settings, &passwords)).await?;
        let (url, port, folder) = (server.url(), server.port(), server.folder().to_owned());
        let (server, passwords) = (Mutex::new(server), std::sync::Mutex::new(passwords));
        Ok(Arc::new(Self { server, settings, passwords, url, port, folder }))
    }

    /// The server, to be killed, frozen, and started again.
    pub async fn server(&self) -> MutexGuard<'_, NatsServer> {
        self.server.lock().await
    }

    /// Kills the server, or freezes it for [`Signal::Stop`], and brings it back after a while; the task ends when it is back.
    pub fn strike(self: &Arc<Self>, signal: Signal, lasting: Duration) -> JoinHandle<Result<(), Error>> {
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let mut server = this.server.lock().await;
            if signal == Signal::Stop {
                server.pause()?;
                tokio::time::sleep(lasting).await;
                server.resume();
                return Ok(());
            }
            server.kill();
            tokio::time::sleep(lasting).await;
            server.start_again().await
        })
    }

    /// From the next start of the server on: other passwords for both users. Returns them.
    pub async fn change_passwords(&self) -> Passwords {
        let passwords = Passwords::number(1);
        self.server().await.change(with_users(&self.settings, &passwords));
        *self.known() = passwords.clone();
        passwords
    }

    /// The passwords that hold, or will from the next start on.
    pub fn passwords(&self) -> Passwords {
        self.known().clone()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Passwords> {
        self.passwords.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The address for clients.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection of the test's own, by a user who may do anything.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn client(&self) -> Result<async_nats::Client, async_nats::ConnectError> {
        self.client_at(&self.url).await
    }

    /// The same by another address.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn client_at(&self, url: &str) -> Result<async_nats::Client, async_nats::ConnectError> {
        let (user, password) = JUDGE;
        async_nats::ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned()).connect(url).await
    }

    /// What lies in a stream of this server.
    #[must_use]
    pub fn queue(&self, names: &Names) -> Queue {
        Queue::JetStream(Arc::new(Reader::new(self.port, JUDGE, names)))
    }

    /// Where the server keeps what it stores, and its log.
    #[must_use]
    pub fn stored(&self) -> [PathBuf; 2] {
        [self.folder.join("jetstream"), self.folder.join("log")]
    }

    /// Settings, `NAME=value`, of a controller that uses this server, with its passwords in files in `dir`.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn settings_of(&self, names: &Names, url: &str, dir: &Path) -> std::io::Result<Vec<String>> {
        let files = self.write_passwords(dir)?;
        let mut settings = vec![
            "QUEUE=jetstream".to_owned(),
            format!("NATS_URL={url}"),
            format!("NATS_PRODUCER_PASSWORD_FILE={}", files[0].display()),
            format!("NATS_WORKER_PASSWORD_FILE={}", files[1].display()),
            format!("NATS_STREAM={}", names.stream),
            format!("NATS_SUBJECT_BASE={}", names.base),
        ];
        settings.extend(names.instance.as_ref().map(|instance| format!("INSTANCE_ID={instance}")));
        Ok(settings)
    }

    /// Writes the passwords as they are now where [`Broker::settings_of`] says they are.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write_passwords(&self, dir: &Path) -> std::io::Result<[PathBuf; 2]> {
        use std::os::unix::fs::PermissionsExt as _;
        let Passwords { producer, worker } = self.passwords();
        let files = [("nats-producer-password", producer), ("nats-worker-password", worker)];
        let write = |(name, password): (&str, String)| {
            // Whoever reads it meanwhile finds the old one or the new one.
            let (path, draft) = (dir.join(name), dir.join(format!("{name}.draft")));
            std::fs::write(&draft, password)?;
            std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&draft, &path)?;
            Ok::<_, std::io::Error>(path)
        };
        let [one, other] = files.map(write);
        Ok([one?, other?])
    }
}

fn with_users(settings: &NatsSettings, passwords: &Passwords) -> NatsSettings {
    let users = [JUDGE, (PRODUCER, &passwords.producer), (WORKER, &passwords.worker)];
    users.into_iter().fold(settings.clone(), |settings, (user, password)| settings.with_user(user, password))
}
