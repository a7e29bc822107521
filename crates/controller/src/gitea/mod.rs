//! The one registration with Gitea: the only room that knows its credential (invariant 3), and the only way to send an
//! UpdateTask or UpdateLog, one at a time per task (invariant 2).

mod client;
mod error;
mod lane;
mod transport;

pub use client::{AGENT, Credential, Declared, Fetched, Gitea, OnCancel};
pub use error::{GiteaError, Trouble};
pub use lane::{Lane, Turn};
pub use transport::{AUTHORITIES, Connector, read_authorities_again};
