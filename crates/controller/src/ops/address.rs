//! Where the ops server of a state folder listens: the file `ops.addr`, which `status --state` reads.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;

use crate::config::Ops;
use crate::files;

/// Binds `OPS_LISTEN`.
///
/// # Errors
/// A text that names the address and what to do.
pub async fn bind(ops: &Ops) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(ops.listen).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "OPS_LISTEN: {} is in use{}; set OPS_LISTEN to another address, or port 0 to let the kernel choose",
            ops.listen,
            crate::holder::of_port(ops.listen.port()).map(|who| format!(" by {who}")).unwrap_or_default()
        ),
        _ => format!("OPS_LISTEN: listen on {}: {error}", ops.listen),
    })?;
    Ok(listener)
}

/// Writes down the address that was bound, for `status --state`; a file that cannot be written is a warning only. Whoever
/// leads does it: replicas of one host share the folder.
///
/// # Errors
/// The listener has no address.
pub fn write_down(ops: &Ops, listener: &TcpListener) -> Result<(), String> {
    let bound = listener.local_addr().map_err(|error| format!("OPS_LISTEN: {error}"))?;
    if let Err(error) = files::write(&ops.address_file, format!("{bound}\n").as_bytes()) {
        // Jobs do not need it; whoever looks can name the address.
        tracing::warn!(
            component = "ops",
            "{} could not be written ({error}): `status --state` will not find this process; use --ops http://{bound}",
            ops.address_file.display()
        );
    }
    Ok(())
}

/// The address in a state folder; none when no controller has run there.
#[must_use]
pub fn read(state: &Path) -> Option<SocketAddr> {
    std::fs::read_to_string(state.join("ops.addr")).ok()?.trim().parse().ok()
}
