//! The words that the small program knows: those of `gitea-dynamic-runner` that are of use in an executor (requirements
//! §1.3). A job finds it in its PATH under that name.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use domain::executor_api::ExecutorExit;

use crate::{identity, start};

/// The same time as `gitea-dynamic-runner svid` takes unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

const HELP: &str = "\
gitea-dynamic-runner, the part of it that runs in an executor

Usage: gitea-dynamic-runner [executor | svid]

  executor  Run the one job that the environment names; the same without a word
  svid      Print the SPIFFE IDs that SPIFFE_ENDPOINT_SOCKET gives to this process
";

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Executor,
    Svid,
    Help,
}

impl Word {
    /// None: nothing that is known here.
    fn of(words: &[OsString]) -> Option<Self> {
        match words {
            [] => Some(Self::Executor),
            [word] => match word.to_str()? {
                "executor" => Some(Self::Executor),
                "svid" => Some(Self::Svid),
                "--help" | "-h" | "help" => Some(Self::Help),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Does what the words say; `get` reads the environment.
pub fn command(words: impl Iterator<Item = OsString>, get: impl Fn(&str) -> Option<String>) -> ExitCode {
    match Word::of(&words.collect::<Vec<_>>()) {
        Some(Word::Executor) => start::run(get),
        Some(Word::Svid) => svid(get("SPIFFE_ENDPOINT_SOCKET")),
        Some(Word::Help) => told(HELP),
        None => {
            complain(HELP);
            ExitCode::from(ExecutorExit::Usage.code())
        }
    }
}

/// One ID per line, in the order of the Workload API; exit code 1 when there is none, 2 without an endpoint.
fn svid(endpoint: Option<String>) -> ExitCode {
    let Some(endpoint) = endpoint.filter(|text| !text.trim().is_empty()) else {
        complain("error: SPIFFE_ENDPOINT_SOCKET is not set; inside a job it is\n");
        return ExitCode::from(ExecutorExit::Usage.code());
    };
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(identity::offered(endpoint.trim(), PATIENCE)));
    match asked {
        Ok(ids) => told(&ids.iter().map(|id| format!("{id}\n")).collect::<String>()),
        Err(cause) => {
            complain(&format!("error: the Workload API at {endpoint} gave no identity: {cause}\n"));
            ExitCode::FAILURE
        }
    }
}

/// An answer; whether anybody reads it is the caller's affair.
fn told(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CMP-9, IMG-2: the image's command, the sandbox's entrypoint, and nothing by mistake.
    #[test]
    fn words_of_the_small_program() {
        let of = |words: &[&str]| Word::of(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!((of(&[]), of(&["executor"])), (Some(Word::Executor), Some(Word::Executor)));
        assert_eq!((of(&["svid"]), of(&["--help"])), (Some(Word::Svid), Some(Word::Help)));
        for unknown in [&["controller"][..], &["standalone"], &["executor", "svid"], &[""]] {
            assert_eq!(of(unknown), None, "{unknown:?}");
        }
    }
}
