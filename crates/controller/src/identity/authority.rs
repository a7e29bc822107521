//! Certificate authorities and the leaves they sign; which authority signs now and what is due next.
//!
//! An authority is first announced in the bundle, then signs, then only verifies until it ends. The rules are functions
//! of the list and of the time; who calls passes the time in.

use std::time::Duration;

use domain::identity::{SpiffeId, TrustDomain};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, string::Ia5String,
};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::{Zeroize as _, Zeroizing};

use super::lifetimes::Lifetimes;

/// How far before its making a certificate becomes valid, for peers whose clock is behind.
const BACKDATE: SignedDuration = SignedDuration::from_secs(60);

/// One certificate authority: its certificate, and its private key as long as it may still sign.
pub(super) struct Authority {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: Option<AuthorityKey>,
    pub(super) created: Timestamp,
    pub(super) not_after: Timestamp,
}

/// The private key of an authority. No `Debug`; overwritten when dropped.
pub(super) struct AuthorityKey(KeyPair);

/// An X.509-SVID with its private key. No `Debug`; the key is overwritten when dropped.
pub(super) struct Leaf {
    pub(super) certificate: CertificateDer<'static>,
    /// PKCS#8, DER.
    pub(super) key: Zeroizing<Vec<u8>>,
    /// When half of its life is over.
    pub(super) renew_at: Timestamp,
}

/// What an issuer has to do about its authorities at some moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before this time.
    NothingUntil(Timestamp),
    /// Make and announce a successor.
    Successor,
    /// Forget keys that will never sign again and certificates that have ended.
    Retirement,
}

/// A certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorityError {
    #[error(transparent)]
    Make(#[from] rcgen::Error),
    #[error("{0}")]
    Read(&'static str),
}

impl Authority {
    /// A new self-signed authority for one trust domain.
    pub(super) fn make(domain: &TrustDomain, now: Timestamp, life: Duration) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let created = whole_second(now);
        let not_after = created + life;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "gitea-dynamic-runner");
        params.distinguished_name.push(DnType::CommonName, format!("{domain} {created}"));
        params.subject_alt_names = vec![uri(format!("spiffe://{domain}"))?];
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, created - BACKDATE, not_after);
        let certificate = params.self_signed(&key)?.into();
        Ok(Self { certificate, key: Some(AuthorityKey(key)), created, not_after })
    }

    /// Reads an authority back and checks that it is what [`Authority::make`] makes for this trust domain.
    pub(super) fn read(domain: &TrustDomain, certificate: Vec<u8>, key: Option<&[u8]>) -> Result<Self, AuthorityError> {
        let unreadable = |_| AuthorityError::Read("it holds something that is no certificate");
        let certificate = CertificateDer::from(certificate);
        let (rest, x509) = X509Certificate::from_der(&certificate).map_err(unreadable)?;
        let id = spiffe::cert::spiffe_id_from_der(&certificate)
            .map_err(|_| AuthorityError::Read("a certificate in it has no SPIFFE ID"))?;
        if !rest.is_empty() || !x509.is_ca() {
            return Err(AuthorityError::Read("a certificate in it is no authority"));
        }
        if id.to_string() != format!("spiffe://{domain}") {
            return Err(AuthorityError::Read("an authority in it belongs to another trust domain"));
        }
        let key =
            key.map(|key| AuthorityKey::read(key, x509.public_key().subject_public_key.data.as_ref())).transpose()?;
        let (created, not_after) =
            (from_x509(x509.validity().not_before)? + BACKDATE, from_x509(x509.validity().not_after)?);
        Ok(Self { certificate, key, created, not_after })
    }

    /// The same authority without its private key.
    pub(super) fn retired(&self) -> Self {
        Self { certificate: self.certificate.clone(), key: None, created: self.created, not_after: self.not_after }
    }

    /// Signs a new key for `id`. The leaf never outlives the authority.
    pub(super) fn issue(&self, id: &SpiffeId, now: Timestamp, life: Duration) -> Result<Leaf, AuthorityError> {
        let authority = self.key.as_ref().ok_or(AuthorityError::Read("a retired authority does not sign"))?;
        let issuer = Issuer::from_ca_cert_der(&self.certificate, &authority.0)?;
        let not_after = whole_second(now + life).min(self.not_after);
        let mut params = leaf_params(id)?;
        set_validity(&mut params, now - BACKDATE, not_after);
        let mut key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?.into();
        let pkcs8 = Zeroizing::new(key.serialize_der());
        key.zeroize();
        Ok(Leaf { certificate, key: pkcs8, renew_at: halfway(now, not_after) })
    }

    fn half_life(&self) -> Timestamp {
        halfway(self.created, self.not_after)
    }
}

/// What an X.509-SVID must say, apart from its validity (X509-SVID standard, sections 2 to 4).
pub(super) fn leaf_params(id: &SpiffeId) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "gitea-dynamic-runner");
    params.subject_alt_names = vec![uri(id.to_string())?];
    // Plain `NoCa` leaves the extension out, and verifiers refuse a leaf without it.
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

impl AuthorityKey {
    fn read(pkcs8: &[u8], public: &[u8]) -> Result<Self, AuthorityError> {
        let pair = KeyPair::try_from(pkcs8).map_err(|_| AuthorityError::Read("a private key in it is unusable"))?;
        let key = Self(pair);
        if key.0.public_key_raw() != public {
            return Err(AuthorityError::Read("a private key in it does not belong to its certificate"));
        }
        Ok(key)
    }

    /// PKCS#8, DER.
    pub(super) fn pkcs8(&self) -> &[u8] {
        self.0.serialized_der()
    }

    #[cfg(test)]
    pub(super) fn pair(&self) -> &KeyPair {
        &self.0
    }
}

impl Drop for AuthorityKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The authority that signs at `now`: the newest that was announced long enough. `list` is ordered, oldest first.
///
/// `None` only when every authority with a key has ended.
pub(super) fn signer<A: AsRef<Authority>>(list: &[A], now: Timestamp, lifetimes: &Lifetimes) -> Option<usize> {
    let able = |index: &usize| list[*index].as_ref().key.is_some() && list[*index].as_ref().not_after > now;
    let announced = |index: &usize| signs_from(list, *index, lifetimes) <= now;
    // After a clock was set back, none may be announced long enough: then the oldest, which peers know longest.
    (0..list.len()).rev().filter(able).find(announced).or_else(|| (0..list.len()).find(able))
}

/// What to do about the authorities at `now`.
pub(super) fn due<A: AsRef<Authority>>(list: &[A], now: Timestamp, lifetimes: &Lifetimes) -> Due {
    let (Some(signer), Some(newest)) = (signer(list, now, lifetimes), list.last()) else { return Due::Successor };
    let newest = newest.as_ref();
    if newest.half_life() <= now {
        return Due::Successor;
    }
    let ended = list.iter().any(|authority| authority.as_ref().not_after <= now);
    let superseded = list[..signer].iter().any(|authority| authority.as_ref().key.is_some());
    if ended || superseded {
        return Due::Retirement;
    }
    let ends = list.iter().map(|authority| authority.as_ref().not_after);
    let announced = signs_from(list, list.len() - 1, lifetimes);
    let next = ends.chain([newest.half_life(), announced]).filter(|event| *event > now).min();
    Due::NothingUntil(next.unwrap_or(newest.not_after))
}

/// When the authority at `index` may begin to sign: at once if nobody relied on an older one when it was made.
fn signs_from<A: AsRef<Authority>>(list: &[A], index: usize, lifetimes: &Lifetimes) -> Timestamp {
    let created = list[index].as_ref().created;
    let relied_on_another = list[..index].iter().any(|older| older.as_ref().not_after > created);
    if relied_on_another { created + lifetimes.announcement } else { created }
}

fn uri(text: String) -> Result<SanType, AuthorityError> {
    Ok(SanType::URI(Ia5String::try_from(text)?))
}

fn halfway(from: Timestamp, to: Timestamp) -> Timestamp {
    from + from.duration_until(to) / 2
}

/// X.509 times have whole seconds.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

pub(super) fn set_validity(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let since_epoch = |time: Timestamp| Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0));
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(from);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(to);
}

pub(super) fn from_x509(time: x509_parser::time::ASN1Time) -> Result<Timestamp, AuthorityError> {
    Timestamp::from_second(time.timestamp())
        .map_err(|_| AuthorityError::Read("a certificate in it has no usable dates"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::sync::Arc;

    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes {
        leaf: Duration::from_secs(60),
        authority: Duration::from_secs(1000),
        announcement: Duration::from_secs(10),
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn authority(second: i64) -> Arc<Authority> {
        Arc::new(Authority::make(&"td.test".parse().unwrap(), at(second), LIFETIMES.authority).unwrap())
    }

    #[track_caller]
    fn check(list: &[Arc<Authority>], second: i64, expected_signer: Option<usize>, expected_due: Due) {
        assert_eq!(signer(list, at(second), &LIFETIMES), expected_signer, "signer at {second}");
        assert_eq!(due(list, at(second), &LIFETIMES), expected_due, "due at {second}");
    }

    #[test]
    fn a_successor_is_announced_before_it_signs_and_the_old_one_verifies_until_it_ends() {
        let mut list = vec![authority(0)];
        check(&list, 0, Some(0), Due::NothingUntil(at(500)));
        check(&list, 499, Some(0), Due::NothingUntil(at(500)));
        check(&list, 500, Some(0), Due::Successor);
        list.push(authority(500));
        check(&list, 500, Some(0), Due::NothingUntil(at(510)));
        check(&list, 509, Some(0), Due::NothingUntil(at(510)));
        check(&list, 510, Some(1), Due::Retirement);
        list[0] = Arc::new(list[0].retired());
        check(&list, 510, Some(1), Due::NothingUntil(at(1000)));
        check(&list, 999, Some(1), Due::NothingUntil(at(1000)));
        check(&list, 1000, Some(1), Due::Successor);
        list.push(authority(1000));
        check(&list, 1000, Some(1), Due::Retirement);
        list.remove(0);
        check(&list, 1000, Some(0), Due::NothingUntil(at(1010)));
    }

    #[test]
    fn after_a_long_sleep_a_successor_signs_at_once() {
        let mut list = vec![authority(0)];
        check(&list, 5000, None, Due::Successor);
        list.push(authority(5000));
        check(&list, 5000, Some(1), Due::Retirement);
    }

    #[test]
    fn a_clock_that_was_set_back_leaves_a_signer_and_breeds_no_successors() {
        let list = vec![Arc::new(authority(0).retired()), authority(500)];
        assert_eq!(signer(&list, at(100), &LIFETIMES), Some(1));
        assert!(matches!(due(&list, at(100), &LIFETIMES), Due::NothingUntil(_)));
    }

    #[test]
    fn no_leaf_outlives_its_authority() {
        let authority = authority(0);
        let id = "spiffe://td.test/ci/o/r/j".parse().unwrap();
        let end =
            |now| super::super::peer::not_after(&authority.issue(&id, at(now), LIFETIMES.leaf).unwrap().certificate);
        assert_eq!(end(0), Some(at(60)));
        assert_eq!(end(980), Some(at(1000)));
    }

    /// IDN-9: two runs of one job have one ID and different serial numbers.
    #[test]
    fn two_leaves_of_one_id_differ_in_key_and_serial() {
        let authority = authority(0);
        let id = "spiffe://td.test/ci/o/r/j".parse().unwrap();
        let serial = |leaf: &Leaf| X509Certificate::from_der(&leaf.certificate).unwrap().1.raw_serial().to_vec();
        let first = authority.issue(&id, at(0), LIFETIMES.leaf).unwrap();
        let second = authority.issue(&id, at(0), LIFETIMES.leaf).unwrap();
        assert_ne!(serial(&first), serial(&second));
        assert_ne!(*first.key, *second.key);
    }

    #[test]
    fn a_foreign_or_mismatched_authority_is_not_read() {
        let (domain, foreign): (TrustDomain, TrustDomain) = ("td.test".parse().unwrap(), "other.test".parse().unwrap());
        let (one, other) = (authority(0), authority(1));
        let read = |domain, certificate: &[u8], key: Option<&[u8]>| Authority::read(domain, certificate.to_vec(), key);
        let key = |authority: &Authority| authority.key.as_ref().unwrap().pkcs8().to_vec();
        let again = read(&domain, &one.certificate, Some(&key(&one))).ok().unwrap();
        assert_eq!((again.created, again.not_after), (one.created, one.not_after));
        assert!(read(&domain, &one.certificate, Some(&key(&other))).is_err(), "the key of another certificate");
        assert!(read(&domain, &one.certificate, Some(b"key")).is_err(), "no key");
        assert!(read(&domain, b"certificate", None).is_err(), "no certificate");
        assert!(read(&foreign, &one.certificate, None).is_err(), "another trust domain");
        let leaf = one.issue(&"spiffe://td.test/x".parse().unwrap(), at(0), LIFETIMES.leaf).unwrap();
        assert!(read(&domain, &leaf.certificate, None).is_err(), "a leaf");
    }
}
