//! What each word of the command line does: the thin shell between [`crate::args`] and the rooms.
//!
//! Answers go to stdout, everything else to stderr. On a terminal a failure is told in plain words, elsewhere as JSON
//! lines (CMP-11).

mod pins;
mod showing;
mod telling;
mod working;

use std::process::ExitCode;

use crate::args::{self, Command, IdentityOf, Parsed, SettingsArgs, parse};
use crate::backend::local::isolation::stage;
use crate::backend::local::supervisor;
use crate::config::raw::Raw;

use telling::{answer, say};

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
        Command::Standalone(args) => in_runtime(working::run_standalone(args)),
        Command::Controller(args) => in_runtime(working::run_controller(args)),
        // The process is the executor's alone from here on: signals, orphans, environment.
        Command::Executor => executor::run(|name| std::env::var(name).ok()),
        Command::Supervise { folder } => supervisor::run(&folder),
        Command::Isolate { folder, caller } => stage::outer(&folder, caller),
        Command::Isolated { folder } => stage::inner(&folder),
        Command::Trial { runner } => stage::trial(&runner),
        Command::Status(args) => in_runtime(showing::show_status(args)),
        Command::Svid(args) => in_runtime(showing::show_svid(args)),
        Command::Config { view } => showing::show_config(view),
        Command::Identity { of: IdentityOf::Pins { verb } } => in_runtime(pins::show_pins(verb)),
        Command::Completions { shell } => answer(&showing::completions(shell)),
        Command::Man { dir } => showing::write_manual(dir.as_deref()),
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
