//! Who is who: the built-in issuer of SPIFFE identities, and the facade's own side of mutual TLS.
//!
//! [`BuiltInIssuer`] is for one host and for tests. It speaks the standard SPIFFE Workload API, so that everything that
//! *uses* an identity ([`own_identity`], the executor) does the same whether SPIRE or the built-in issuer is behind the
//! socket. One socket serves one ID: who may open the socket *is* the attestation, so that the caller gives each
//! executor a folder of its own that nobody else can enter.
//!
//! Invariants: everything known of the `spiffe` crates, of X.509 and of certificates on the controller's side is here;
//! no private key has a `Debug`, is logged or outlives its use; a valid certificate authorises nothing, it only says
//! who is speaking.

mod authority;
pub mod entry;
mod issuer;
mod lifetimes;
mod own;
mod peer;
mod serve;
mod socket;
mod store;
#[cfg(test)]
mod tests;

mod workload_api;

pub use issuer::{BuiltInIssuer, IssuerError};
pub use lifetimes::{Lifetimes, LifetimesError};
pub use own::{NoIdentity, OwnIdentity, own_identity};
pub use peer::{Peer, peer, peer_id};
pub use serve::ServedIdentity;
pub use socket::{SocketAccess, SocketError};
