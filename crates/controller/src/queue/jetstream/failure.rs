//! Why a call to JetStream did not do what it should, and what that means for the queue.

use async_nats::jetstream::ErrorCode;

use crate::queue::QueueError;

/// Also what the queue says of itself meanwhile.
pub(super) const NOT_CONNECTED: &str = "NATS: not connected";

/// Why a call did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server said no; `status` is its kind of answer, in the numbers of HTTP.
    Refused { code: ErrorCode, status: usize, text: String },
    /// There is no connection; nothing was done.
    Away,
    /// Nobody took the call; nothing was done.
    Nobody { what: String },
    /// Perhaps carried out, perhaps not.
    Silent { what: String },
    /// An answer that is none.
    Garbled { what: String, text: String },
}

impl Failure {
    pub(super) fn is(&self, wanted: ErrorCode) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    /// The server cannot just now: it elects a leader, or waits for others.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Refused { status: 503, .. })
    }
}

impl From<Failure> for QueueError {
    fn from(failure: Failure) -> Self {
        match failure {
            // Of the stream, the server or the account.
            Failure::Refused {
                code:
                    ErrorCode::STREAM_STORE_FAILED
                    | ErrorCode::STORAGE_RESOURCES_EXCEEDED
                    | ErrorCode::INSUFFICIENT_RESOURCES
                    | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
                text,
                ..
            } => Self::Full {
                cause: format!("NATS refuses what does not fit any more: {text}"),
                remedy: "let waiting jobs run, or raise the limits of the stream, of the account or of the server's storage \
                         (max_file_store); what is stored is safe"
                    .to_owned(),
            },
            Failure::Refused { code: ErrorCode::STREAM_NOT_FOUND, text, .. } => Self::Unusable {
                cause: format!("the stream of tasks or that of records is gone: {text}"),
                remedy: "restore it from a backup if there is one, else start again: an empty one is created"
                    .to_owned(),
            },
            Failure::Refused { text, .. } => Self::Unavailable { cause: format!("NATS: {text}") },
            Failure::Away => Self::Unavailable { cause: NOT_CONNECTED.to_owned() },
            Failure::Nobody { what } => Self::Unavailable {
                cause: format!("NATS: nobody answers {what}: JetStream is off there, or the stream has no leader now"),
            },
            Failure::Silent { what } => Self::Unavailable {
                cause: format!(
                    "NATS: no answer to {what} in time: the server is gone or busy, or this user may not publish there"
                ),
            },
            Failure::Garbled { what, text } => {
                Self::Unavailable { cause: format!("NATS: {what} was answered with something unreadable: {text}") }
            }
        }
    }
}
