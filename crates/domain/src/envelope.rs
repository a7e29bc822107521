//! How a task waits: sealed with an AEAD, so that who can read or write the queue learns nothing and can forge, move, swap
//! or pre-empt nothing (requirements §4.4; NEW-35, NEW-36, ENV-4, ENV-6).

use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::{Aes256Gcm, KeyInit as _, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::assignment::Assignment;
use crate::capability::{Key, KeyRing};
use crate::id::{AssignmentId, Backend, InstanceId, PayloadDigest};

const VERSION: u32 = 2;
const ALGORITHM: &str = "A256GCM";

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

/// The inside.
#[derive(Serialize, Deserialize)]
struct Inner {
    assignment: Assignment,
    /// Base64 of the task's very bytes.
    task: Zeroizing<String>,
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
    let task = Zeroizing::new(STANDARD.encode(task));
    let inner = Zeroizing::new(
        serde_json::to_vec(&Inner { assignment: assignment.clone(), task }).map_err(|_| SealError::TooLarge)?,
    );
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
    let inner = unseal(key, subject, &outer)?;
    let task = Zeroizing::new(STANDARD.decode(inner.task.as_bytes()).map_err(|_| OpenError::Contradiction)?);
    let assignment = inner.assignment;
    let same = assignment.id == outer.id
        && assignment.backend == outer.backend
        && assignment.instance == outer.instance
        && assignment.digest == PayloadDigest::of(&task)
        && assignment.follows_from(&task);
    if same { Ok(Opened { assignment, task }) } else { Err(OpenError::Contradiction) }
}

fn unseal(key: &Key, subject: &str, outer: &Outer) -> Result<Inner, OpenError> {
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
    let inner = cipher(key)
        .decrypt(&Nonce::from(nonce), Payload { msg: &sealed, aad: aad.as_bytes() })
        .map(Zeroizing::new)
        .map_err(|_| OpenError::NotAuthentic)?;
    serde_json::from_slice(&inner).map_err(|_| OpenError::Contradiction)
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
