//! Why a call is refused, and how Gitea words that on the wire.

use connectrpc::{ConnectError, ErrorCode};

use super::rules::Rules;

/// The message by which the wire layer knows a panic; never sent.
pub(crate) const PANIC: &str = "\0panic";

/// A refusal of one of Gitea's handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A gRPC status, which Gitea's Connect library does not recognise (§3.2).
    Status(ErrorCode, String),
    /// A plain error; Register has only these (§14.2).
    Plain(String),
    /// The handler dereferenced nothing (§3.1).
    Panic,
}

impl Refusal {
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self::Status(ErrorCode::Internal, text.into())
    }

    pub(crate) fn unregistered() -> Self {
        Self::Status(ErrorCode::Unauthenticated, "unregistered runner".into())
    }

    pub(crate) fn into_error(self, rules: &Rules) -> ConnectError {
        match self {
            Self::Status(code, text) if rules.errors_are_500 => ConnectError::unknown(grpc_text(code, &text)),
            Self::Status(code, text) => ConnectError::new(code, text),
            Self::Plain(text) => ConnectError::unknown(text),
            Self::Panic if rules.panic_is_text => ConnectError::internal(PANIC),
            Self::Panic => ConnectError::internal("nil pointer"),
        }
    }
}

/// `rpc error: code = <Name> desc = <text>` (§3.2).
pub(crate) fn grpc_text(code: ErrorCode, text: &str) -> String {
    format!("rpc error: code = {} desc = {text}", grpc_name(code))
}

/// `already_exists` → `AlreadyExists`.
pub(crate) fn grpc_name(code: ErrorCode) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
    };
    code.as_str().split('_').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §3.2: the trap's text, letter for letter.
    #[test]
    fn status_becomes_gitea_text() {
        let refusal = Refusal::Status(ErrorCode::AlreadyExists, "log file has been archived".into());
        let error = refusal.into_error(&Rules::default());
        assert_eq!(error.code, ErrorCode::Unknown);
        assert_eq!(error.message.as_deref(), Some("rpc error: code = AlreadyExists desc = log file has been archived"));
    }
}
