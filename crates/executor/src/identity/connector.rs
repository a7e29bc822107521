//! Dialling the facade: plain TCP to the address in the URL, then a handshake that only the facade can pass.
//!
//! Nothing here reads a proxy variable (NEW-104): what is dialled is what the URL says.

use std::{error::Error, io, sync::Arc, time::Duration};

use rustls::{ClientConfig, pki_types::ServerName};
use spiffe_rustls::TlsStatus;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Longest wait for the TCP connection, and again for the handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for an SVID that is missing for the moment; SPIRE leaves it out for milliseconds while a CA is tainted.
const MATERIAL_PATIENCE: Duration = Duration::from_secs(10);

/// Opens authenticated connections to the facade, and to nobody else.
#[derive(Clone)]
pub struct FacadeConnector {
    tls: TlsConnector,
    material: TlsStatus,
}

impl FacadeConnector {
    pub(super) fn new(config: ClientConfig, material: TlsStatus) -> Self {
        Self { tls: TlsConnector::from(Arc::new(config)), material }
    }

    /// Opens one authenticated connection to the host and port of `url`, which must be an `https` URL.
    ///
    /// Waits first for our own SVID if it is missing at the moment. Each of the three waits is bounded, so that the
    /// whole takes 30 s at most.
    ///
    /// # Errors
    /// [`ConnectError`]. That the *facade* refuses *us* may show only in the first read: see [`is_refusal`].
    pub async fn dial(&self, url: &http::Uri) -> Result<TlsStream<TcpStream>, ConnectError> {
        let (host, port) = address(url)?;
        let name = ServerName::try_from(host.clone()).map_err(|_| ConnectError::Address(url.to_string()))?;
        self.wait_for_material().await?;
        let tcp = timeout(HANDSHAKE_PATIENCE, TcpStream::connect((host.as_str(), port)))
            .await
            .map_err(|_| ConnectError::Timeout("connection"))?
            .map_err(ConnectError::Tcp)?;
        tcp.set_nodelay(true).map_err(ConnectError::Tcp)?;
        timeout(HANDSHAKE_PATIENCE, self.tls.connect(name, tcp))
            .await
            .map_err(|_| ConnectError::Timeout("TLS handshake"))?
            .map_err(ConnectError::Tls)
    }

    async fn wait_for_material(&self) -> Result<(), ConnectError> {
        let mut material = self.material.clone();
        let usable = async {
            while !material.current().available {
                material.changed().await.map_err(|error| ConnectError::material(&error))?;
            }
            Ok(())
        };
        timeout(MATERIAL_PATIENCE, usable)
            .await
            .unwrap_or_else(|_| Err(ConnectError::Material("our SVID is withdrawn or expired".to_owned())))
    }
}

/// Host (brackets of an IPv6 address removed) and port of an `https` URL.
fn address(url: &http::Uri) -> Result<(String, u16), ConnectError> {
    let unusable = || ConnectError::Address(url.to_string());
    if url.scheme() != Some(&http::uri::Scheme::HTTPS) {
        return Err(unusable());
    }
    let host = url.host().ok_or_else(unusable)?.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), url.port_u16().unwrap_or(443)))
}

/// Why no authenticated connection to the facade came about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL cannot be dialled over mutual TLS.
    #[error("{0} is no https URL with a host; the facade is reached over https only")]
    Address(String),
    /// Our own SVID cannot be presented now. Worth a retry.
    #[error("no usable SVID to present to the facade: {0}")]
    Material(String),
    /// Nobody listens there, or the network is in the way. Worth a retry.
    #[error("no connection to the facade")]
    Tcp(#[source] io::Error),
    /// The handshake failed: the far side is not exactly the facade, or did not accept us.
    #[error("no mutual TLS with the facade")]
    Tls(#[source] io::Error),
    /// The far side is silent. Worth a retry.
    #[error("the facade did not complete the {0} within {HANDSHAKE_PATIENCE:?}")]
    Timeout(&'static str),
}

impl ConnectError {
    pub(super) fn material(error: &dyn Error) -> Self {
        Self::Material(error.to_string())
    }
}

/// Whether `error`, or anything beneath it, says that one of the two sides of a TLS connection refused the other.
///
/// With TLS 1.3 a refused client sees its handshake succeed; the alert comes with the first read, so that the error of
/// a *request* has to be asked. An alert may also mean that our own SVID is missing at the moment: see
/// [`super::Identity::is_usable`].
#[must_use]
pub fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return match tls {
            rustls::Error::AlertReceived(_) | rustls::Error::InvalidCertificate(_) => true,
            rustls::Error::Other(other) => other.0.downcast_ref().is_some_and(is_refusal_of_peer),
            _ => false,
        };
    }
    // The source of an io::Error is the source of what it wraps, which would skip the very error looked for.
    if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return is_refusal(inner);
    }
    error.source().is_some_and(is_refusal)
}

/// Whether the verifier found fault with the peer and not with our own material.
fn is_refusal_of_peer(error: &spiffe_rustls::Error) -> bool {
    use spiffe_rustls::Error as Verdict;
    matches!(
        error,
        Verdict::UnauthorizedSpiffeId(_)
            | Verdict::TrustDomainNotAllowed(_)
            | Verdict::NoBundle(_)
            | Verdict::MissingSpiffeId
            | Verdict::MultipleSpiffeIds
            | Verdict::InvalidLeaf(_)
            | Verdict::CertParse(_)
    )
}
