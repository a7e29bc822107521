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
    built(building(root, profile, package, bin), &format!("build {bin} ({profile})")).await
}

/// As [`program`], for a place that has no C library: the program brings its own.
///
/// Paths of this machine are left out of it, so that it does not depend on where it was built.
pub(crate) async fn static_program(root: &Path, profile: &str, package: &str, bin: &str) -> anyhow::Result<PathBuf> {
    let mut command = building(root, profile, package, bin);
    // With a target named, the flags hold for it alone, and not for what runs during the build.
    command.args(["--target", &target()]);
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    for (path, name) in [(Some(root.to_owned()), "source"), (cargo_home, "cargo")] {
        flags.extend(path.map(|path| format!("--remap-path-prefix={}=/{name}", path.display())));
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // Nobody debugs in an image, and its size is copied around.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    built(command, &format!("build {bin} ({profile}, static)")).await
}

/// What we build for: the machine's own kind, with glibc. No musl target comes with Rust.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn building(root: &Path, profile: &str, package: &str, bin: &str) -> Command {
    let mut command = Command::new(crate::test::cargo());
    command.args(["build", "--profile", profile, "--package", package, "--bin", bin, "--message-format", "json"]);
    command.current_dir(root);
    command
}

async fn built(command: Command, what: &str) -> anyhow::Result<PathBuf> {
    let mut step = Step::begin(what);
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
