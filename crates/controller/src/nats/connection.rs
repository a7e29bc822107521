//! One connection, from its first try to its end.

use std::sync::Arc;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions};
use tokio::time::{Instant, sleep, timeout_at};

use super::health::Health;
use super::options::{addresses, options};
use super::{Cause, ConnectError, Password, Role, Times};
use crate::config::nats::{Nats, NatsUrl};

/// A connection that was made once and is made again for ever. No `Debug`: it knows a password.
pub struct Connection {
    role: Role,
    servers: String,
    client: Client,
    pub(super) health: Arc<Health>,
    password: Arc<Password>,
}

impl Connection {
    /// Makes the first connection, and asks for JetStream.
    ///
    /// # Errors
    /// What no second try would change, at once; what might pass, after [`Times::first`].
    pub async fn open(nats: &Nats, role: Role, times: Times) -> Result<Self, ConnectError> {
        let login = role.login(nats);
        let servers = nats.servers.iter().map(NatsUrl::as_str).collect::<Vec<_>>().join(",");
        let (health, password) = (Arc::new(Health::new(role)), Arc::new(Password::new(login.password.expose())));
        let options = || options(nats, role, times, Arc::clone(&password), Arc::clone(&health));
        match first(nats, options, times, &health).await {
            Ok(client) => Ok(Self { role, servers, client, health, password }),
            Err(cause) => Err(ConnectError { role, servers, user: login.user.clone(), cause }),
        }
    }

    /// What it is for.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The client below. What it is given while there is no connection it keeps, and sends when it is connected again, long
    /// after whoever asked has given up; so ask [`Connection::is_connected`] before each request.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The password that the next connection is made with; its file is looked at by [`crate::rotation::Rotation`].
    #[must_use]
    pub fn password(&self) -> &Arc<Password> {
        &self.password
    }

    /// Whether it stands, as far as is known: a silent server is noticed after [`Times::silence`].
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.health.is_closed() && self.client.connection_state() == State::Connected
    }

    /// Why it does not stand, in one sentence; none while it does.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let tell = || format!("NATS, {} connection to {}: {}", self.role.as_str(), self.servers, self.health.cause());
        (!self.is_connected()).then(tell)
    }
}

/// Tries until it goes well, cannot go well, or took too long.
async fn first(
    nats: &Nats,
    options: impl Fn() -> ConnectOptions,
    times: Times,
    health: &Health,
) -> Result<Client, Cause> {
    let end = Instant::now() + times.first;
    let (mut client, mut last) = (None, Cause::Silent);
    for attempt in 1_usize.. {
        let tried = timeout_at(end, async {
            sleep(times.pause_before(attempt)).await;
            once(nats, &options, &mut client, times, health).await
        });
        match tried.await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(cause)) if cause.may_pass() => {
                if attempt == 1 || cause != last {
                    health.waits(&cause);
                }
                last = cause;
            }
            Ok(Err(cause)) => return Err(cause),
            Err(_) => break,
        }
    }
    Err(last)
}

/// One try. A connection that was made stays in `client`, so that the next try asks for JetStream only.
async fn once(
    nats: &Nats,
    options: &impl Fn() -> ConnectOptions,
    client: &mut Option<Client>,
    times: Times,
    health: &Health,
) -> Result<Client, Cause> {
    let connected = match client.clone() {
        Some(client) => client,
        None => {
            let addresses = addresses(nats).map_err(|error| Cause::Other(error.to_string()))?;
            let made = options().connect(addresses).await.map_err(|error| Cause::of_connect(&error))?;
            client.insert(made).clone()
        }
    };
    let context = ContextBuilder::new().timeout(times.request).build(connected.clone());
    tokio::select! {
        answer = context.query_account() => match answer {
            Ok(_) => Ok(connected),
            Err(error) => Err(Cause::of_account(&error)),
        },
        refusal = health.refused() => Err(Cause::Forbidden(refusal)),
    }
}
