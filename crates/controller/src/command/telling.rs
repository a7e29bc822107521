//! What is told: answers on stdout, everything else on stderr or in the log.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use super::USAGE;
use crate::config::{self, Config, ConfigErrors, IsolationKind, Log, LogFormat, LogLevel, Queue, SecretFile};
use crate::standalone::words;
use crate::telemetry::{self, Installed, Secrets, events};

/// Writes an answer; a reader that went away is no failure.
pub(super) fn answer(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Says something to whoever reads stderr; when nobody can, there is nobody to tell.
pub(super) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// All wrong settings at once, exit 2 (CFG-2, CFG-9).
pub(super) fn refuse(errors: &ConfigErrors) -> ExitCode {
    let remedy = "correct them; `gitea-dynamic-runner config reference` lists every setting";
    if !std::io::stderr().is_terminal() {
        early_log();
        errors.0.iter().for_each(events::configuration_error);
    }
    fail(errors, Some(remedy), USAGE)
}

/// One fatal error: plain words on a terminal, else one JSON line.
pub(super) fn fail(error: &dyn fmt::Display, remedy: Option<&str>, code: u8) -> ExitCode {
    if std::io::stderr().is_terminal() {
        say(&format!("error: {error}\n"));
        if let Some(remedy) = remedy {
            say(&format!("\n  {remedy}\n"));
        }
    } else {
        early_log();
        events::runner_stopped(error, remedy);
    }
    ExitCode::from(code)
}

pub(super) fn say_warnings_early(warnings: &[String]) {
    early_log();
    for warning in warnings {
        tracing::warn!(component = "config", "{warning}");
    }
}

/// The log before the settings are known.
fn early_log() {
    let format = if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json };
    telemetry::install(Log { format, level: LogLevel::Info }, &Secrets::default());
}

/// The log, and what an operator should know from its first lines on.
pub(super) fn install_log(config: &Config, warnings: &[String]) -> Installed {
    let secrets = Secrets::default();
    let held = secret_files(config);
    held.iter().for_each(|secret| secrets.add(secret.expose()));
    let installed = telemetry::install(config.log, &secrets);
    let exposed = held.iter().filter_map(|secret| config::secret::exposure(secret.path()));
    for warning in warnings.iter().cloned().chain(exposed) {
        tracing::warn!(component = "config", "{warning}");
    }
    if config.allow_plaintext {
        tracing::warn!(
            component = "config",
            "ALLOW_PLAINTEXT is set: tokens and secrets may cross the network in clear text"
        );
    }
    if config.local.isolation == IsolationKind::None {
        tracing::warn!(component = "config", "LOCAL_ISOLATION is none: {}", words::NOT_ISOLATED);
    }
    installed
}

/// Every secret that was read from a file.
fn secret_files(config: &Config) -> Vec<&SecretFile> {
    let keys = [&config.facade.capability, &config.envelope];
    let keys = keys.into_iter().flat_map(|keys| std::iter::once(&keys.current).chain(&keys.previous));
    let logins = match &config.queue {
        Queue::Embedded => Vec::new(),
        Queue::JetStream(nats) => vec![&nats.producer.password, &nats.worker.password],
    };
    keys.chain([&config.gitea.token]).chain(logins).collect()
}
