//! How a task waits: sealed with an AEAD, so that who can read or write the queue learns nothing and can forge, move, swap
//! or pre-empt nothing (requirements §4.4; NEW-35, NEW-36, ENV-4, ENV-6).
//!
//! Inside: the length of the assignment's JSON (4 bytes, big endian), that JSON, the task's very bytes; deflated. The
//! length of what lies there tells how well a task compresses, which is worth less than tasks that fit (NEW-37).

mod earlier;
#[cfg(test)]
mod tests;

use std::io::Read as _;

use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::assignment::Assignment;
use crate::capability::{Key, KeyRing};
use crate::id::{AssignmentId, Backend, InstanceId};

pub use self::earlier::{Earlier, read_v1};

const VERSION: u32 = 2;
const ALGORITHM: &str = "A256GCM";

/// More than this is not inflated, in bytes: far above every task that fits a queue.
const LARGEST_INSIDE: u64 = 256 << 20;

/// The outside of an envelope: nothing secret.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer {
    version: u32,
    instance: InstanceId,
    id: AssignmentId,
    backend: Backend,
    kid: String,
    alg: String,
    nonce: String,
    sealed: String,
}

/// Why a task could not be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There was no randomness for the nonce.
    #[error("the system gave no randomness")]
    NoRandomness,
    /// The AEAD refused, as it does for gigabytes.
    #[error("the task is too large to be sealed")]
    TooLarge,
}

/// Why an envelope does not open. None of them says that the task is lost (ENV-7).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Not an envelope.
    #[error("not an envelope of this version's forms")]
    Malformed,
    /// A version this program does not know.
    #[error("envelope version {0} is not known here")]
    UnknownVersion(u32),
    /// A key this ring does not hold.
    #[error("envelope key {0} is not in the ring")]
    UnknownKey(String),
    /// Another controller's.
    #[error("the envelope belongs to instance {0}")]
    ForeignInstance(InstanceId),
    /// Forged, moved, or damaged.
    #[error("the envelope is not authentic")]
    NotAuthentic,
    /// Inside and outside, or task and assignment, disagree.
    #[error("the envelope contradicts itself")]
    Contradiction,
}

/// What was inside. No `Debug`: it holds the task.
pub struct Opened {
    /// What was made of the task.
    pub assignment: Assignment,
    /// The task's very bytes.
    pub task: Zeroizing<Vec<u8>>,
}

/// The sealed envelope of a task, under the subject it will lie on. A nonce must never be used twice with one key:
/// 96 random bits are enough for 2^32 envelopes (NIST SP 800-38D §8.3).
///
/// # Errors
///
/// [`SealError::TooLarge`].
pub fn seal(
    ring: &KeyRing,
    subject: &str,
    assignment: &Assignment,
    task: &[u8],
    nonce: [u8; 12],
) -> Result<Vec<u8>, SealError> {
    let key = ring.current();
    let kid = key.id();
    let inner = pack(assignment, task)?;
    let aad = associated(subject, &assignment.instance, assignment.id, assignment.backend, &kid);
    let sealed = cipher(key)
        .encrypt(&Nonce::from(nonce), Payload { msg: &inner, aad: aad.as_bytes() })
        .map_err(|_| SealError::TooLarge)?;
    let outer = Outer {
        version: VERSION,
        instance: assignment.instance.clone(),
        id: assignment.id,
        backend: assignment.backend,
        kid,
        alg: ALGORITHM.to_owned(),
        nonce: STANDARD.encode(nonce),
        sealed: STANDARD.encode(sealed),
    };
    serde_json::to_vec(&outer).map_err(|_| SealError::TooLarge)
}

/// Opens an envelope that lay on `subject`, and derives again what can be derived (ENV-6).
///
/// # Errors
///
/// See [`OpenError`].
pub fn open(ring: &KeyRing, subject: &str, envelope: &[u8], ours: &InstanceId) -> Result<Opened, OpenError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_slice(envelope).map_err(|_| OpenError::Malformed)?;
    if version != VERSION {
        return Err(OpenError::UnknownVersion(version));
    }
    let outer: Outer = serde_json::from_slice(envelope).map_err(|_| OpenError::Malformed)?;
    if outer.instance != *ours {
        return Err(OpenError::ForeignInstance(outer.instance));
    }
    let key = ring.find(&outer.kid).ok_or_else(|| OpenError::UnknownKey(outer.kid.clone()))?;
    let opened = unpack(&unseal(key, subject, &outer)?).ok_or(OpenError::Contradiction)?;
    let assignment = &opened.assignment;
    let same = assignment.id == outer.id
        && assignment.backend == outer.backend
        && assignment.instance == outer.instance
        && assignment.follows_from(&opened.task);
    if same { Ok(opened) } else { Err(OpenError::Contradiction) }
}

/// The number on the outside of an envelope; proven only where the cipher has proven it.
#[must_use]
pub fn claims(envelope: &[u8]) -> Option<AssignmentId> {
    serde_json::from_slice::<Outer>(envelope).ok().map(|outer| outer.id)
}

fn pack(assignment: &Assignment, task: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let json = serde_json::to_vec(assignment).map_err(|_| SealError::TooLarge)?;
    let length = u32::try_from(json.len()).map_err(|_| SealError::TooLarge)?;
    let plain = Zeroizing::new([&length.to_be_bytes(), &json[..], task].concat());
    // Deflate adds 5 bytes per 16 KiB at most: with this room no copy stays behind a reallocation.
    let mut packed = Zeroizing::new(Vec::with_capacity(plain.len() + plain.len() / 1024 + 128));
    DeflateEncoder::new(&plain[..], Compression::default())
        .read_to_end(&mut packed)
        .map_err(|_| SealError::TooLarge)?;
    Ok(packed)
}

fn unpack(inside: &[u8]) -> Option<Opened> {
    let mut content = Zeroizing::new(Vec::new());
    DeflateDecoder::new(inside).take(LARGEST_INSIDE).read_to_end(&mut content).ok()?;
    let (length, rest) = content.split_first_chunk::<4>()?;
    let (json, task) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    Some(Opened { assignment: serde_json::from_slice(json).ok()?, task: Zeroizing::new(task.to_vec()) })
}

fn unseal(key: &Key, subject: &str, outer: &Outer) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    if outer.alg != ALGORITHM {
        return Err(OpenError::NotAuthentic);
    }
    let nonce = STANDARD
        .decode(&outer.nonce)
        .ok()
        .and_then(|bytes| <[u8; 12]>::try_from(bytes).ok())
        .ok_or(OpenError::Malformed)?;
    let sealed = STANDARD.decode(&outer.sealed).map_err(|_| OpenError::Malformed)?;
    let aad = associated(subject, &outer.instance, outer.id, outer.backend, &outer.kid);
    let opened = cipher(key).decrypt(&Nonce::from(nonce), Payload { msg: &sealed, aad: aad.as_bytes() });
    opened.map(Zeroizing::new).map_err(|_| OpenError::NotAuthentic)
}

fn associated(subject: &str, instance: &InstanceId, id: AssignmentId, backend: Backend, kid: &str) -> String {
    format!("gitea-assignment/2\0{subject}\0{instance}\0{id}\0{backend}\0{kid}")
}

/// The key file's text may be longer than 32 bytes: the cipher's key is its SHA-256, under a label of its own.
fn cipher(key: &Key) -> Aes256Gcm {
    let mut hash = Sha256::new();
    hash.update(b"gitea-dynamic-runner envelope key/2\0");
    hash.update(key.bytes());
    let derived = Zeroizing::new(<[u8; 32]>::from(hash.finalize()));
    Aes256Gcm::new(&(*derived).into())
}
