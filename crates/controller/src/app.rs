//! The wiring of the controller.

use crate::config::Config;

/// Runs the selected components until a signal or the first failure.
///
/// # Errors
/// `component <name>: <error>` of the first one that failed (CMP-6).
pub async fn run(config: Config) -> anyhow::Result<()> {
    anyhow::bail!("instance {} has no rooms yet", config.instance)
}
