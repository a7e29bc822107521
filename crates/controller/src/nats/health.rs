//! Whether a connection stands, and why not: what the client tells of it, as one state. Each change is logged once.
//!
//! Invariant: nothing that is kept or logged here has a password in it. The texts are those of the operating system, of
//! TLS, and of the server, which is never told to repeat what it was sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_nats::{ClientError, Event, Server, ServerError};
use tokio::sync::watch;

use super::{Cause, Role};

/// One connection's state.
pub(super) struct Health {
    role: Role,
    state: Mutex<State>,
    /// What the server last refused of what this connection did; none since it was connected.
    refusal: watch::Sender<Option<String>>,
    closed: AtomicBool,
}

/// What was heard.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    /// Why there is no connection; none while there is one, or has never been one.
    away: Option<String>,
    /// What the server said last, before it went.
    last_words: Option<String>,
}

/// What a log has to say of it.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Connected,
    ConnectedAgain,
    Away(String),
    Refused(String),
    Closed,
}

const LOST: &str = "the connection was lost";

impl State {
    fn heard(&mut self, event: &Event) -> Option<Change> {
        match event {
            Event::Connected => {
                let before = std::mem::take(self);
                Some(if before.away.is_some() { Change::ConnectedAgain } else { Change::Connected })
            }
            Event::Disconnected => {
                let cause =
                    self.last_words.take().map_or_else(|| LOST.to_owned(), |words| format!("the server said {words}"));
                self.is_away(cause)
            }
            Event::ServerError(error) => {
                let words = words(&error.to_string());
                self.last_words = Some(words.clone());
                matches!(error, ServerError::Other(_)).then_some(Change::Refused(words))
            }
            // More is known from the tries themselves, but for a name that does not resolve.
            Event::ClientError(ClientError::Other(text)) if self.away.as_deref() == Some(LOST) => {
                self.is_away(words(text))
            }
            Event::Closed => Some(Change::Closed),
            _ => None,
        }
    }

    /// Before each round of tries: what became of the rounds before it.
    fn tried(&mut self, servers: &[(String, String)]) -> Option<Change> {
        self.away.as_ref()?;
        let failures: Vec<_> = servers.iter().map(|(server, error)| format!("{server}: {}", words(error))).collect();
        if failures.is_empty() { None } else { self.is_away(failures.join(", ")) }
    }

    fn is_away(&mut self, cause: String) -> Option<Change> {
        if self.away.as_ref() == Some(&cause) {
            return None;
        }
        self.away = Some(cause.clone());
        Some(Change::Away(cause))
    }
}

impl Health {
    pub(super) fn new(role: Role) -> Self {
        let state = Mutex::default();
        Self { role, state, refusal: watch::Sender::new(None), closed: AtomicBool::new(false) }
    }

    /// The first connection is not made yet, and is tried again.
    pub(super) fn waits(&self, cause: &Cause) {
        let connection = self.role.as_str();
        tracing::warn!(component = "nats", connection, %cause, "NATS cannot be used yet; tried again");
    }

    /// Takes one event of the client. Never waits: the client's events queue up behind this.
    pub(super) fn heard(&self, event: &Event) {
        let change = self.lock().heard(event);
        match &change {
            Some(Change::Connected | Change::ConnectedAgain) => drop(self.refusal.send_replace(None)),
            Some(Change::Refused(words)) => drop(self.refusal.send_replace(Some(words.clone()))),
            Some(Change::Closed) => self.closed.store(true, Ordering::SeqCst),
            Some(Change::Away(_)) | None => {}
        }
        self.tell(change);
    }

    /// Takes what the client knows of its servers.
    pub(super) fn tried(&self, servers: &[Server]) {
        let failed = |server: &Server| Some((server.addr.as_url_str().to_owned(), server.last_error.clone()?));
        let failures: Vec<_> = servers.iter().filter_map(failed).collect();
        let change = self.lock().tried(&failures);
        self.tell(change);
    }

    /// Why there is no connection, as far as anything was heard of it.
    pub(super) fn cause(&self) -> String {
        if self.is_closed() {
            return "it was closed".to_owned();
        }
        self.lock().away.clone().unwrap_or_else(|| LOST.to_owned())
    }

    /// Whether it has ended for good.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Waits until the server refuses something, and says what.
    pub(super) async fn refused(&self) -> String {
        // The sender is ours: the wait cannot fail.
        let mut refusal = self.refusal.subscribe();
        refusal.wait_for(Option::is_some).await.ok().and_then(|refusal| refusal.clone()).unwrap_or_default()
    }

    fn tell(&self, change: Option<Change>) {
        let connection = self.role.as_str();
        match change {
            Some(Change::Connected) => tracing::info!(component = "nats", connection, "connected to NATS"),
            Some(Change::ConnectedAgain) => {
                tracing::info!(component = "nats", connection, "connected to NATS again");
            }
            Some(Change::Away(cause)) => {
                tracing::warn!(component = "nats", connection, cause, "NATS is away; a connection is tried for ever");
            }
            Some(Change::Refused(cause)) => {
                tracing::warn!(component = "nats", connection, cause, "NATS refused something")
            }
            Some(Change::Closed) => tracing::info!(component = "nats", connection, "the connection to NATS is closed"),
            None => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error's text without what says nothing to a reader.
pub(super) fn words(text: &str) -> String {
    let text = ["IO error: ", "TLS error: "].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
    let text = text.split(" (os error").next().unwrap_or_default();
    // The kind and its source say the same.
    let text = text.strip_prefix("authorization violation: ").unwrap_or(text);
    text.strip_prefix("nats: ").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(cause: &str) -> Option<Change> {
        Some(Change::Away(cause.to_owned()))
    }

    /// NEW-47: an outage is told with its cause, each cause once, and its end once.
    #[test]
    fn an_outage_is_told_once() {
        let mut state = State::default();
        assert_eq!(state.tried(&[]), None);
        assert_eq!(state.heard(&Event::Connected), Some(Change::Connected));
        assert_eq!(state.heard(&Event::Disconnected), away(LOST));
        assert_eq!(state.tried(&[]), None);
        let refused = [("nats://a:1".to_owned(), "IO error: Connection refused (os error 111)".to_owned())];
        assert_eq!(state.tried(&refused), away("nats://a:1: Connection refused"));
        assert_eq!(state.heard(&Event::ClientError(ClientError::Other("IO error".to_owned()))), None);
        assert_eq!(state.tried(&refused), None);
        assert_eq!(state.heard(&Event::Connected), Some(Change::ConnectedAgain));
        assert_eq!(state.tried(&refused), None);
        assert_eq!(state, State::default());
    }

    /// NEW-47: what the server said before it went is the cause.
    #[test]
    fn the_last_words_of_a_server() {
        let mut state = State::default();
        let error = Event::ServerError(ServerError::Other("Stale Connection".to_owned()));
        assert_eq!(state.heard(&error), Some(Change::Refused("Stale Connection".to_owned())));
        assert_eq!(state.heard(&Event::Disconnected), away("the server said Stale Connection"));
        assert_eq!(state.heard(&Event::Connected), Some(Change::ConnectedAgain));
        assert_eq!(state.heard(&Event::Disconnected), away(LOST));
        assert_eq!(state.heard(&Event::ClientError(ClientError::Other("DNS error".to_owned()))), away("DNS error"));
    }

    #[test]
    fn plain_words() {
        assert_eq!(words("IO error: Connection refused (os error 111)"), "Connection refused");
        assert_eq!(words("authorization violation: nats: authorization violation"), "authorization violation");
        assert_eq!(words("timed out"), "timed out");
    }
}
