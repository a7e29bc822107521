//! What operators ask: the state of a controller, identities, settings, manuals.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::USAGE;
use super::telling::{answer, say};
use crate::args::{self, ConfigView, EffectiveOf, StatusArgs, SvidArgs};
use crate::config::raw::Raw;
use crate::config::{ConfigErrors, Supplied, effective, validate};
use crate::manual;
use crate::ops::{client, status, svid};
use crate::standalone::{self, Surroundings};

pub(super) async fn show_status(args: StatusArgs) -> ExitCode {
    let at = match (&args.ops, &args.state) {
        (Some(ops), _) => Ok(ops.clone()),
        (None, Some(state)) => client::of_state(state).map_err(|e| e.to_string()),
        (None, None) => match Surroundings::here().state_folder() {
            Ok(state) => client::of_state(&state).map_err(|e| e.to_string()),
            Err(error) => Err(format!("{error}; {}", error.remedy())),
        },
    };
    let asked = match at {
        Ok(at) => client::ask(&at).await.map_err(|e| e.to_string()),
        Err(problem) => Err(problem),
    };
    match asked {
        Ok((json, snapshot)) => {
            let shown = if args.json { format!("{}\n", json.trim_end()) } else { status::text(&snapshot) };
            let code = answer(&shown);
            if snapshot.ready { code } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            say(&format!("error: {problem}\n"));
            ExitCode::FAILURE
        }
    }
}

pub(super) async fn show_svid(args: SvidArgs) -> ExitCode {
    let variables = Raw::process_environment();
    let endpoint = variables.iter().find(|(name, _)| name == "SPIFFE_ENDPOINT_SOCKET").map(|(_, value)| value.as_str());
    match svid::fetch(endpoint, Duration::from_secs(args.timeout)).await {
        Ok(svids) if args.json => answer(&format!("{}\n", serde_json::json!(svids))),
        Ok(svids) => answer(&svids.svids.iter().map(|s| format!("{}\n", s.spiffe_id)).collect::<String>()),
        Err(error) => {
            say(&format!("error: {error}\n"));
            match error {
                svid::SvidError::Endpoint(_) => ExitCode::from(USAGE),
                svid::SvidError::None { .. } => ExitCode::FAILURE,
            }
        }
    }
}

pub(super) fn show_config(view: ConfigView) -> ExitCode {
    match view {
        ConfigView::Reference => answer(&effective::reference()),
        ConfigView::Schema => answer(&format!("{:#}\n", effective::schema())),
        ConfigView::Effective { json, of: Some(EffectiveOf::Standalone(args)), .. } => {
            match standalone::view(&args, &Surroundings::here()) {
                Ok((raw, judged)) => show_effective(&raw, json, judged),
                Err(error) => {
                    say(&format!("error: {error}\n\n  {}\n", error.remedy()));
                    ExitCode::from(error.exit_code())
                }
            }
        }
        ConfigView::Effective { json, settings, of: None } => {
            let mut raw = Raw::collect(&settings, Raw::process_environment().into_iter());
            raw.warn_of_no_effect();
            show_effective(&raw, json, validate(&raw, Supplied::default()).map(drop))
        }
    }
}

fn show_effective(raw: &Raw, json: bool, judged: Result<(), ConfigErrors>) -> ExitCode {
    let shown = if json { format!("{:#}\n", effective::json(raw)) } else { effective::text(raw) };
    let code = answer(&shown);
    raw.warnings.iter().for_each(|warning| say(&format!("warning: {warning}\n")));
    match judged {
        Ok(()) => code,
        Err(errors) => {
            say(&format!("error: {errors}\n"));
            ExitCode::from(USAGE)
        }
    }
}

pub(super) fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::documented(), "gitea-dynamic-runner", &mut script);
    // clap_complete takes the hyphens of a program's name for words of their own in one of two places (clap issue 6421).
    String::from_utf8_lossy(&script).replace("gitea__subcmd__dynamic__subcmd__runner", "gitea__dynamic__runner")
}

pub(super) fn write_manual(dir: Option<&Path>) -> ExitCode {
    let written = match dir {
        Some(dir) => manual::write(dir).map_err(|error| format!("write manual pages into {}: {error}", dir.display())),
        None => manual::page().map_err(|error| error.to_string()),
    };
    match written {
        Ok(text) => answer(&text),
        Err(problem) => {
            say(&format!("error: {problem}\n"));
            ExitCode::FAILURE
        }
    }
}
