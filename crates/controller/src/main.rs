//! The program for operators.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The one crypto provider of the process; the only error is that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    controller::command::run(std::env::args_os())
}
