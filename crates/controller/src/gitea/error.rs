//! What Gitea's errors mean to us (NEW-12; Gitea contract §3).
//!
//! Every application error of Gitea arrives as HTTP 500, Connect code `unknown`, with the real code inside the text:
//! `rpc error: code = Unauthenticated desc = unregistered runner`. A genuine Connect code means the same.

use connectrpc::{ConnectError, ErrorCode};
use domain::excerpt;

use crate::lease::Fenced;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The registration is gone or was never ours: stop fetching, say so, keep what runs.
    Unregistered,
    /// Gitea knows no such task of ours: treat it as ended.
    TaskUnknown,
    /// The log is closed: rows after it count as delivered.
    LogArchived,
    /// Gitea, or what stands before it, cannot answer now; the outcome of the call is unknown.
    Away,
}

/// A call to Gitea that gave no good answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{method}: {text} ({code})")]
pub struct GiteaError {
    /// The class that decides what happens next.
    pub trouble: Trouble,
    /// Effective code in snake case, for metrics.
    pub code: &'static str,
    method: &'static str,
    text: String,
}

/// Texts longer than this are cut: an error page is no message.
const LONGEST_TEXT: usize = 300;

impl GiteaError {
    /// The task is known to Gitea, and another registration has it. To the rooms that is no task of ours.
    #[must_use]
    pub fn is_of_another_runner(&self) -> bool {
        self.trouble == Trouble::TaskUnknown && self.text.contains("invalid runner for task")
    }

    pub(super) fn timeout(method: &'static str, seconds: u64) -> Self {
        let text = format!("no answer within {seconds} s");
        Self { trouble: Trouble::Away, code: "deadline_exceeded", method, text }
    }

    /// A call that was not begun, because another process may lead.
    pub(super) fn fenced(method: &'static str, fenced: &Fenced) -> Self {
        Self { trouble: Trouble::Away, code: "aborted", method, text: format!("not asked: {fenced}") }
    }

    /// An answer that cannot be.
    pub(crate) fn malformed(method: &'static str, text: &str) -> Self {
        Self { trouble: Trouble::Away, code: "malformed", method, text: text.to_owned() }
    }

    /// Classifies an error by its inner code. Nothing of the token that the call carried is left in the text: it goes
    /// into logs, into the queue and to the job's runner (NEW-141).
    pub(super) fn of(method: &'static str, error: &ConnectError, token: &str) -> Self {
        // Gitea's JSON encoder puts U+00A0 into some texts.
        let message = error.message.as_deref().unwrap_or_default().replace('\u{a0}', " ");
        let (code, text) = inner_code(&message).unwrap_or((error.code.as_str(), &message));
        let unknown_task = ["resource does not exist", "invalid runner for task"].iter().any(|t| text.contains(t));
        let trouble = match code {
            "unauthenticated" => Trouble::Unregistered,
            _ if text.contains("unregistered runner") || text.contains("runner has been removed") => {
                Trouble::Unregistered
            }
            "already_exists" if text.contains("archived") => Trouble::LogArchived,
            _ if error.code == ErrorCode::Unauthenticated => Trouble::Unregistered,
            _ if method.starts_with("Update") && unknown_task => Trouble::TaskUnknown,
            _ => Trouble::Away,
        };
        let text = excerpt::without(token, text, LONGEST_TEXT);
        Self { trouble, code, method, text }
    }
}

/// `rpc error: code = <Name> desc = <text>` → (`name`, text); a name that gRPC does not have is `unknown`.
fn inner_code(message: &str) -> Option<(&'static str, &str)> {
    let (name, text) = message.strip_prefix("rpc error: code = ")?.split_once(" desc = ")?;
    // gRPC numbers its codes from 1; the names are those of Connect in camel case.
    let code = (1..=16).filter_map(ErrorCode::from_grpc_code).find(|code| {
        let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
        plain(code.as_str()) == plain(name.trim())
    });
    Some((code.unwrap_or(ErrorCode::Unknown).as_str(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &'static str, code: ErrorCode, message: &str, trouble: Trouble, effective: &str) {
        let error = GiteaError::of(method, &ConnectError::new(code, message), "");
        assert_eq!((error.trouble, error.code), (trouble, effective), "{message}");
    }

    /// NEW-141, F28: a token across the limit of the text leaves nothing of itself.
    #[test]
    fn an_error_that_quotes_our_token() {
        let token = "0123456789abcdef0123456789abcdef01234567";
        for message in
            ["x".repeat(280) + token, format!("rpc error: code = Internal desc = {}{token}", "x".repeat(280))]
        {
            let error = GiteaError::of("FetchTask", &ConnectError::new(ErrorCode::Unknown, message), token);
            assert!(!error.to_string().contains("0123"), "{error}");
        }
    }

    /// NEW-12, F11; the texts are those of Gitea 1.26.0 (contract §3.2).
    #[test]
    fn errors_are_classified_by_their_inner_code() {
        let unknown = ErrorCode::Unknown;
        let rpc = |code: &str, text: &str| format!("rpc error: code = {code} desc = {text}");
        check(
            "FetchTask",
            unknown,
            &rpc("Unauthenticated", "unregistered runner"),
            Trouble::Unregistered,
            "unauthenticated",
        );
        check("FetchTask", ErrorCode::Unauthenticated, "no", Trouble::Unregistered, "unauthenticated");
        check("FetchTask", unknown, &rpc("Internal", "pick task: x"), Trouble::Away, "internal");
        check(
            "UpdateTask",
            unknown,
            &rpc("Internal", "update task: invalid runner for task"),
            Trouble::TaskUnknown,
            "internal",
        );
        check(
            "UpdateTask",
            unknown,
            &rpc("Internal", "update task: resource does not exist"),
            Trouble::TaskUnknown,
            "internal",
        );
        let gone = rpc("Internal", "get task: task with id 4: resource does not exist");
        check("UpdateLog", unknown, &gone, Trouble::TaskUnknown, "internal");
        check(
            "UpdateLog",
            unknown,
            &rpc("AlreadyExists", "log file has been archived"),
            Trouble::LogArchived,
            "already_exists",
        );
        check("UpdateLog", unknown, "connection reset", Trouble::Away, "unknown");
        check("UpdateTask", ErrorCode::Unavailable, "502", Trouble::Away, "unavailable");
    }
}
