//! The end of a job that its executor could not deliver, as it lies in a file beside it (NEW-112).
//!
//! It holds rows and outputs of the job. So it is sealed under a key made of the capability, which only the executor and
//! the controller know: a process of the same user can neither read it nor write one that opens. The name of the
//! capability stands outside, so that the controller makes the same capability again and needs to store none.

use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _, Nonce};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::capability::KeyRing;
use crate::id::{AssignmentId, Epoch, InstanceId};

/// Its name; it lies in the folder of the capability's file, where that can be written.
pub const FILE: &str = "last-report";

const FORM: &str = "gitea-last-report/1";
/// Stands for a part that is not there; no part is that long.
const NONE: u32 = u32::MAX;

/// What is owed to Gitea, in the order in which it is said. No `Debug`: it holds rows and outputs of the job.
#[derive(Default)]
pub struct LastReport {
    /// An interruption, accepted or not, with its cause (NEW-158).
    pub interrupted: Option<String>,
    /// A protobuf UpdateLogRequest with `no_more`.
    pub log: Option<Zeroizing<Vec<u8>>>,
    /// A protobuf UpdateTaskRequest with a result.
    pub state: Option<Zeroizing<Vec<u8>>>,
}

/// A file that is no last report of this executor: damaged, forged, of another one, or of a key that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the last report of the executor does not open")]
pub struct Unopened;

impl LastReport {
    /// The content of the file. A nonce must never be used twice with one capability; none without a genuine form of
    /// capability, or for more than 4 GiB.
    #[must_use]
    pub fn seal(&self, capability: &str, id: AssignmentId, nonce: [u8; 12]) -> Option<Vec<u8>> {
        let (name, _) = capability.rsplit_once('.')?;
        let mut plain = Zeroizing::new(Vec::with_capacity(self.length()));
        for part in [self.interrupted.as_ref().map(String::as_bytes), self.log(), self.state()] {
            let length = part.map_or(Some(NONE), |part| u32::try_from(part.len()).ok().filter(|len| *len != NONE))?;
            plain.extend_from_slice(&length.to_be_bytes());
            plain.extend_from_slice(part.unwrap_or_default());
        }
        let aad = associated(name, id);
        let payload = Payload { msg: &plain, aad: aad.as_bytes() };
        let sealed = cipher(capability).encrypt(&Nonce::from(nonce), payload).ok()?;
        Some([FORM.as_bytes(), b" ", name.as_bytes(), b"\n", &nonce[..], &sealed[..]].concat())
    }

    /// Opens the file of this executor; the epoch is that of the capability it was sealed with.
    ///
    /// # Errors
    /// [`Unopened`], whatever is wrong.
    pub fn open(
        ring: &KeyRing,
        file: &[u8],
        instance: &InstanceId,
        id: AssignmentId,
    ) -> Result<(Epoch, Self), Unopened> {
        let line = file.iter().position(|byte| *byte == b'\n').ok_or(Unopened)?;
        let (head, rest) = file.split_at(line);
        let name = std::str::from_utf8(head).ok().and_then(|head| head.strip_prefix(FORM)?.strip_prefix(' '));
        let name = name.ok_or(Unopened)?;
        let (epoch, capability) = ring.again(name, instance, id).map_err(|_| Unopened)?;
        let (nonce, sealed) = rest[1..].split_first_chunk::<12>().ok_or(Unopened)?;
        let aad = associated(name, id);
        let payload = Payload { msg: sealed, aad: aad.as_bytes() };
        let plain = cipher(capability.expose()).decrypt(&Nonce::from(*nonce), payload).map_err(|_| Unopened)?;
        Ok((epoch, Self::read(&Zeroizing::new(plain)).ok_or(Unopened)?))
    }

    /// Nothing is owed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.log.is_none() && self.state.is_none()
    }

    fn log(&self) -> Option<&[u8]> {
        self.log.as_ref().map(|part| &part[..])
    }

    fn state(&self) -> Option<&[u8]> {
        self.state.as_ref().map(|part| &part[..])
    }

    fn length(&self) -> usize {
        let parts = [self.interrupted.as_ref().map(String::as_bytes), self.log(), self.state()];
        parts.into_iter().map(|part| 4 + part.map_or(0, <[u8]>::len)).sum()
    }

    fn read(mut plain: &[u8]) -> Option<Self> {
        let mut part = || -> Option<Option<Zeroizing<Vec<u8>>>> {
            let (length, rest) = plain.split_first_chunk::<4>()?;
            let length = u32::from_be_bytes(*length);
            if length == NONE {
                plain = rest;
                return Some(None);
            }
            let (part, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            plain = rest;
            Some(Some(Zeroizing::new(part.to_vec())))
        };
        let interrupted = match part()? {
            Some(cause) => Some(String::from_utf8(cause.to_vec()).ok()?),
            None => None,
        };
        let (log, state) = (part()?, part()?);
        plain.is_empty().then_some(Self { interrupted, log, state })
    }
}

fn associated(name: &str, id: AssignmentId) -> String {
    format!("{FORM}\0{id}\0{name}")
}

fn cipher(capability: &str) -> Aes256Gcm {
    let mut hash = Sha256::new();
    hash.update(b"gitea-dynamic-runner last report key/1\0");
    hash.update(capability.as_bytes());
    let derived = Zeroizing::new(<[u8; 32]>::from(hash.finalize()));
    Aes256Gcm::new(&(*derived).into())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use jiff::Timestamp;

    use super::*;
    use crate::capability::Key;

    fn ring(key: u8) -> KeyRing {
        KeyRing::new(Key::new(&[key; 32]).unwrap(), None)
    }

    fn id(task: i64) -> AssignmentId {
        format!("gitea-task-{task}").parse().unwrap()
    }

    fn sealed(report: &LastReport) -> Vec<u8> {
        let expires = Timestamp::from_second(1_900_000_000).unwrap();
        let epoch = "3".parse().unwrap();
        let capability = ring(b'a').issue(&"inst".parse().unwrap(), id(7), epoch, expires);
        report.seal(capability.expose(), id(7), [9; 12]).unwrap()
    }

    fn report() -> LastReport {
        let part = |text: &str| Some(Zeroizing::new(text.as_bytes().to_vec()));
        LastReport { interrupted: Some("SIGTERM".into()), log: part("the rows"), state: part("the state") }
    }

    /// NEW-112: what was left is found again by whoever made the capability, without storing it.
    #[test]
    fn comes_back() {
        let (epoch, found) =
            LastReport::open(&ring(b'a'), &sealed(&report()), &"inst".parse().unwrap(), id(7)).unwrap();
        assert_eq!(epoch.to_string(), "3");
        assert_eq!(found.interrupted.as_deref(), Some("SIGTERM"));
        assert_eq!((found.log().unwrap(), found.state().unwrap()), (&b"the rows"[..], &b"the state"[..]));
        let rows_alone = LastReport { interrupted: None, state: None, ..report() };
        let (_, found) = LastReport::open(&ring(b'a'), &sealed(&rows_alone), &"inst".parse().unwrap(), id(7)).unwrap();
        assert!(found.interrupted.is_none() && found.state.is_none() && found.log.is_some());
    }

    /// NEW-112, F128: a job cannot read it, write one, or put another executor's in its place.
    #[test]
    fn opens_for_its_executor_alone() {
        let file = sealed(&report());
        assert!(!file.windows(4).any(|part| part == b"rows"));
        let inst = "inst".parse().unwrap();
        assert!(LastReport::open(&ring(b'b'), &file, &inst, id(7)).is_err());
        assert!(LastReport::open(&ring(b'a'), &file, &inst, id(8)).is_err());
        assert!(LastReport::open(&ring(b'a'), &file, &"other".parse().unwrap(), id(7)).is_err());
        for at in 0..file.len() {
            let mut changed = file.clone();
            changed[at] ^= 1;
            assert!(LastReport::open(&ring(b'a'), &changed, &inst, id(7)).is_err(), "byte {at}");
            assert!(LastReport::open(&ring(b'a'), &file[..at], &inst, id(7)).is_err(), "cut at {at}");
        }
    }
}
