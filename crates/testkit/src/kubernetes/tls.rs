//! TLS of the double, for clients that insist on it: a CA of its own and a certificate for the loopback address.

use std::net::Ipv4Addr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// The acceptor, and the CA (PEM) that its certificate is signed by.
pub(super) fn acceptor() -> Result<(TlsAcceptor, String), Box<dyn std::error::Error>> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "double of Kubernetes");
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let mut parameters = CertificateParams::new(vec!["localhost".to_owned()])?;
    parameters.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
    let key = KeyPair::generate()?;
    let certificate = parameters.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok((TlsAcceptor::from(Arc::new(config)), issuer.pem()))
}
