//! The words of the command line (CMP-9). Parsing only: what a word does is [`crate::command`]'s business.
//!
//! The texts here are what an operator reads first, so each command says what it needs, what it leaves behind and how
//! it ends.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "gitea-dynamic-runner",
    version,
    about = "Runs every Gitea Actions job in a throw-away executor with an identity of its own",
    after_long_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The word, when there is one.
    #[command(subcommand)]
    command: Option<Command>,
    /// No word means `controller`, with its flags.
    #[command(flatten)]
    controller: SettingsArgs,
}

const AFTER_HELP: &str = "\
Begin here, on one host with nothing but a Gitea:

  gitea-dynamic-runner standalone --gitea https://git.example.org --registration-token-file token.txt

and write into a workflow:

  jobs:
    build:
      runs-on: local          # or: self-hosted

Without a command word, `controller` is meant, when its settings are in the environment; else this help is shown.

Exit codes:
  0  orderly end (a signal, or the command did what it was asked)
  1  failure: the text says what failed and what to do
  2  usage: the command line or the settings are wrong, nothing was started
  The executor has codes of its own: gitea-dynamic-runner executor --help";

/// The command words.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One host: registers with a Gitea and runs each of its jobs in throw-away processes here
    #[command(after_long_help = STANDALONE_HELP)]
    Standalone(StandaloneArgs),
    /// Runs with the settings of the environment and a file (what no word means)
    #[command(after_long_help = CONTROLLER_HELP)]
    Controller(SettingsArgs),
    /// Runs one assigned task; started by the controller, never by hand
    #[command(after_long_help = EXECUTOR_HELP)]
    Executor,
    /// Shows what a running controller holds, runs and waits for
    #[command(after_long_help = STATUS_HELP)]
    Status(StatusArgs),
    /// Prints the SPIFFE IDs that this process is given by the Workload API
    #[command(after_long_help = SVID_HELP)]
    Svid(SvidArgs),
    /// Looks at settings without starting anything
    Config {
        /// What to show.
        #[command(subcommand)]
        view: ConfigView,
    },
    /// Looks at whose an identity is
    Identity {
        /// Of what.
        #[command(subcommand)]
        of: IdentityOf,
    },
    /// Prints a completion script: gitea-dynamic-runner completions bash > FILE
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the manual page, or writes one page per command into a folder
    #[command(after_long_help = MAN_HELP)]
    Man {
        /// The folder, which must exist; pages of the same name are written anew
        dir: Option<PathBuf>,
    },
    /// Keeps one local executor; started by the local backend
    #[command(hide = true)]
    Supervise {
        /// The executor's folder below the state folder.
        folder: PathBuf,
    },
    /// Makes the namespaces of one isolated executor; started by its supervisor
    #[command(hide = true)]
    Isolate {
        /// The executor's folder below the state folder.
        folder: PathBuf,
        /// Process id of whom this process must not outlive.
        caller: i32,
    },
    /// Becomes one isolated executor; started by `isolate`
    #[command(hide = true)]
    Isolated {
        /// The executor's folder below the state folder.
        folder: PathBuf,
    },
    /// Shows that the official runner starts where an executor would; started by `isolated` in its place
    #[command(hide = true)]
    Trial {
        /// The official runner.
        runner: PathBuf,
    },
}

const STANDALONE_HELP: &str = "\
The first start registers with Gitea; later starts need neither --gitea nor a token file.
Ctrl-C or SIGTERM ends it in order. Running jobs go on, and the next start takes them up again.

Remembered in the state folder: the Gitea, the runner's name, UUID and token, the trust domain, keys, queue and jobs.
Not remembered: --capacity, --label, --ops-listen, --config, --set. Say them at every start, or keep them in a file.

Examples:
  gitea-dynamic-runner standalone --gitea https://git.example.org --registration-token-file token.txt
  gitea-dynamic-runner standalone --capacity 4 --label fast
  gitea-dynamic-runner standalone --config /etc/gitea-dynamic-runner.toml

What to write into a workflow: `runs-on: local`, `runs-on: self-hosted`, or one of your own --label.

The official runner does the work of a job. It is looked for in GITEA_RUNNER_BINARY, then as `gitea-runner` and
`act_runner` in PATH. Every other setting of `controller` can be given by environment, --config or --set.

State folder: $XDG_STATE_HOME/gitea-dynamic-runner, else ~/.local/state/gitea-dynamic-runner; for root
/var/lib/gitea-dynamic-runner.

Exit codes: 0 orderly end, 1 failure, 2 wrong command line or settings.";

const CONTROLLER_HELP: &str = "\
Every setting has one name: as NAME in the environment, as name (lower case) in the file, as --set NAME=VALUE here.
A flag wins over the environment, the environment over the file, the file over the default.

Examples:
  COMPONENTS=scheduler,local-worker QUEUE=embedded gitea-dynamic-runner controller --config /etc/gdr.toml
  gitea-dynamic-runner config effective --config /etc/gdr.toml      # what would be used, and from where
  gitea-dynamic-runner config schema                                # JSON schema of the file

Exit codes: 0 orderly end, 1 failure, 2 wrong command line or settings (all of them are named at once).";

const EXECUTOR_HELP: &str = "\
Settings come from the environment that the controller made: CI_ASSIGNMENT_ID, CI_RUNNER_FACADE_URL, …

Exit codes: 0 the runner ended and every final report was delivered, 10 no exact SVID in time, 11 facade not reachable
in time, 12 nothing to do, 13 the runner failed to start, 14 a final report was not delivered; otherwise the runner's
own code. It never says anything about the job's result.";

const MAN_HELP: &str = "\
Examples:
  gitea-dynamic-runner man | man -l -
  gitea-dynamic-runner man /usr/local/share/man/man1
  man gitea-dynamic-runner-standalone";

const STATUS_HELP: &str = "\
Examples:
  gitea-dynamic-runner status                                   # the standalone of this user
  gitea-dynamic-runner status --state /srv/runner --json
  gitea-dynamic-runner status --ops http://127.0.0.1:9090

Exit codes: 0 ready, 1 not ready or not reachable, 2 usage.";

const SVID_HELP: &str = "\
Inside a job it prints the job's own identity. SPIFFE_ENDPOINT_SOCKET names the Workload API.

Examples:
  gitea-dynamic-runner svid
  gitea-dynamic-runner svid --json | jq -r '.svids[0].spiffe_id'

Exit codes: 0 at least one identity, 1 none or the Workload API is away, 2 usage.";

/// Where settings come from besides the environment.
#[derive(Debug, Default, Clone, Args)]
pub struct SettingsArgs {
    /// Settings file (TOML): the names in lower case
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Components to run, the same as COMPONENTS (default: all; `standalone` sets it itself)
    #[arg(long, value_name = "LIST")]
    pub components: Option<String>,
    /// Any setting; wins over environment and file
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
}

/// Flags of `standalone`.
#[derive(Debug, Default, Clone, Args)]
pub struct StandaloneArgs {
    /// Address of the Gitea, as in the browser; remembered after the first start
    #[arg(long, value_name = "URL")]
    pub gitea: Option<String>,
    /// File with the registration token (Gitea: Settings → Actions → Runners → Create new Runner); first start only
    #[arg(long, value_name = "FILE")]
    pub registration_token_file: Option<PathBuf>,
    /// Where registration, keys, queue and running jobs are kept (default: see "State folder" in --help)
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// How many jobs run at the same time, 1 to 1024 (default: 1)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub capacity: Option<String>,
    /// One more label for runs-on, beside `self-hosted` and `local`; may be repeated (default: none)
    #[arg(long, value_name = "L")]
    pub label: Vec<String>,
    /// Whether jobs are kept from each other and from this host: full or none (default: full)
    #[arg(long, value_name = "KIND")]
    pub isolation: Option<String>,
    /// Address for health, metrics and status; port 0 lets the kernel choose (default: 127.0.0.1:0)
    #[arg(long, value_name = "ADDR")]
    pub ops_listen: Option<String>,
    /// SPIFFE trust domain of the jobs' identities; fixed at the first start (default: made of the instance id)
    #[arg(long, value_name = "NAME")]
    pub trust_domain: Option<String>,
    /// Every other setting.
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// Flags of `status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Print the JSON document (schema 1)
    #[arg(long)]
    pub json: bool,
    /// State folder of the standalone to ask
    #[arg(long, value_name = "DIR", conflicts_with = "ops")]
    pub state: Option<PathBuf>,
    /// Address of a controller's OPS_LISTEN
    #[arg(long, value_name = "URL")]
    pub ops: Option<String>,
}

/// What `identity` looks at.
#[derive(Debug, Clone, Subcommand)]
pub enum IdentityOf {
    /// Which repository stands behind a name; a change is refused until it is confirmed here
    Pins {
        /// What to do.
        #[command(subcommand)]
        verb: PinsVerb,
    },
}

/// What to do with pins.
#[derive(Debug, Clone, Subcommand)]
pub enum PinsVerb {
    /// Shows all of them
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// State folder of the controller
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Those of the controller or of `standalone`, whose queue may be in NATS.
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Gives identities to the repository that was refused last; the controller may run or not
    Confirm {
        /// A SPIFFE ID, or owner/name for all identities of a repository
        of: String,
        /// State folder of the controller
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Those of the controller or of `standalone`, whose queue may be in NATS.
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

/// Flags of `svid`.
#[derive(Debug, Clone, Args)]
pub struct SvidArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Seconds to wait for the Workload API
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout: u64,
}

/// What `config` shows.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigView {
    /// Every setting with value (secrets left out) and source
    #[command(args_conflicts_with_subcommands = true, after_long_help = EFFECTIVE_HELP)]
    Effective {
        /// Print JSON
        #[arg(long, global = true)]
        json: bool,
        /// Where the settings of `controller` come from.
        #[command(flatten)]
        settings: SettingsArgs,
        /// Those of the other way to start it.
        #[command(subcommand)]
        of: Option<EffectiveOf>,
    },
    /// The settings with default, rule and meaning, as a Markdown table
    Reference,
    /// JSON schema of the settings file
    Schema,
}

/// Whose settings `config effective` shows, when not those of `controller`.
#[derive(Debug, Clone, Subcommand)]
pub enum EffectiveOf {
    /// Those of `standalone` with the same flags; nothing is asked or written
    Standalone(Box<StandaloneArgs>),
}

const EFFECTIVE_HELP: &str = "\
Sources: default, standalone (what it decides itself), file, environment, flag. Secrets are left out.

Examples:
  gitea-dynamic-runner config effective --config /etc/gdr.toml
  gitea-dynamic-runner config effective standalone --capacity 4
  gitea-dynamic-runner config effective standalone --json | jq -r '.settings[] | select(.source != \"default\")'

Exit codes: 0 the settings are right, 2 they are not (all errors are named).";

/// What the command line asks for, or what to print instead.
#[derive(Debug)]
pub enum Parsed {
    /// Do this.
    Run(Box<Command>),
    /// Nothing but the program's name: `controller` when the environment configures one (CMP-9), else a person who
    /// looks around.
    Bare,
    /// `--help` or `--version`: print on stdout, exit 0.
    Info(String),
    /// Wrong usage: print on stderr, exit 2.
    Usage(String),
}

/// Reads a command line, program name first. An unknown word is `unknown command "x"` (CMP-9).
pub fn parse(argv: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Parsed {
    let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
    if argv.len() < 2 {
        return Parsed::Bare;
    }
    if let Some(word) = argv.get(1).and_then(|w| w.to_str()).filter(|w| !w.starts_with('-'))
        && word != "help"
        && Cli::command().find_subcommand(word).is_none()
    {
        return Parsed::Usage(unknown_command(word));
    }
    match Cli::try_parse_from(argv) {
        Ok(Cli { command: Some(command), .. }) => Parsed::Run(Box::new(command)),
        Ok(Cli { command: None, controller }) => Parsed::Run(Box::new(Command::Controller(controller))),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Parsed::Info(error.render().to_string()),
            _ => Parsed::Usage(format!("{}{}", error.render(), behind_the_word(&error))),
        },
    }
}

/// The command line as completions and manual pages show it: without the words that only this program says to itself.
#[must_use]
pub fn documented() -> clap::Command {
    let whole = Cli::command();
    let shown = whole.get_subcommands().filter(|word| !word.is_hide_set()).cloned();
    SettingsArgs::augment_args(clap::Command::new("gitea-dynamic-runner"))
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .after_long_help(AFTER_HELP)
        .args_conflicts_with_subcommands(true)
        .subcommands(shown)
}

/// What `--help` says.
#[must_use]
pub fn help() -> String {
    Cli::command().render_long_help().to_string()
}

fn unknown_command(word: &str) -> String {
    let cli = Cli::command();
    let words: Vec<_> = cli.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name).collect();
    format!("unknown command {word:?}\n\nThe commands are {}. Try: gitea-dynamic-runner --help\n", words.join(", "))
}

/// What to say about a flag of `controller` that stands before another word.
fn behind_the_word(error: &clap::Error) -> String {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::ArgumentConflict => {
            format!("\nFlags stand behind the command: gitea-dynamic-runner {word} --set NAME=VALUE\n")
        }
        _ => String::new(),
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.trim().to_ascii_uppercase(), value.to_owned()))
}

/// The default of `OPS_LISTEN` on one host: loopback, a port of the kernel's choice.
pub const STANDALONE_OPS: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0));

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn run(argv: &str) -> Command {
        match parse(std::iter::once("gitea-dynamic-runner").chain(argv.split_whitespace())) {
            Parsed::Run(command) => *command,
            other => panic!("{argv}: {other:?}"),
        }
    }

    #[track_caller]
    fn usage(argv: &str) -> String {
        match parse(std::iter::once("gitea-dynamic-runner").chain(argv.split_whitespace())) {
            Parsed::Usage(text) => text,
            other => panic!("{argv}: {other:?}"),
        }
    }

    /// CMP-9: no word means `controller`, with its flags; the old words stay.
    #[test]
    fn no_word_means_controller() {
        assert!(matches!(parse(["gitea-dynamic-runner"]), Parsed::Bare));
        assert!(matches!(run("controller"), Command::Controller(_)));
        assert!(matches!(run("executor"), Command::Executor));
        let Command::Controller(settings) = run("--components scheduler --set local_capacity=2") else {
            panic!("no controller")
        };
        assert_eq!(settings.components.as_deref(), Some("scheduler"));
        assert_eq!(settings.set, [("LOCAL_CAPACITY".to_owned(), "2".to_owned())]);
    }

    /// CMP-9: an unknown word and surplus arguments are usage errors.
    #[test]
    fn unknown_words_and_surplus_arguments() {
        assert!(usage("frobnicate").starts_with("unknown command \"frobnicate\"\n"));
        assert!(usage("contoller --components x").starts_with("unknown command \"contoller\"\n"));
        for surplus in ["controller extra", "executor extra", "status extra", "standalone extra", "--nonsense"] {
            assert!(usage(surplus).contains("Usage"), "{surplus}: {}", usage(surplus));
        }
        assert!(usage("status --state a --ops http://127.0.0.1:1").contains("cannot be used with"));
    }

    /// A flag before the word is told where it belongs.
    #[test]
    fn flags_stand_behind_the_word() {
        for flag in ["--set LOG_LEVEL=debug", "--config gdr.toml"] {
            let text = usage(&format!("{flag} standalone --capacity 2"));
            let expect = "\nFlags stand behind the command: gitea-dynamic-runner standalone --set NAME=VALUE\n";
            assert!(
                text.contains("the subcommand 'standalone' cannot be used with") && text.ends_with(expect),
                "{text}"
            );
        }
        let Command::Standalone(args) = run("standalone --set LOG_LEVEL=debug") else { panic!("no standalone") };
        assert_eq!(args.settings.set.len(), 1);
        assert!(!usage("status --state a --ops http://127.0.0.1:1").contains("Flags stand behind"));
    }

    /// CFG-9: a negative number reaches the rule that refuses it.
    #[test]
    fn a_negative_capacity_is_a_value() {
        let Command::Standalone(args) = run("standalone --capacity -1") else { panic!("no standalone") };
        assert_eq!(args.capacity.as_deref(), Some("-1"));
    }

    /// `--help` says what to write into runs-on, and the exit codes; the hidden word stays hidden.
    #[test]
    fn help_teaches() {
        let Parsed::Info(help) = parse(["gitea-dynamic-runner", "--help"]) else { panic!("no help") };
        for word in ["runs-on: local", "Exit codes", "standalone --gitea", "completions"] {
            assert!(help.contains(word), "{word}");
        }
        assert!(!help.contains("supervise"));
        Cli::command().debug_assert();
        documented().debug_assert();
    }

    /// The defaults that the help of `standalone` names are those of the table, and it says what is remembered.
    #[test]
    fn help_names_the_defaults() {
        let Parsed::Info(help) = parse(["gitea-dynamic-runner", "standalone", "--help"]) else { panic!("no help") };
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let capacity = crate::config::table::LOCAL_CAPACITY.default.unwrap_or_default();
        assert!(help.contains(&format!("(default: {capacity})")), "{help}");
        assert!(help.contains(&format!("(default: {STANDALONE_OPS})")), "{help}");
        for flag in ["--capacity,", "--label,", "--ops-listen,", "the trust domain,"] {
            assert!(help.contains(flag), "{flag}: {help}");
        }
    }
}
