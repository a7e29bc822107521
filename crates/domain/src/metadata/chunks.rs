//! An annotation map inside sandbox metadata, whose values hold 63 characters (requirements §1.2, §4.5; VM-3, NEW-87).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32HEX_NOPAD;

use super::{Map, PREFIX, Unreadable};

/// Longest label value in Kubernetes.
const LONGEST: usize = 63;

/// Which of the encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `record-%03d`: what is written.
    Record,
    /// `grant-%03d`: the identity grant, in the same encoding.
    Grant,
    /// `annotations-%03d`: unpadded URL-safe base64 of the earlier controller; only read.
    Annotations,
}

impl Kind {
    fn key(self, index: usize) -> String {
        let word = match self {
            Self::Record => "record",
            Self::Grant => "grant",
            Self::Annotations => "annotations",
        };
        format!("{PREFIX}{word}-{index:03}")
    }
}

/// The chunks of a map, in the written form of `kind` (`Annotations` is written like `Record`: base32hex has no illegal
/// label value).
#[must_use]
pub fn encode(kind: Kind, map: &Map) -> Map {
    // A map of texts always serialises.
    let json = serde_json::to_vec(map).unwrap_or_default();
    let text = BASE32HEX_NOPAD.encode(&json).to_ascii_lowercase();
    let chunks = text.as_bytes().chunks(LONGEST).enumerate();
    chunks.map(|(at, chunk)| (kind.key(at), String::from_utf8_lossy(chunk).into_owned())).collect()
}

/// The map of the chunks in `metadata`; none when there is no chunk of this kind.
///
/// # Errors
///
/// [`Unreadable`] for a gap, a missing index 000, or text that does not decode.
pub fn decode(kind: Kind, metadata: &Map) -> Result<Option<Map>, Unreadable> {
    let broken = |problem: &str| Unreadable { key: kind.key(0), problem: problem.to_owned() };
    let stem = kind.key(0);
    let stem = stem.trim_end_matches("000");
    let count =
        metadata.keys().filter(|key| key.strip_prefix(stem).is_some_and(|n| n.parse::<usize>().is_ok())).count();
    if count == 0 {
        return Ok(None);
    }
    let mut text = String::new();
    for index in 0..count {
        text.push_str(metadata.get(&kind.key(index)).ok_or_else(|| broken("a chunk is missing"))?);
    }
    let json = match kind {
        Kind::Annotations => URL_SAFE_NO_PAD.decode(&text).ok(),
        Kind::Record | Kind::Grant => BASE32HEX_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok(),
    };
    let json = json.ok_or_else(|| broken("the chunks do not decode"))?;
    serde_json::from_slice(&json).map(Some).map_err(|_| broken("the chunks are no map of texts"))
}
