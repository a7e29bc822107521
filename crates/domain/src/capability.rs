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
        self.keys().find(|key| key.id() == id)
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten()
    }

    /// The capability of one incarnation; the same inputs always give the same text (WRK-7). It expires at `expires` or
    /// within the second after it, since it tells whole seconds: never before, or its holder would be told to stop at a
    /// moment when nothing has ended yet.
    #[must_use]
    pub fn issue(&self, instance: &InstanceId, id: AssignmentId, epoch: Epoch, expires: Timestamp) -> Capability {
        let begun = i64::from(expires.subsec_nanosecond() > 0);
        form_2(&self.current, instance, id, epoch, expires.as_second() + begun)
    }

    /// Checks a capability in constant time: only the very text that [`Self::issue`] makes, or made with the previous
    /// key, is good.
    ///
    /// # Errors
    ///
    /// [`Invalid`], whatever is wrong.
    pub fn verify(&self, text: &str, instance: &InstanceId, id: AssignmentId) -> Result<Grant, Invalid> {
        let (name, _) = text.rsplit_once('.').ok_or(Invalid)?;
        let (grant, expected) = self.named(name, instance, id)?;
        let genuine: bool = expected.expose().as_bytes().ct_eq(text.as_bytes()).into();
        if genuine { Ok(grant) } else { Err(Invalid) }
    }

    /// The capability whose text without its last part is `name`, and its epoch: for what was sealed with it (NEW-112).
    ///
    /// # Errors
    ///
    /// [`Invalid`] for a name of no key of ours, and for one that is written otherwise than [`Self::issue`] writes it.
    pub fn again(&self, name: &str, instance: &InstanceId, id: AssignmentId) -> Result<(Epoch, Capability), Invalid> {
        let (grant, capability) = self.named(name, instance, id)?;
        let same = capability.expose().strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        if same { Ok((grant.epoch, capability)) } else { Err(Invalid) }
    }

    fn named(&self, name: &str, instance: &InstanceId, id: AssignmentId) -> Result<(Grant, Capability), Invalid> {
        let parts: Vec<&str> = name.split('.').collect();
        let ["c2", kid, epoch, seconds] = parts[..] else { return Err(Invalid) };
        let epoch: Epoch = epoch.parse().map_err(|_| Invalid)?;
        let seconds: i64 = seconds.parse().map_err(|_| Invalid)?;
        let expires = Timestamp::from_second(seconds).map_err(|_| Invalid)?;
        let capability = form_2(self.find(kid).ok_or(Invalid)?, instance, id, epoch, seconds);
        Ok((Grant { epoch, expires }, capability))
    }

    /// Whether this is form 1, the earlier controller's: for callers that still accept envelopes of version 1 (§4.3).
    #[must_use]
    pub fn verify_form_1(&self, text: &str, id: AssignmentId) -> bool {
        self.keys().any(|key| form_1(key, id).expose().as_bytes().ct_eq(text.as_bytes()).into())
    }
}

fn form_1(key: &Key, id: AssignmentId) -> Capability {
    Capability(Zeroizing::new(URL_SAFE_NO_PAD.encode(tag(key, &format!("gitea-runner-assignment\0{id}")))))
}

fn form_2(key: &Key, instance: &InstanceId, id: AssignmentId, epoch: Epoch, expires: i64) -> Capability {
    let mac = tag(key, &format!("gitea-runner-assignment/2\0{instance}\0{id}\0{epoch}\0{expires}"));
    Capability(Zeroizing::new(format!("c2.{}.{epoch}.{expires}.{}", key.id(), URL_SAFE_NO_PAD.encode(mac))))
}

fn tag(key: &Key, text: &str) -> Vec<u8> {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length (RFC 2104 §2)")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).expect("any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    const OTHER_KEY: &[u8] = b"fedcba9876543210fedcba9876543210";
    const FORM_2: &str = "c2.3eb1bd43.1.1900000000.CUPDy_quh4Kri97HuLiDFGQpRIAoypjhtllCHgk7dpw";

    fn ring(current: &[u8], previous: Option<&[u8]>) -> KeyRing {
        KeyRing::new(Key::new(current).unwrap(), previous.map(|text| Key::new(text).unwrap()))
    }

    fn instance(text: &str) -> InstanceId {
        text.parse().unwrap()
    }

    fn id(task: i64) -> AssignmentId {
        format!("gitea-task-{task}").parse().unwrap()
    }

    fn expires() -> Timestamp {
        Timestamp::from_second(1_900_000_000).unwrap()
    }

    fn accepts(ring: &KeyRing, text: &str) -> bool {
        ring.verify(text, &instance("f66f031b"), id(42)).is_ok()
    }

    /// CAP-1: the vectors of form 1; the previous key is good too.
    #[test]
    fn form_1_is_read() {
        let vectors = [
            (42, "4k7dYwmRS3-V6PpvsKuQWOpMrWqi-hK3VZ1pjzHe1H4"),
            (1, "me5BuJvuh6tcSnBnOeA5puJqR0F8oaw8JW3B55pIkEE"),
            (900, "k_cTUvkLd40biaWM0iqqS0m0iSJcCBadK16cMt9h5iQ"),
        ];
        for (task, text) in vectors {
            assert!(ring(KEY, None).verify_form_1(text, id(task)));
            assert!(ring(OTHER_KEY, Some(KEY)).verify_form_1(text, id(task)));
            assert!(!ring(OTHER_KEY, None).verify_form_1(text, id(task)));
            assert!(!ring(KEY, None).verify_form_1(text, id(2)));
            assert!(!accepts(&ring(KEY, None), text), "never taken for form 2");
        }
    }

    /// CAP-1, NEW-99: the vector of form 2, made and checked.
    #[test]
    fn form_2_is_made_and_read() {
        let ring = ring(KEY, None);
        let capability = ring.issue(&instance("f66f031b"), id(42), Epoch::FIRST, expires());
        assert_eq!(capability.expose(), FORM_2);
        let grant = ring.verify(FORM_2, &instance("f66f031b"), id(42)).unwrap();
        assert_eq!(grant, Grant { epoch: Epoch::FIRST, expires: expires() });
    }

    /// NEW-30, NEW-159: a capability that expired before its deadline would stop a job for no reason that anybody knows.
    #[test]
    fn it_never_expires_before_its_deadline() {
        let (ring, instance) = (ring(KEY, None), instance("f66f031b"));
        for (nanoseconds, later) in [(0, 0), (1, 1), (999_999_999, 1)] {
            let deadline = Timestamp::new(1_900_000_000, nanoseconds).unwrap();
            let capability = ring.issue(&instance, id(42), Epoch::FIRST, deadline);
            let grant = ring.verify(capability.expose(), &instance, id(42)).unwrap();
            assert_eq!(grant.expires, Timestamp::from_second(1_900_000_000 + later).unwrap());
        }
    }

    /// CAP-1, F107: bound to instance, assignment, epoch and expiry; only the one spelling is good.
    #[test]
    fn nothing_else_is_genuine() {
        let ring = ring(KEY, None);
        assert!(ring.verify(FORM_2, &instance("other"), id(42)).is_err());
        assert!(ring.verify(FORM_2, &instance("f66f031b"), id(43)).is_err());
        for (from, to) in [
            (".1.", ".2."),
            (".1.", ".01."),
            (".1.", ".+1."),
            (".1.", ".0."),
            ("1900000000", "1900000001"),
            ("1900000000", "+1900000000"),
            ("1900000000", "99999999999999999999"),
            ("c2.", "c1."),
            ("c2.", ""),
            ("3eb1bd43", "3EB1BD43"),
            ("3eb1bd43", "00000000"),
            ("7dpw", "7dp"),
            ("7dpw", "7dpw="),
            ("7dpw", "7dpw.x"),
            ("7dpw", "7dpx"),
        ] {
            assert!(!accepts(&ring, &FORM_2.replacen(from, to, 1)), "{from} -> {to}");
        }
        assert!(!accepts(&ring, ""));
    }

    /// NEW-99, T24: a rotation keeps what the previous key made, and no more than that.
    #[test]
    fn keys_rotate() {
        assert!(accepts(&ring(OTHER_KEY, Some(KEY)), FORM_2));
        assert!(!accepts(&ring(OTHER_KEY, None), FORM_2));
        let made = ring(OTHER_KEY, Some(KEY)).issue(&instance("f66f031b"), id(42), Epoch::FIRST, expires());
        assert!(accepts(&ring(OTHER_KEY, None), made.expose()), "the current key makes");
    }

    /// CFG-10, CFG-1: at least 32 bytes of text.
    #[test]
    fn keys_are_long_texts() {
        assert_eq!(Key::new(&KEY[1..]).err(), Some(InvalidKey::Short(31)));
        assert_eq!(Key::new(&[KEY, b"\n"].concat()).err(), Some(InvalidKey::Binary));
        assert_eq!(Key::new(&[0xff; 32]).err(), Some(InvalidKey::Binary));
    }

    proptest! {
        /// CAP-1: a changed byte is noticed wherever it stands.
        #[test]
        fn a_changed_byte_is_noticed(at in 0..FORM_2.len(), byte in 0x20_u8..0x7f) {
            let mut text = FORM_2.as_bytes().to_vec();
            prop_assume!(text[at] != byte);
            text[at] = byte;
            prop_assert!(!accepts(&ring(KEY, None), std::str::from_utf8(&text).unwrap()));
        }
    }
}
