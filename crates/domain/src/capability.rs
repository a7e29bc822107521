//! What an executor shows besides its SPIFFE ID: bound to instance, assignment and epoch, with an expiry (requirements
//! §4.3; CAP-1, NEW-99), and the key ring that capabilities and envelopes share.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::id::{AssignmentId, Epoch, InstanceId};

/// Keys shorter than this are refused (CFG-10).
const SHORTEST_KEY: usize = 32;

/// A key that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Fewer than 32 bytes.
    #[error("the key has {0} bytes; at least 32 are required")]
    Short(usize),
    /// Trimming white space from a binary key would change it (CFG-1).
    #[error("the key holds bytes other than printable ASCII; write it as text, for example as 64 hex digits")]
    Binary,
}

/// One secret key. No `Debug`; zeroized.
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// A key of at least 32 bytes of printable ASCII.
    ///
    /// # Errors
    ///
    /// See [`InvalidKey`].
    pub fn new(text: &[u8]) -> Result<Self, InvalidKey> {
        if text.len() < SHORTEST_KEY {
            return Err(InvalidKey::Short(text.len()));
        }
        if !text.iter().all(u8::is_ascii_graphic) {
            return Err(InvalidKey::Binary);
        }
        Ok(Self(Zeroizing::new(text.to_vec())))
    }

    /// The first 8 hex digits of SHA-256 of the key: its public name.
    #[must_use]
    pub fn id(&self) -> String {
        data_encoding::HEXLOWER.encode(&Sha256::digest(&*self.0)[..4])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The current key and the one before it. No `Debug`.
pub struct KeyRing {
    current: Key,
    previous: Option<Key>,
}

/// The text an executor presents. No `Debug`, no `Display`; zeroized.
pub struct Capability(Zeroizing<String>);

impl Capability {
    /// The text, for the one place that hands it over.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// What a genuine capability says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The incarnation it was made for.
    pub epoch: Epoch,
    /// From then on it is worth nothing; the caller decides.
    pub expires: Timestamp,
}

/// Not a capability of ours for this assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the capability is not valid for this assignment")]
pub struct Invalid;

impl KeyRing {
    /// A ring; what is made uses `current`, what is checked may use either.
    #[must_use]
    pub fn new(current: Key, previous: Option<Key>) -> Self {
        Self { current, previous }
    }

    pub(crate) fn current(&self) -> &Key {
        &self.current
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Key> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(|key| key.id() == id)
    }

    /// The capability of one incarnation; the same inputs always give the same text (WRK-7).
    #[must_use]
    pub fn issue(&self, instance: &InstanceId, id: AssignmentId, epoch: Epoch, expires: Timestamp) -> Capability {
        let seconds = expires.as_second();
        let mac = URL_SAFE_NO_PAD.encode(mac(&self.current, instance, id, epoch, seconds));
        Capability(Zeroizing::new(format!("c2.{}.{epoch}.{seconds}.{mac}", self.current.id())))
    }

    /// Checks a capability in constant time.
    ///
    /// # Errors
    ///
    /// [`Invalid`], whatever is wrong.
    pub fn verify(&self, text: &str, instance: &InstanceId, id: AssignmentId) -> Result<Grant, Invalid> {
        let parts: Vec<&str> = text.split('.').collect();
        let ["c2", kid, epoch, seconds, tag] = parts[..] else { return Err(Invalid) };
        let epoch: Epoch = epoch.parse().map_err(|_| Invalid)?;
        let seconds: i64 = seconds.parse().map_err(|_| Invalid)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| Invalid)?;
        let key = self.find(kid).ok_or(Invalid)?;
        let genuine: bool = mac(key, instance, id, epoch, seconds).ct_eq(&tag).into();
        let expires = Timestamp::from_second(seconds).map_err(|_| Invalid)?;
        if genuine { Ok(Grant { epoch, expires }) } else { Err(Invalid) }
    }
}

fn mac(key: &Key, instance: &InstanceId, id: AssignmentId, epoch: Epoch, expires: i64) -> Vec<u8> {
    tag(key, &format!("gitea-runner-assignment/2\0{instance}\0{id}\0{epoch}\0{expires}"))
}

fn tag(key: &Key, text: &str) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104 §2)")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).expect("any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Form 1 of the earlier controller; accepted only while envelopes of version 1 are.
#[must_use]
pub fn is_form_1(key: &Key, id: AssignmentId, text: &str) -> bool {
    let expected = URL_SAFE_NO_PAD.encode(tag(key, &format!("gitea-runner-assignment\0{id}")));
    expected.as_bytes().ct_eq(text.as_bytes()).into()
}
