//! Tools written in Rust: built with `cargo install` from a fixed version and its own lock file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use crate::child::run_logged;
use crate::say::Step;

const LIMIT: Duration = Duration::from_secs(25 * 60);

/// The spelling check.
pub(super) const TYPOS: Program = Program { name: "typos", package: "typos-cli", version: "1.52.0" };
/// The check of licences, bans and sources.
pub(super) const CARGO_DENY: Program = Program { name: "cargo-deny", package: "cargo-deny", version: "0.20.2" };
/// What builds and runs the fuzz targets.
pub(super) const CARGO_FUZZ: Program = Program { name: "cargo-fuzz", package: "cargo-fuzz", version: "0.13.2" };

/// A program of a published package.
pub(super) struct Program {
    /// The file name of the program.
    pub(super) name: &'static str,
    package: &'static str,
    /// The package's version.
    pub(super) version: &'static str,
}

impl Program {
    /// Builds in `work`; returns the program.
    pub(super) async fn build(&self, work: &Path, log: &Path, mut step: Step) -> anyhow::Result<(PathBuf, Step)> {
        let mut command = Command::new(crate::test::cargo());
        command.args(["install", "--locked", "--no-track", "--version", self.version, "--root"]).arg(work);
        command.arg(self.package).current_dir(work).env("CARGO_TARGET_DIR", work.join("target"));
        // A tool is used for seconds: what matters is how fast it is built.
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_LTO", "off");
        command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        run_logged(command, LIMIT, &mut step, log).await?;
        Ok((work.join("bin").join(self.name), step))
    }
}
