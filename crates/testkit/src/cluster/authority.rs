//! The certificate authority of a double of SPIRE: one key for the whole trust domain, and leaves that outlive every test.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Nothing here is renewed: what renewal needs is shown with the built-in issuer and with a real SPIRE.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// For a clock that is read a moment earlier.
const BACKDATE: Duration = Duration::from_secs(60);

/// Signs whatever it is asked to.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// An X.509-SVID.
#[derive(Clone)]
pub(super) struct Svid {
    pub(super) id: String,
    /// DER.
    pub(super) certificate: Bytes,
    /// PKCS#8, DER.
    pub(super) key: Vec<u8>,
}

impl Authority {
    /// A new one for a trust domain.
    pub(super) fn of(domain: &str) -> Result<Self, rcgen::Error> {
        let mut params = valid_now();
        params.distinguished_name.push(DnType::CommonName, "double of SPIRE");
        params.subject_alt_names = vec![uri(&format!("spiffe://{domain}"))?];
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        CertifiedIssuer::self_signed(params, KeyPair::generate()?).map(Self)
    }

    /// Its certificate, DER.
    pub(super) fn certificate(&self) -> Bytes {
        Bytes::copy_from_slice(self.0.der())
    }

    /// An SVID with a key of its own.
    pub(super) fn issue(&self, id: &str) -> Result<Svid, rcgen::Error> {
        let mut params = valid_now();
        params.subject_alt_names = vec![uri(id)?];
        // Verifiers want it said that a leaf is none (X509-SVID standard, section 4.1).
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        let certificate = Bytes::copy_from_slice(certificate.der());
        Ok(Svid { id: id.to_owned(), certificate, key: key.serialize_der() })
    }
}

fn valid_now() -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = Duration::from_secs(Timestamp::now().as_second().unsigned_abs());
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now.saturating_sub(BACKDATE);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + LIFE;
    params
}

fn uri(text: &str) -> Result<SanType, rcgen::Error> {
    Ok(SanType::URI(Ia5String::try_from(text)?))
}
