//! The one registration with Gitea: the only room that knows its credential (invariant 3), and the only way to send an
//! UpdateTask or UpdateLog, one at a time per task (invariant 2).

mod client;
mod error;
mod lane;

pub use client::{Credential, Fetched, Gitea, Registration, register};
pub use error::{GiteaError, Trouble};
pub use lane::{Lane, Turn};
