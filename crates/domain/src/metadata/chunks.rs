//! An annotation map inside sandbox metadata, whose values hold 63 characters (requirements §1.2, §4.5; VM-3, NEW-87).
//!
//! Written as lower-case base32hex, which has no character that a label value must not begin or end with (F98). Read in
//! that form and in the earlier controller's.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32HEX_NOPAD;

use super::{Map, PREFIX, Unreadable};

/// Longest label value in Kubernetes.
const LONGEST: usize = 63;

/// The earlier controller's word for [`Kind::Record`]; its chunks are unpadded URL-safe base64.
const EARLIER: &str = "annotations";

/// Which map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `record-%03d`: the annotations.
    Record,
    /// `grant-%03d`: the identity grant (NEW-83).
    Grant,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Grant => "grant",
        }
    }
}

/// The chunks of a map.
#[must_use]
pub fn encode(kind: Kind, map: &Map) -> Map {
    // A map of texts always serialises.
    let json = serde_json::to_vec(map).unwrap_or_default();
    let text = BASE32HEX_NOPAD.encode(&json).to_ascii_lowercase();
    let chunks = text.as_bytes().chunks(LONGEST).enumerate();
    chunks.map(|(at, chunk)| (key(kind.word(), at), String::from_utf8_lossy(chunk).into_owned())).collect()
}

/// The map of the chunks in `metadata`; none when there is no chunk of this kind. A record is also read in the earlier
/// controller's form, where it is not there in ours.
///
/// # Errors
///
/// [`Unreadable`] for a gap, a missing index 000, or text that does not decode.
pub fn decode(kind: Kind, metadata: &Map) -> Result<Option<Map>, Unreadable> {
    let base32hex = |text: &str| BASE32HEX_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).ok();
    let base64url = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    match (read(kind.word(), metadata, base32hex)?, kind) {
        (None, Kind::Record) => read(EARLIER, metadata, base64url),
        (map, _) => Ok(map),
    }
}

fn read(word: &str, metadata: &Map, decode: impl Fn(&str) -> Option<Vec<u8>>) -> Result<Option<Map>, Unreadable> {
    let broken = |problem: &str| Unreadable { key: key(word, 0), problem: problem.to_owned() };
    let stem = format!("{PREFIX}{word}-");
    let count = metadata.keys().filter(|key| key.starts_with(&stem)).count();
    if count == 0 {
        return Ok(None);
    }
    let chunks: Option<Vec<&str>> = (0..count).map(|at| metadata.get(&key(word, at)).map(String::as_str)).collect();
    let text = chunks.ok_or_else(|| broken("a chunk is missing"))?.concat();
    let json = decode(&text).ok_or_else(|| broken("the chunks do not decode"))?;
    serde_json::from_slice(&json).map(Some).map_err(|_| broken("the chunks are no map of texts"))
}

fn key(word: &str, index: usize) -> String {
    format!("{PREFIX}{word}-{index:03}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use proptest::prelude::*;

    use super::*;

    const EARLIER_FORM: [&str; 4] = [
        "eyJjaS5kZHVwYW4udG9wL2pvYi1rZXkiOiJwdWJsaXNoIiwiY2kuZGR1cGFuLnR",
        "vcC9yZXBvc2l0b3J5Ijoib3duZXIvcmVwbyIsImNpLmRkdXBhbi50b3Avc3BpZm",
        "ZlLWlkIjoic3BpZmZlOi8vZXhhbXBsZS5vcmcvY2kvb3duZXIvcmVwby9wdWJsa",
        "XNoIn0",
    ];
    const WRITTEN_FORM: [&str; 4] = [
        "fch66q9echi7as31don78rrg5tl6uohdddini8hq49o7aojcd5pmg8hc49hmibj",
        "4chqn0obe5pq6us1fe9in0rrjd5q6usjp48t24rrndpin4briclo6u8hc49hmib",
        "j4chqn0obe5pq6us1fedo6ipj6ckmmip1278h76s39cpj6aehf5tingobde1m6a",
        "bjfe9jiuor95tnnerj5e8nn4pbgdsnn0tb2dhkn6q12fk",
    ];

    fn map(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(key, value)| (format!("ci.ddupan.top/{key}"), (*value).to_owned())).collect()
    }

    fn chunks(word: &str, values: &[&str]) -> Map {
        values.iter().enumerate().map(|(at, value)| (key(word, at), (*value).to_owned())).collect()
    }

    fn vector() -> Map {
        let spiffe_id = "spiffe://example.org/ci/owner/repo/publish";
        map(&[("job-key", "publish"), ("repository", "owner/repo"), ("spiffe-id", spiffe_id)])
    }

    /// §4.5: both read forms and the written form.
    #[test]
    fn the_vectors_hold() {
        assert_eq!(encode(Kind::Record, &vector()), chunks("record", &WRITTEN_FORM));
        assert_eq!(encode(Kind::Grant, &vector()), chunks("grant", &WRITTEN_FORM));
        assert_eq!(decode(Kind::Record, &chunks("record", &WRITTEN_FORM)), Ok(Some(vector())));
        assert_eq!(decode(Kind::Record, &chunks("annotations", &EARLIER_FORM)), Ok(Some(vector())));
    }

    /// The kinds do not answer for each other.
    #[test]
    fn a_kind_that_is_not_there_is_none() {
        let metadata = chunks("record", &WRITTEN_FORM);
        assert_eq!(decode(Kind::Grant, &metadata), Ok(None));
        assert_eq!(decode(Kind::Grant, &chunks("annotations", &EARLIER_FORM)), Ok(None));
        assert_eq!(decode(Kind::Record, &map(&[("runner", "true")])), Ok(None));
    }

    /// §4.5, NEW-56: gaps and damage are an error, never a shorter map.
    #[test]
    fn damage_is_an_error() {
        for (word, values) in [("record", WRITTEN_FORM), ("annotations", EARLIER_FORM)] {
            for missing in 0..values.len() {
                let mut metadata = chunks(word, &values);
                metadata.remove(&key(word, missing));
                assert!(decode(Kind::Record, &metadata).is_err(), "{word} without {missing}");
            }
            for damage in ["", "=", "zz", "\u{e4}", "fch66"] {
                let mut metadata = chunks(word, &values);
                metadata.insert(key(word, 1), damage.to_owned());
                assert!(decode(Kind::Record, &metadata).is_err(), "{word} with {damage:?}");
            }
            for stray in ["4", "0000", "-01", "x"] {
                let mut metadata = chunks(word, &values);
                metadata.insert(format!("{PREFIX}{word}-{stray}"), values[0].to_owned());
                assert!(decode(Kind::Record, &metadata).is_err(), "{word}-{stray}");
            }
        }
        let number = BASE32HEX_NOPAD.encode(b"{\"a\":1}").to_ascii_lowercase();
        assert!(decode(Kind::Record, &chunks("record", &[&number])).is_err(), "no map of texts");
    }

    /// A damaged record is not replaced by one of the earlier form beside it.
    #[test]
    fn our_own_form_comes_first() {
        let mut metadata = chunks("annotations", &EARLIER_FORM);
        metadata.extend(encode(Kind::Record, &map(&[("job-key", "other")])));
        assert_eq!(decode(Kind::Record, &metadata), Ok(Some(map(&[("job-key", "other")]))));
        metadata.insert(key("record", 0), "zz".to_owned());
        assert!(decode(Kind::Record, &metadata).is_err());
    }

    proptest! {
        /// VM-3, F98, §4.6: nothing is lost, and every value is a legal label value, whatever stands in the map.
        #[test]
        fn chunks_are_lossless_and_legal(map in proptest::collection::btree_map(".{0,40}", ".{0,300}", 0..8)) {
            let written = encode(Kind::Record, &map);
            prop_assert_eq!(decode(Kind::Record, &written), Ok(Some(map.clone())));
            for value in written.values() {
                let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
                prop_assert!((1..=63).contains(&value.len()) && value.bytes().all(legal), "{}", value);
            }
            let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&map).unwrap());
            let pieces: Vec<&str> = text.as_bytes().chunks(63).map(|at| std::str::from_utf8(at).unwrap()).collect();
            prop_assert_eq!(decode(Kind::Record, &chunks("annotations", &pieces)), Ok(Some(map)));
        }
    }
}
