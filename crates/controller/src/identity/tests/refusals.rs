//! What the acceptor's handshake refuses (X509-SVID standard, section 5), each made by our own authority, so that
//! nothing but the one flaw is wrong with it.

use std::sync::Arc;

use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::identity::authority::{leaf_params, set_validity};

/// A client that does not mind who the server is.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// A client with a certificate of the host's authority that differs from a good one by `flaw` alone.
fn client(host: &Host, flaw: impl FnOnce(&mut CertificateParams)) -> ClientConfig {
    client_of(&host.issuer, &id("job"), flaw)
}

pub(super) fn client_of(
    issuer: &BuiltInIssuer,
    id: &SpiffeId,
    flaw: impl FnOnce(&mut CertificateParams),
) -> ClientConfig {
    let now = Timestamp::now();
    let mut params = leaf_params(id).unwrap();
    set_validity(&mut params, now - Duration::from_secs(60), now + Duration::from_secs(600));
    flaw(&mut params);
    let authorities = issuer.authorities();
    let authority = authorities.borrow()[0].clone();
    let issuer = Issuer::from_ca_cert_der(&authority.certificate, authority.key.as_ref().unwrap().pair()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().into();
    ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_auth_cert(vec![certificate], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.to_owned().try_into().unwrap())
}

pub(super) async fn knock(facade: &mut Facade, config: ClientConfig) -> Result<Peer, String> {
    let address = facade.url.authority().unwrap().as_str();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    // Kept open until the facade has judged.
    let _stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    facade.caller().await
}

/// FAC-10, FAC-12: exactly one URI SAN, a SPIFFE ID with a path, no CA, the right key usage, our trust domain, valid now.
#[tokio::test]
async fn a_certificate_with_a_single_flaw_is_refused() {
    let host = Host::new();
    let facade_api = host.serve("facade").await;
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;

    let accepted = knock(&mut facade, client(&host, |_| {})).await;
    assert_eq!(accepted.map(|peer| peer.id), Ok(id("job")), "the one without a flaw");
    let accepted = knock(&mut facade, client(&host, |params| params.extended_key_usages.clear())).await;
    assert_eq!(accepted.map(|peer| peer.id), Ok(id("job")), "extended key usage is optional");

    type Flaw = fn(&mut CertificateParams);
    let flaws: [(&str, Flaw); 13] = [
        ("two SPIFFE IDs", |params| params.subject_alt_names.push(uri("spiffe://td.test/other"))),
        ("a SPIFFE and an https URI", |params| params.subject_alt_names.push(uri("https://td.test/"))),
        ("no URI", |params| params.subject_alt_names.clear()),
        ("an https URI alone", |params| params.subject_alt_names = vec![uri("https://td.test/job")]),
        ("a CA", |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
        ("keyCertSign", |params| params.key_usages.push(KeyUsagePurpose::KeyCertSign)),
        ("cRLSign", |params| params.key_usages.push(KeyUsagePurpose::CrlSign)),
        ("no key usage", |params| params.key_usages.clear()),
        ("no basic constraints", |params| params.is_ca = IsCa::NoCa),
        ("a foreign trust domain", |params| params.subject_alt_names = vec![uri("spiffe://other.test/job")]),
        ("no path", |params| params.subject_alt_names = vec![uri("spiffe://td.test")]),
        ("expired", |params| {
            let now = Timestamp::now();
            set_validity(params, now - Duration::from_secs(600), now - Duration::from_secs(10));
        }),
        ("not yet valid", |params| {
            let now = Timestamp::now();
            set_validity(params, now + Duration::from_secs(600), now + Duration::from_secs(900));
        }),
    ];
    for (name, flaw) in flaws {
        let verdict = knock(&mut facade, client(&host, flaw)).await;
        assert!(verdict.is_err(), "{name}: {verdict:?}");
    }
}

/// FAC-12: no certificate, no connection.
#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let host = Host::new();
    let facade_api = host.serve("facade").await;
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    let nobody = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(Anybody));
    assert!(knock(&mut facade, nobody.with_no_client_auth()).await.is_err());
}

/// A flawless certificate of an authority that is not in the bundle is refused.
#[tokio::test]
async fn an_unknown_authority_is_refused() {
    let host = Host::new();
    let facade_api = host.serve("facade").await;
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let mut facade = Facade::start(own.acceptor()).await;
    let verdict = knock(&mut facade, client(&Host::new(), |_| {})).await;
    assert!(verdict.is_err(), "{verdict:?}");
}

/// NEW-103: no session is resumed, for a resumed one would skip the verifier; the client here would like to.
#[tokio::test]
async fn no_session_is_resumed() {
    let host = Host::new();
    let facade_api = host.serve("facade").await;
    let own = own_identity(&facade_api.endpoint(), &id("facade"), DEADLINE).await.unwrap();
    let facade = Facade::start(own.acceptor()).await;
    let config = Arc::new(client(&host, |_| {}));
    for _ in 0..2 {
        let stream = TcpStream::connect(facade.url.authority().unwrap().as_str()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(config.clone()).connect(name, stream).await.unwrap();
        ping(&mut stream).await.unwrap();
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
}
