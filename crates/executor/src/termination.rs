//! The last words of a container: how it ended, without secrets (NEW-112, NEW-119).

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::exit::Exit;

/// Where Kubernetes puts the file that it reads after the end; it exists in a Pod alone.
const FILE: &str = "/dev/termination-log";

/// What is left to be known.
#[derive(Debug, Serialize)]
pub(crate) struct LastWords<'a> {
    /// The executor's exit code.
    pub(crate) exit: u8,
    /// One word.
    pub(crate) reason: &'a str,
    /// More about it, for people.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) detail: &'a str,
    /// An interruption happened while the runner lived.
    pub(crate) interrupted: bool,
}

/// Writes them where the file exists; nobody is told when it cannot be written.
pub(crate) fn write(exit: &Exit, detail: &str, interrupted: bool) {
    let words = LastWords { exit: exit.code(), reason: exit.reason(), detail, interrupted };
    let Ok(json) = serde_json::to_vec(&words) else { return };
    if let Ok(mut file) = OpenOptions::new().write(true).truncate(true).open(Path::new(FILE)) {
        let _ = file.write_all(&json);
    }
}
