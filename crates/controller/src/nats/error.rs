//! Why a first connection was not made: the server, the cause, and what to do.

use std::error::Error as _;
use std::io;

use async_nats::ConnectErrorKind;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{AccountError, AccountErrorKind};

use super::Role;
use super::health::words;

/// A first connection was not made.
#[derive(Debug, thiserror::Error)]
#[error("NATS, {connection} connection to {servers} as user {user:?}: {cause}; {remedy}", connection = role.as_str(), remedy = cause.remedy(*role))]
pub struct ConnectError {
    /// Which of the two.
    pub role: Role,
    /// The servers of the setting, with commas between them.
    pub servers: String,
    /// Who we are there.
    pub user: String,
    /// What happened last.
    pub cause: Cause,
}

/// Why a connection was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Nothing listens there.
    #[error("connection refused")]
    Refused,
    /// No answer in time.
    #[error("no answer in time")]
    Silent,
    /// The name is no address.
    #[error("the server's name cannot be resolved: {0}")]
    Unresolved(String),
    /// The certificate, or no TLS at all.
    #[error("TLS: {0}")]
    Tls(String),
    /// Another user or password.
    #[error("authorization violation")]
    Unauthorized,
    /// The user lacks a right.
    #[error("{0}")]
    Forbidden(String),
    /// Nobody stores anything for this user.
    #[error("JetStream is not enabled: {0}")]
    NoJetStream(String),
    /// Somebody may, later.
    #[error("JetStream does not answer: {0}")]
    JetStreamSilent(String),
    /// Anything else, in its own words.
    #[error("{0}")]
    Other(String),
}

impl Cause {
    pub(super) fn of_connect(error: &async_nats::ConnectError) -> Self {
        let source = error.source();
        let io = source.and_then(|source| source.downcast_ref::<io::Error>());
        let tls = io.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let own_words = source.map_or_else(|| error.to_string(), |source| words(&source.to_string()));
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => Self::Unauthorized,
            ConnectErrorKind::TimedOut => Self::Silent,
            ConnectErrorKind::Dns => Self::Unresolved(own_words),
            ConnectErrorKind::Tls => Self::Tls(own_words),
            _ => match (tls, io.map(io::Error::kind)) {
                (Some(tls), _) => Self::Tls(tls.to_string()),
                (None, Some(io::ErrorKind::ConnectionRefused)) => Self::Refused,
                _ => Self::Other(own_words),
            },
        }
    }

    pub(super) fn of_account(error: &AccountError) -> Self {
        match error.kind() {
            AccountErrorKind::JetStream(error) => match error.error_code() {
                ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                    Self::NoJetStream(error.to_string())
                }
                _ => Self::JetStreamSilent(error.to_string()),
            },
            AccountErrorKind::TimedOut => Self::JetStreamSilent("no answer in time".to_owned()),
            AccountErrorKind::JetStreamUnavailable => {
                Self::JetStreamSilent("no server with JetStream is connected".to_owned())
            }
            AccountErrorKind::Other => Self::JetStreamSilent(words(&error.to_string())),
        }
    }

    /// Whether another try may go well without anybody doing anything about it.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Refused | Self::Silent | Self::Unresolved(_) | Self::JetStreamSilent(_) | Self::Other(_) => true,
            Self::Tls(_) | Self::Unauthorized | Self::Forbidden(_) | Self::NoJetStream(_) => false,
        }
    }

    fn remedy(&self, role: Role) -> String {
        let [user, password] = role.settings();
        match self {
            Self::Refused | Self::Silent | Self::Unresolved(_) | Self::Other(_) => {
                "start the server, or correct NATS_URL".to_owned()
            }
            Self::Tls(_) => {
                "give NATS_CA_FILE the authority of the server's certificate, and NATS_URL the name that it \
                             bears; a server without TLS is nats://"
                    .to_owned()
            }
            Self::Unauthorized => format!("set {user} and {password} to what the server knows"),
            Self::Forbidden(_) => format!(
                "permit the user of {user} to publish to $JS.API.INFO and to subscribe to {}.>",
                role.inbox_prefix()
            ),
            Self::NoJetStream(_) => "enable JetStream on the server and for the user's account".to_owned(),
            Self::JetStreamSilent(_) => {
                "enable JetStream on a server, and see that enough of its cluster run".to_owned()
            }
        }
    }
}
