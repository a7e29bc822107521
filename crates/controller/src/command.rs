//! What each word of the command line does: the thin shell between [`crate::args`] and the rooms.
//!
//! Answers go to stdout, everything else to stderr. On a terminal a failure is told in plain words, elsewhere as JSON
//! lines (CMP-11).

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::app::{Place, Signals, Start};
use crate::args::{
    self, Command, ConfigView, EffectiveOf, IdentityOf, Parsed, PinsVerb, SettingsArgs, StandaloneArgs, StatusArgs,
    SvidArgs, parse,
};
use crate::backend::local::isolation::stage;
use crate::backend::local::supervisor;
use crate::config::raw::Raw;
use crate::config::{
    self, Config, ConfigErrors, IsolationKind, Log, LogFormat, LogLevel, Queue, SecretFile, Supplied, effective, table,
    validate,
};
use crate::descriptors::Descriptors;
use crate::kubernetes::Cluster;
use crate::lease::Held;
use crate::manual;
use crate::ops::{client, status, svid};
use crate::pins::{self, Pins};
use crate::standalone::{self, Prepared, StartError, Surroundings, runner, words};
use crate::standby::{self, Turn};
use crate::telemetry::{self, Installed, Secrets, events};

/// Nothing was started: the command line or the settings are wrong (requirements §1.5).
const USAGE: u8 = 2;
/// It could not start, or ended by itself.
const FAILURE: u8 = 1;

/// Does what the command line says and returns the exit code.
pub fn run(argv: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>) -> ExitCode {
    match parse(argv) {
        Parsed::Run(command) => dispatch(*command),
        Parsed::Bare if Raw::collect(&SettingsArgs::default(), Raw::process_environment().into_iter()).is_meant() => {
            dispatch(Command::Controller(SettingsArgs::default()))
        }
        Parsed::Bare => {
            say(&args::help());
            ExitCode::from(USAGE)
        }
        Parsed::Info(text) => answer(&text),
        Parsed::Usage(text) => {
            say(&text);
            ExitCode::from(USAGE)
        }
    }
}

fn dispatch(command: Command) -> ExitCode {
    match command {
        Command::Standalone(args) => in_runtime(run_standalone(args)),
        Command::Controller(args) => in_runtime(run_controller(args)),
        // The process is the executor's alone from here on: signals, orphans, environment.
        Command::Executor => executor::run(|name| std::env::var(name).ok()),
        Command::Supervise { folder } => supervisor::run(&folder),
        Command::Isolate { folder, caller } => stage::outer(&folder, caller),
        Command::Isolated { folder } => stage::inner(&folder),
        Command::Trial { runner } => stage::trial(&runner),
        Command::Status(args) => in_runtime(show_status(args)),
        Command::Svid(args) => in_runtime(show_svid(args)),
        Command::Config { view } => show_config(view),
        Command::Identity { of: IdentityOf::Pins { verb } } => in_runtime(show_pins(verb)),
        Command::Completions { shell } => answer(&completions(shell)),
        Command::Man { dir } => write_manual(dir.as_deref()),
    }
}

fn completions(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::documented(), "gitea-dynamic-runner", &mut script);
    // clap_complete takes the hyphens of a program's name for words of their own in one of two places (clap issue 6421).
    String::from_utf8_lossy(&script).replace("gitea__subcmd__dynamic__subcmd__runner", "gitea__dynamic__runner")
}

fn write_manual(dir: Option<&Path>) -> ExitCode {
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

fn in_runtime(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            // What is still at work on files may take long, and bears being cut off as by a crash (CMP-10).
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            say(&format!("error: no runtime: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn run_standalone(args: StandaloneArgs) -> ExitCode {
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
            let start = Start { config, place, descriptors: Descriptors::raise(), nats: None, ops_listener: None };
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

async fn run_controller(args: SettingsArgs) -> ExitCode {
    let raw = Raw::collect(&args, Raw::process_environment().into_iter());
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
    Ok(Start { config, place, descriptors: Descriptors::raise(), nats: None, ops_listener: None })
}

/// One of several: it speaks from the start, and works when its turn has come.
async fn run_replica(config: Config, warnings: &[String]) -> ExitCode {
    let site = match site(&config) {
        Ok(site) => site,
        Err(error) => return fail(&error, Some(&error.remedy()), error.exit_code()),
    };
    let installed = install_log(&config, warnings);
    let Turn { held, connections, ops_listener, signals } = match standby::turn(&config, site.cluster(), None).await {
        Ok(Some(turn)) => turn,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("{error:#}"), None, FAILURE),
    };
    match prepared(config, site).await {
        Ok(start) => {
            let start = Start { nats: connections, ops_listener: Some(ops_listener), ..start };
            run_app(start, held, signals, &installed).await
        }
        Err(error) => {
            held.release().await;
            fail(&error, Some(&error.remedy()), error.exit_code())
        }
    }
}

/// One-host mode has its folder's lock first: it shares it with nobody.
async fn run_in_turn(start: Start, folder: Held, installed: &Installed) -> ExitCode {
    if matches!(start.config.queue, Queue::Embedded) {
        return run_alone(start, folder, installed).await;
    }
    match standby::turn(&start.config, None, Some(folder)).await {
        Ok(Some(Turn { held, connections, ops_listener, signals })) => {
            let start = Start { nats: connections, ops_listener: Some(ops_listener), ..start };
            run_app(start, held, signals, installed).await
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}"), None, FAILURE),
    }
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

/// The log, and what an operator should know from its first lines on.
fn install_log(config: &Config, warnings: &[String]) -> Installed {
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

/// All wrong settings at once, exit 2 (CFG-2, CFG-9).
fn refuse(errors: &ConfigErrors) -> ExitCode {
    let remedy = "correct them; `gitea-dynamic-runner config reference` lists every setting";
    if !std::io::stderr().is_terminal() {
        early_log();
        errors.0.iter().for_each(events::configuration_error);
    }
    fail(errors, Some(remedy), USAGE)
}

/// One fatal error: plain words on a terminal, else one JSON line.
fn fail(error: &dyn fmt::Display, remedy: Option<&str>, code: u8) -> ExitCode {
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

fn say_warnings_early(warnings: &[String]) {
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

async fn show_status(args: StatusArgs) -> ExitCode {
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

async fn show_svid(args: SvidArgs) -> ExitCode {
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

async fn show_pins(verb: PinsVerb) -> ExitCode {
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

fn show_config(view: ConfigView) -> ExitCode {
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
            let raw = Raw::collect(&settings, Raw::process_environment().into_iter());
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

/// Writes an answer; a reader that went away is no failure.
fn answer(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Says something to whoever reads stderr; when nobody can, there is nobody to tell.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
