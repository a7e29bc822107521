//! What can go wrong around a real server, with the text that the server itself gave.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// A failed look at, or start of, a real far side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered, but not with success.
    #[error("{call}: HTTP {status}: {body}")]
    Status {
        /// Method and path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The first 2000 characters of the answer.
        body: String,
    },
    /// No answer: refused, reset, or too slow (30 s).
    #[error("{call}: no answer: {cause}")]
    NoAnswer {
        /// Method and path.
        call: String,
        /// The error chain of the transport.
        cause: String,
    },
    /// The answer is not what this Gitea release is known to send.
    #[error("{call}: unexpected answer ({cause}): {body}")]
    Unexpected {
        /// Method and path, or the query.
        call: String,
        /// What was missing.
        cause: String,
        /// The first 2000 characters of the answer.
        body: String,
    },
    /// A condition did not come true in time.
    #[error("{what}: not within {} s; last seen: {last}", limit.as_secs_f32())]
    Deadline {
        /// The condition.
        what: String,
        /// How long it was waited for.
        limit: Duration,
        /// What the last look showed.
        last: String,
    },
    /// A program or its files are not in the cache folder.
    #[error("{} is not installed: run `cargo xtask provision {part}`", path.display())]
    NotInstalled {
        /// The missing file.
        path: PathBuf,
        /// The part that brings it.
        part: &'static str,
    },
    /// A program ended though it should run, or ended with a failure.
    #[error("{program} ended with {status}:\n{output}")]
    Ended {
        /// Which program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The last 3000 characters it wrote.
        output: String,
    },
    /// The database does not hold what was asked for, or cannot be read.
    #[error("{query}: {cause}")]
    Database {
        /// The query.
        query: String,
        /// SQLite's words.
        cause: String,
    },
    /// The operating system refused something.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: String,
        /// The system's words.
        cause: String,
    },
}

impl Error {
    /// The HTTP status, when the server answered with one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// A closure for `map_err` that names what was tried.
    pub(crate) fn system<C: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(C) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause: cause.to_string() }
    }
}

/// The last `limit` characters of a text, for error messages.
pub(crate) fn tail(text: &str, limit: usize) -> &str {
    let skip = text.chars().count().saturating_sub(limit);
    text.char_indices().nth(skip).map_or("", |(at, _)| &text[at..])
}

/// The first `limit` characters of a text, for error messages.
pub(crate) fn head(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_and_head_cut_at_characters() {
        assert_eq!(tail("äöü", 2), "öü");
        assert_eq!(tail("ab", 5), "ab");
        assert_eq!(tail("", 3), "");
        assert_eq!(head("äöü", 2), "äö");
    }
}
