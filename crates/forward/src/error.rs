//! What can go wrong with an exchange, and which status tells it to the client.

use http::StatusCode;

use crate::check::Refused;

/// Any error of a client or a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// No response came from upstream.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The request is none that is forwarded.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The client did not send its request to the end. It is hardly there to read the answer.
    #[error("the client broke off its request")]
    ClientGone,
    /// The client sent nothing of its request for too long.
    #[error("the client sent nothing of its request for too long")]
    ClientStalled,
    /// The upstream took nothing of the request, or did not answer it, for too long.
    #[error("the upstream made no progress for too long")]
    UpstreamStalled,
    /// No connection to the upstream, or it ended before the response began. Whether the upstream acted is unknown.
    #[error("the upstream failed before it answered")]
    Upstream(#[source] BoxError),
}

impl ForwardError {
    /// The status that tells it to the client.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refused) => refused.status(),
            Self::ClientGone => StatusCode::BAD_REQUEST,
            Self::ClientStalled => StatusCode::REQUEST_TIMEOUT,
            Self::UpstreamStalled => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// A body ended before its end. Whoever receives it must not take what came so far for the whole.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Its source failed.
    #[error("the sender of the body failed")]
    Source(#[source] BoxError),
    /// Nothing moved for too long, in this direction or in the other.
    #[error("the body made no progress for too long")]
    Stalled,
}
