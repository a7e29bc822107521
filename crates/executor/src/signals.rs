//! The signals that ask the executor to end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// A stream of signal numbers; tests feed it by hand.
pub type Signals = mpsc::UnboundedReceiver<i32>;

/// SIGTERM and SIGINT of this process, from now on.
///
/// # Errors
/// The handlers cannot be installed.
pub(crate) fn of_this_process() -> io::Result<Signals> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(
            async move { while signals.recv().await.is_some() && sender.send(kind.as_raw_value()).is_ok() {} },
        );
    }
    Ok(receiver)
}

/// Its usual name, for logs and for the facade.
pub(crate) fn name(signal: i32) -> String {
    match signal {
        2 => "SIGINT".to_owned(),
        9 => "SIGKILL".to_owned(),
        15 => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    }
}
