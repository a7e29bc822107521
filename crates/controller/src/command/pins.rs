//! Pinned identities, of whichever controller the command line means.

use std::path::PathBuf;
use std::process::ExitCode;

use super::telling::{answer, say};
use crate::args::{PinsVerb, SettingsArgs};
use crate::config::raw::Raw;
use crate::config::{Config, Queue, Supplied, table, validate};
use crate::pins::{self, Pins};
use crate::standalone::{self, Surroundings};

pub(super) async fn show_pins(verb: PinsVerb) -> ExitCode {
    let told = match verb {
        PinsVerb::List { json, state, settings } => match pins_of(state, &settings).await {
            Ok(pins) => pins::told(&pins, json).await,
            Err(problem) => Err(problem),
        },
        PinsVerb::Confirm { of, state, settings } => match pins_of(state, &settings).await {
            Ok(pins) => pins::confirmed(&pins, &of).await,
            Err(problem) => Err(problem),
        },
    };
    match told {
        Ok(text) => answer(&text),
        Err(problem) => {
            say(&format!("error: {problem}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Of the state folder that is named; else of the controller that these settings start, and without any of one-host mode.
/// In one-host mode the settings of its start say where its queue is.
async fn pins_of(state: Option<PathBuf>, settings: &SettingsArgs) -> Result<Pins, String> {
    let (raw, here) = (Raw::collect(settings, Raw::process_environment().into_iter()), Surroundings::here());
    let of_controller = state.is_none() && raw.is_meant();
    let folder = match &state {
        Some(state) => std::path::absolute(state).map_err(|error| error.to_string()),
        None => here.state_folder().map_err(|error| format!("{error}; {}", error.remedy())),
    };
    // Who starts a controller by settings names its registration there, and one-host mode never does.
    if !(of_controller && raw.get(table::GITEA_RUNNER_UUID_FILE.name).is_some())
        && let Ok(folder) = &folder
    {
        let found = standalone::with_queue_in_nats(folder, settings, &here);
        if let Some(config) = found.map_err(|error| format!("{error}; {}", error.remedy()))? {
            return pins_in(&config).await;
        }
    }
    if of_controller {
        return pins_in(&validate(&raw, Supplied::default()).map_err(|errors| errors.to_string())?).await;
    }
    pins::of_state(&folder?).await
}

async fn pins_in(config: &Config) -> Result<Pins, String> {
    match &config.queue {
        Queue::JetStream(nats) => pins::of_nats(nats, &config.instance).await,
        Queue::Embedded => pins::of_state(&config.state_dir).await,
    }
}
