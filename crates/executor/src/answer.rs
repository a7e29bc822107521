//! What an answer of the facade means to the executor (requirements §1.5, Gitea contract §3).

use http::StatusCode;

/// How a call to the facade went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// HTTP 200.
    Accepted,
    /// The facade answered, but cannot do it now: worth a repetition for hours.
    Unavailable,
    /// No answer: refused, reset, timed out.
    Away,
    /// HTTP 401: nothing to do here, or no valid credentials.
    Unauthenticated,
    /// A repetition would get the same answer.
    Refused,
}

impl Outcome {
    /// The meaning of an HTTP status; none when no answer came.
    ///
    /// A 5xx is never final: whatever went wrong inside the facade or Gitea may be gone at the next try.
    pub(crate) fn of(status: Option<StatusCode>) -> Self {
        let Some(status) = status else { return Self::Away };
        match status {
            StatusCode::OK => Self::Accepted,
            StatusCode::UNAUTHORIZED => Self::Unauthenticated,
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => Self::Unavailable,
            StatusCode::NOT_IMPLEMENTED => Self::Refused,
            status if status.is_server_error() => Self::Unavailable,
            // 499 is Connect's `canceled`: the facade broke off, the call itself is not judged.
            status if status.as_u16() == 499 => Self::Unavailable,
            _ => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// §1.5 and Gitea contract §3.1: which codes are worth a repetition.
    #[test]
    fn meaning_of_a_status() {
        for (status, outcome) in [
            (200, Outcome::Accepted),
            (400, Outcome::Refused),
            (401, Outcome::Unauthenticated),
            (403, Outcome::Refused),
            (404, Outcome::Refused),
            (409, Outcome::Unavailable),
            (429, Outcome::Unavailable),
            (499, Outcome::Unavailable),
            (500, Outcome::Unavailable),
            (501, Outcome::Refused),
            (503, Outcome::Unavailable),
            (504, Outcome::Unavailable),
        ] {
            assert_eq!(Outcome::of(Some(StatusCode::from_u16(status).unwrap())), outcome, "{status}");
        }
        assert_eq!(Outcome::of(None), Outcome::Away);
    }
}
