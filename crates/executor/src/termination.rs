//! The last words of a container: how it ended, without secrets (NEW-112, NEW-119).

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::session::End;

/// Where Kubernetes puts the file that it reads after the end; it exists in a Pod alone.
const FILE: &str = "/dev/termination-log";

/// What is left to be known.
#[derive(Serialize)]
struct LastWords<'a> {
    /// The executor's exit code.
    exit: u8,
    /// One word.
    reason: &'a str,
    /// More about it, for people.
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    /// An interruption happened while the runner lived.
    interrupted: bool,
}

/// Writes them where the file exists; nobody is told when it cannot be written.
pub(crate) fn write(end: &End) {
    let words = LastWords {
        exit: end.exit.code(),
        reason: end.exit.reason(),
        detail: &end.detail,
        interrupted: end.interrupted,
    };
    let Ok(json) = serde_json::to_vec(&words) else { return };
    if let Ok(mut file) = OpenOptions::new().write(true).truncate(true).open(Path::new(FILE)) {
        let _ = file.write_all(&json);
    }
}
