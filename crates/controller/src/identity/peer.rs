//! Who is at the other end of a TLS connection, read from the certificate the handshake has verified.

use std::time::Duration;

use domain::identity::SpiffeId;
use jiff::Timestamp;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::authority::from_x509;

/// The verified client of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its ID.
    pub id: SpiffeId,
    /// When its SVID ends; the connection must not be used any longer than that (NEW-103).
    pub expires_at: Timestamp,
}

/// The client of a connection; `None` without a certificate or with anything but exactly one SPIFFE ID as its only URI
/// (FAC-10), which a handshake with [`super::OwnIdentity::acceptor`] does not let through.
#[must_use]
pub fn peer<S>(stream: &TlsStream<S>) -> Option<Peer> {
    let leaf = stream.get_ref().1.peer_certificates()?.first()?;
    let id = spiffe::cert::spiffe_id_from_der(leaf).ok().filter(|id| !id.path().is_empty())?;
    Some(Peer { id: id.to_string().parse().ok()?, expires_at: not_after(leaf)? })
}

/// The ID alone of [`peer`].
#[must_use]
pub fn peer_id<S>(stream: &TlsStream<S>) -> Option<SpiffeId> {
    peer(stream).map(|peer| peer.id)
}

/// How long a certificate lives in all.
pub(super) fn lifetime(certificate: &[u8]) -> Option<Duration> {
    let (_, x509) = X509Certificate::from_der(certificate).ok()?;
    let (begin, end) = (x509.validity().not_before, x509.validity().not_after);
    from_x509(end).ok()?.duration_since(from_x509(begin).ok()?).try_into().ok()
}

/// When a certificate ends.
pub(super) fn not_after(certificate: &[u8]) -> Option<Timestamp> {
    let (_, x509) = X509Certificate::from_der(certificate).ok()?;
    from_x509(x509.validity().not_after).ok()
}
