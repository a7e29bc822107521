//! A controller at work: judged before it starts, in its turn where it is one of several.

use std::path::PathBuf;
use std::process::ExitCode;

use super::FAILURE;
use super::telling::{fail, install_log, refuse, say, say_warnings_early};
use crate::app::{Place, Signals, Start};
use crate::args::{SettingsArgs, StandaloneArgs};
use crate::config::raw::Raw;
use crate::config::{Config, Queue, Supplied, validate};
use crate::descriptors::Descriptors;
use crate::kubernetes::Cluster;
use crate::lease::Held;
use crate::rotation::Passwords;
use crate::standalone::{self, Prepared, StartError, Surroundings, runner, words};
use crate::standby::{self, Turn};
use crate::telemetry::{Installed, events};

pub(super) async fn run_standalone(args: StandaloneArgs) -> ExitCode {
    let here = Surroundings::here();
    match standalone::start(&args, &here).await {
        Ok((mut prepared, lead)) => {
            if here.terminal {
                say(&words::greeting(&prepared, &here));
            } else if words::root_jobs(&here, prepared.config.local.isolation) {
                prepared.warnings.push(words::AS_ROOT.to_owned());
            }
            let Prepared { config, runner, walls, warnings, .. } = prepared;
            let place = Place::Host { runner, walls };
            let start = before_its_turn(config, place);
            let installed = install_log(&start.config, &warnings);
            let code = run_in_turn(start, lead, &installed).await;
            if here.terminal && code == ExitCode::SUCCESS {
                say(words::GOODBYE);
            }
            code
        }
        Err(StartError::Settings(errors)) => refuse(&errors),
        Err(error) => fail(&error, Some(&error.remedy()), error.exit_code()),
    }
}

pub(super) async fn run_controller(args: SettingsArgs) -> ExitCode {
    let mut raw = Raw::collect(&args, Raw::process_environment().into_iter());
    raw.warn_of_no_effect();
    let config = match validate(&raw, Supplied::default()) {
        Ok(config) => config,
        Err(errors) => {
            say_warnings_early(&raw.warnings);
            return refuse(&errors);
        }
    };
    match config.queue {
        Queue::Embedded => match start(config).await {
            Ok((start, lead)) => {
                let installed = install_log(&start.config, &raw.warnings);
                run_alone(start, lead, &installed).await
            }
            Err(error) => fail(&error, Some(&error.remedy()), error.exit_code()),
        },
        Queue::JetStream(_) => run_replica(config, &raw.warnings).await,
    }
}

/// In the order of [`standalone::start`], and with its words.
async fn start(config: Config) -> Result<(Start, Held), StartError> {
    let site = site(&config)?;
    let lead = standalone::lead(&config.state_dir).await?;
    Ok((prepared(config, site).await?, lead))
}

/// Where executors are to be made: what can be judged of it before it is this process's turn.
enum Site {
    /// On this host, with the official runner in this file.
    Host(PathBuf),
    /// In a cluster.
    Cluster(Cluster),
}

impl Site {
    fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Host(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }
}

fn site(config: &Config) -> Result<Site, StartError> {
    match &config.pods {
        Some(pods) => Ok(Site::Cluster(Cluster::connect(&pods.access, &pods.namespace)?)),
        None => Ok(Site::Host(runner::locate(&config.runner)?)),
    }
}

async fn prepared(config: Config, site: Site) -> Result<Start, StartError> {
    let place = match site {
        Site::Cluster(cluster) => Place::Cluster(cluster),
        Site::Host(program) => {
            let jobs = (&config.local, &config.runner);
            let patience = Surroundings::here().runner_patience;
            let (runner, walls) = standalone::judge_host(jobs, program, &config.state_dir, patience).await?;
            Place::Host { runner, walls }
        }
    };
    Ok(before_its_turn(config, place))
}

/// What a process starts with that has not waited for its turn.
fn before_its_turn(config: Config, place: Place) -> Start {
    Start {
        config,
        place,
        descriptors: Descriptors::raise(),
        nats: None,
        passwords: Passwords::default(),
        ops_listener: None,
    }
}

/// One of several: it speaks from the start, and works when its turn has come.
async fn run_replica(config: Config, warnings: &[String]) -> ExitCode {
    let site = match site(&config) {
        Ok(site) => site,
        Err(error) => return fail(&error, Some(&error.remedy()), error.exit_code()),
    };
    let installed = install_log(&config, warnings);
    let turn = match standby::turn(&config, site.cluster(), None, &installed.secrets).await {
        Ok(Some(turn)) => turn,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("{error:#}"), None, FAILURE),
    };
    match prepared(config, site).await {
        Ok(start) => run_turn(start, turn, &installed).await,
        Err(error) => {
            turn.held.release().await;
            fail(&error, Some(&error.remedy()), error.exit_code())
        }
    }
}

/// One-host mode has its folder's lock first: it shares it with nobody.
async fn run_in_turn(start: Start, folder: Held, installed: &Installed) -> ExitCode {
    if matches!(start.config.queue, Queue::Embedded) {
        return run_alone(start, folder, installed).await;
    }
    match standby::turn(&start.config, None, Some(folder), &installed.secrets).await {
        Ok(Some(turn)) => run_turn(start, turn, installed).await,
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}"), None, FAILURE),
    }
}

/// Its turn has come: it goes on with what it waited with.
async fn run_turn(start: Start, turn: Turn, installed: &Installed) -> ExitCode {
    let Turn { held, connections, passwords, ops_listener, signals } = turn;
    let start = Start { nats: connections, passwords, ops_listener: Some(ops_listener), ..start };
    run_app(start, held, signals, installed).await
}

/// Nobody else waits for this leadership, and it waited for none.
async fn run_alone(start: Start, lead: Held, installed: &Installed) -> ExitCode {
    match Signals::listen() {
        Ok(signals) => run_app(start, lead, signals, installed).await,
        Err(error) => fail(&error, None, FAILURE),
    }
}

async fn run_app(start: Start, lead: Held, signals: Signals, installed: &Installed) -> ExitCode {
    match crate::app::run(start, lead, signals, installed).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            events::runner_stopped(&format!("{error:#}"), None);
            ExitCode::FAILURE
        }
    }
}
