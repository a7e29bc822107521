//! The program for operators.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// Gives back to the system what a burst of tasks took; glibc's keeps half of it. How soon is said when it is built, in
/// `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // The one crypto provider of the process; the only error is that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    controller::command::run(std::env::args_os())
}
