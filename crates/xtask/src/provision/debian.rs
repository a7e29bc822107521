//! Packages of the system: installed by its own package manager, and only as root.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use tokio::process::Command;

use crate::child::run_logged;
use crate::say::Step;

const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Installs packages; free when there are none to install.
pub(super) async fn install(packages: &[&str], log: &Path, step: &mut Step) -> anyhow::Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    if let Some(reason) = testkit::real::kubernetes::machine() {
        bail!("{reason}; it lacks the packages {}", packages.join(" "));
    }
    let mut update = Command::new("apt-get");
    update.args(["update", "-qq"]);
    run_logged(update, LIMIT, step, log).await?;
    let mut command = Command::new("apt-get");
    command.args(["install", "-y", "-qq", "--no-install-recommends"]).args(packages);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    run_logged(command, LIMIT, step, log).await.map(drop)
}
