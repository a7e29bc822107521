//! The program around one official Gitea runner: loopback proxy, runner process, final-report spool.
//!
//! One executor serves one assignment. It proves its identity to the facade, starts the unmodified official runner with
//! a registration that is good on its own loopback address only, and stays until everything the runner reported at its
//! end was delivered. Synchronous parts decide ([`spool`], [`supervise`], [`answer`], [`exit`], `proxy::paths`);
//! the others carry out.

mod answer;
mod backoff;
mod exit;
mod limits;
mod runner;
mod spool;
mod supervise;
mod token;

pub use limits::{Graces, Limits, Patience};
pub use runner::launch::Starter;
