//! Servers of this machine by the names and addresses that Pods know them by, behind certificates of an authority of
//! their own.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testkit::real::NatsTls;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A certificate for some names, and who made it (PEM).
pub(crate) struct Certified {
    pub(crate) authority: String,
    certificate: String,
    key: String,
}

impl Certified {
    pub(crate) fn for_names(names: &[&str]) -> Self {
        let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&authority_key).unwrap().pem();
        let issuer = Issuer::new(params, authority_key);
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap().pem();
        Self { authority, certificate, key: key.serialize_pem() }
    }

    /// In files, for a NATS server.
    pub(crate) fn of_nats(&self, dir: &Path) -> NatsTls {
        let [certificate, key] = [("nats.pem", &self.certificate), ("nats.key", &self.key)].map(|(name, text)| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path
        });
        NatsTls { certificate, key, client_authority: None }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// What comes to an address of this machine goes on to a port of its loopback interface, until this is dropped.
pub(crate) struct Wire(JoinHandle<()>);

impl Wire {
    /// As it is.
    pub(crate) async fn plain(from: (Ipv4Addr, u16), to: u16) -> Self {
        Self::lay(from, to, None).await
    }

    /// Without the TLS in which it came.
    pub(crate) async fn behind_tls(from: (Ipv4Addr, u16), to: u16, certified: &Certified) -> Self {
        Self::lay(from, to, Some(certified.acceptor())).await
    }

    async fn lay(from: (Ipv4Addr, u16), to: u16, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(from).await.unwrap();
        Self(tokio::spawn(async move {
            while let Ok((visitor, _)) = listener.accept().await {
                let tls = tls.clone();
                tokio::spawn(async move {
                    let Some(tls) = tls else { return carry(visitor, to).await };
                    // Who breaks off, or whom the certificate does not please, sees it itself.
                    if let Ok(visitor) = tls.accept(visitor).await {
                        carry(visitor, to).await;
                    }
                });
            }
        }))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn carry(mut visitor: impl AsyncRead + AsyncWrite + Unpin, to: u16) {
    if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await {
        // The end of either is the end of both.
        let _ = copy_bidirectional(&mut visitor, &mut server).await;
    }
}
