//! The program around one official Gitea runner: loopback proxy, runner process, final-report spool.
//!
//! One executor serves one assignment. It proves its identity to the facade, starts the unmodified official runner with
//! a registration that is good on its own loopback address only, and stays until everything the runner reported at its
//! end was delivered. Synchronous parts decide ([`spool`], [`supervise`], [`answer`], [`exit`], `proxy::paths`);
//! the others carry out.

mod answer;
mod backoff;
mod command;
mod deliver;
mod exit;
mod facade;
pub mod identity;
mod limits;
mod link;
mod proxy;
mod runner;
mod session;
mod settings;
mod signals;
mod spool;
mod start;
mod supervise;
mod telemetry;
mod termination;
mod token;

pub use command::command;
pub use limits::{Graces, Limits, Patience, StrayGraces};
pub use link::{BoxStream, Link, Stream};
pub use runner::files::{BaseError, check_base};
pub use runner::launch::{PROCESSES_OF_ITS_OWN, Starter};
pub use runner::orphans::Orphans;
pub use settings::Settings;
pub use signals::Signals;
pub use start::run;

/// Runs one assignment over a given link until its end and returns the exit code of requirements §1.5.
///
/// The part of [`run`] below identity and process: what tests drive with a facade of their own.
pub async fn run_over(settings: &Settings, link: Link, mut signals: Signals) -> u8 {
    session::run(settings, link, &mut signals).await.exit.code()
}
