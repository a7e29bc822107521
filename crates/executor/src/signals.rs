//! The signals that ask the executor to end.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A stream of signal numbers; tests feed it by hand.
pub type Signals = mpsc::UnboundedReceiver<i32>;

/// Signals as they come, for as long as this lives.
pub(crate) struct Listening {
    pub(crate) signals: Signals,
    _listeners: JoinSet<()>,
}

/// SIGTERM and SIGINT of this process, from now on.
///
/// # Errors
/// The handlers cannot be installed.
pub(crate) fn of_this_process() -> io::Result<Listening> {
    let (sender, signals) = mpsc::unbounded_channel();
    let mut listeners = JoinSet::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut seen = signal(kind)?;
        let sender = sender.clone();
        listeners
            .spawn(async move { while seen.recv().await.is_some() && sender.send(kind.as_raw_value()).is_ok() {} });
    }
    Ok(Listening { signals, _listeners: listeners })
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
