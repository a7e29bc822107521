//! The programs of this workspace, built by cargo, which says where they lie.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::Command;

use crate::child::run_logged;
use crate::say::Step;

/// A cold build as it is released, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(45 * 60);

/// The operators' program, as the tests use it.
pub(crate) async fn controller(root: &Path) -> anyhow::Result<PathBuf> {
    program(root, "dev", "controller", "gitea-dynamic-runner").await
}

/// A program of a package; `profile` is cargo's.
pub(crate) async fn program(root: &Path, profile: &str, package: &str, bin: &str) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(crate::test::cargo());
    command.args(["build", "--profile", profile, "--package", package, "--bin", bin, "--message-format", "json"]);
    command.current_dir(root);
    let mut step = Step::begin(format!("build {bin} ({profile})"));
    let log = tempfile::NamedTempFile::new()?;
    let finished = run_logged(command, LIMIT, &mut step, log.path()).await?;
    step.end("done");
    executable(&finished.out()).context("cargo named no program")
}

/// The program that `cargo build --message-format json` made last.
fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().rev().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_program_is_found() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/t/debug/gitea-dynamic-runner\"}\n{\"reason\":\"build-finished\"}";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/debug/gitea-dynamic-runner")));
        assert_eq!(executable(""), None);
    }
}
