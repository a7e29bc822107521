//! A streaming reverse forwarder that knows nothing of what it forwards.
//!
//! Bodies pass frame by frame as the very buffers they arrived in, at the pace of whoever reads them: a reader that
//! stalls stalls the sender, and nothing is collected in between. A direction in which nothing moves for too long ends
//! the exchange. What belongs to one connection only stays on it (RFC 9110, section 7.6.1), and what would make more
//! of a request than a request ([`check()`]) or hide where it goes ([`path`]) is refused.
//!
//! Which paths and headers may pass is the caller's to decide: it gets the head of the request before it is sent.

mod check;
mod error;
mod forwarder;
mod hop;
mod lane;
pub mod path;

pub use check::{Refused, check};
pub use error::{BoxError, ForwardError, StreamError};
pub use forwarder::{Forwarder, NO_PROGRESS};
pub use hop::strip_hop_by_hop;
pub use lane::Streamed;
