//! What the NATS client is told for one connection.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Auth, ConnectOptions, ServerAddr};

use super::health::Health;
use super::{Password, Role};
use crate::backoff::backoff;
use crate::config::nats::Nats;

/// How long things may take. The default is what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// A server that has said nothing for so long is away; it is asked after each third of it.
    pub silence: Duration,
    /// From opening a socket to the server's first answer to our login, for each address.
    pub handshake: Duration,
    /// For the answer to a request.
    pub request: Duration,
    /// For the first connection, with as many tries as fit.
    pub first: Duration,
    /// The longest pause between two tries, ±20 %.
    pub pause: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { silence: seconds(9), handshake: seconds(5), request: seconds(5), first: seconds(30), pause: seconds(3) }
    }
}

/// How often a silent server is asked before it counts as away: the client's own number of unanswered pings, and one.
const PINGS: u32 = 3;
/// Between the first failure and the second try.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

impl Times {
    /// The pause before a try; the first one after a connection is made at once.
    pub(super) fn pause_before(self, attempt: usize) -> Duration {
        let failures = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        match failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(pauses) => backoff(SHORTEST_PAUSE, self.pause).after(pauses).pause(),
        }
    }
}

pub(super) fn options(
    nats: &Nats,
    role: Role,
    times: Times,
    password: Arc<Password>,
    health: Arc<Health>,
) -> ConnectOptions {
    let user = role.login(nats).user.clone();
    let login = move |_nonce| {
        let (user, password) = (user.clone(), Arc::clone(&password));
        async move {
            let mut auth = Auth::new();
            auth.username = Some(user);
            auth.password = Some(String::clone(&password.now()));
            Ok(auth)
        }
    };
    let events = Arc::clone(&health);
    let options = ConnectOptions::with_auth_callback(login)
        .name(role.client_name())
        .custom_inbox_prefix(role.inbox_prefix())
        .ping_interval(times.silence / PINGS)
        .connection_timeout(times.handshake)
        .request_timeout(Some(times.request))
        .max_reconnects(None)
        .reconnect_delay_callback(move |attempt| times.pause_before(attempt))
        .ignore_discovered_servers()
        .event_callback(move |event| {
            events.heard(&event);
            std::future::ready(())
        })
        // Chooses nothing: it is the only place where the client shows why earlier tries failed.
        .reconnect_to_server_callback(move |servers, _| {
            health.tried(&servers);
            std::future::ready(None)
        });
    match &nats.ca {
        Some(path) => options.add_root_certificates(path.clone()),
        None => options,
    }
}

/// The servers as the client takes them; it knows every form that the setting permits, and `tls://` demands TLS.
pub(super) fn addresses(nats: &Nats) -> std::io::Result<Vec<ServerAddr>> {
    nats.servers.iter().map(|server| server.as_str().parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-47, F34: pauses grow to their longest and stay there, however many tries were made.
    #[test]
    fn pauses_between_tries() {
        let times = Times::default();
        assert_eq!(times.pause_before(0), Duration::ZERO);
        assert_eq!(times.pause_before(1), Duration::ZERO);
        let within = |attempt, low: u64, high: u64| {
            let pause = times.pause_before(attempt);
            assert!(
                pause >= Duration::from_millis(low) && pause <= Duration::from_millis(high),
                "{attempt}: {pause:?}"
            );
        };
        within(2, 80, 120);
        within(3, 160, 240);
        within(7, 2400, 3600);
        within(1_000_000, 2400, 3600);
        within(usize::MAX, 2400, 3600);
    }
}
