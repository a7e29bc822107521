//! The executor's own log: JSON lines on stderr, beside the runner's output that passes through.

use tracing::Level;

/// Starts it; a second start, in tests for example, changes nothing.
pub(crate) fn start() {
    let lines = tracing_subscriber::fmt().json().flatten_event(true).with_max_level(Level::INFO);
    let lines = lines.with_target(false).with_writer(std::io::stderr);
    let _ = lines.try_init();
}
