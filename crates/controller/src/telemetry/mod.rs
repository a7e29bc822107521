//! The log: JSON lines on stderr, or lines for people ([`human`]; requirements §3).
//!
//! Events with a fixed vocabulary are written through [`events`] only, so that no room can misspell one. No event
//! carries a payload, a credential, a capability or an HTTP body; [`Secrets`] is the net below that rule: what is
//! registered there is cut out of every line, error texts included (NEW-141). Repetitions are left out and summed
//! (NEW-142).

pub mod events;
pub mod human;
#[cfg(test)]
pub(crate) mod lines;
mod repeats;
mod secrets;

use std::io::IsTerminal as _;
use std::time::Instant;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Log, LogFormat, LogLevel};

use repeats::{Now, Summed};

pub use human::Names;
pub use secrets::Secrets;

use human::Human;

/// Our own crates; the libraries below them speak from `warn` on only.
const OURS: [&str; 3] = ["controller", "executor", "forward"];

/// Installs the log for the whole process; a second call changes nothing. What is returned waits for somebody who knows
/// more.
pub fn install(log: Log, secrets: &Secrets) -> Installed {
    let (writer, names) = (secrets.writer(std::io::stderr), Names::default());
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let subscriber = speaking(log, writer, if colours { Colours::On } else { Colours::Off }, names.clone());
    // The only error is that a subscriber is installed already: then that one goes on.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Installed { names, secrets: secrets.clone() }
}

/// What an installed log can still learn.
pub struct Installed {
    /// The names of jobs.
    pub names: Names,
    /// Secrets to cut out.
    pub secrets: Secrets,
}

/// Whether text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// On a terminal whose user did not set NO_COLOR.
    On,
    /// Everywhere else.
    Off,
}

/// The log into any writer, for a reader who knows no names of jobs.
pub fn subscriber<W>(log: Log, writer: W, colours: Colours) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    speaking(log, writer, colours, Names::default())
}

/// The log into any writer; what [`install`] installs, and what tests read.
pub fn speaking<W>(log: Log, writer: W, colours: Colours, names: Names) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    subscriber_at(Instant::now, log, writer, colours, names)
}

fn subscriber_at<W>(
    now: Now,
    log: Log,
    writer: W,
    colours: Colours,
    names: Names,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter(log.level)).with_target(false).with_writer(writer);
    match log.format {
        LogFormat::Json => {
            let json = builder.json().flatten_event(true).with_current_span(false).with_span_list(false);
            Box::new(json.map_event_format(|format| Summed::new(format, log.format, now)).finish())
        }
        // Whoever asks for more than what happens wants every event with all its fields.
        LogFormat::Text if log.level <= LogLevel::Info => {
            Box::new(builder.event_format(Summed::new(Human::new(colours, names), log.format, now)).finish())
        }
        LogFormat::Text => {
            let text = builder.with_ansi(colours == Colours::On).compact();
            Box::new(text.map_event_format(|format| Summed::new(format, log.format, now)).finish())
        }
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    let others = if level == LogLevel::Error { "error" } else { "warn" };
    let ours = OURS.map(|name| format!("{name}={}", level.as_str())).join(",");
    // What the NATS client says of each try it says to us as well, and we say it once (crate::nats).
    EnvFilter::new(format!("{others},async_nats=off,{ours}"))
}
