//! The files of this repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The files that git knows by a pattern.
pub(crate) fn tracked(root: &Path, pattern: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", pattern]).current_dir(root);
    let output = git.output().context("start git")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let present = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(present.filter(|name| root.join(name).is_file()).collect())
}
