//! What a raw request path says, or that it says something else to another reader (NEW-97).
//!
//! Upstreams differ in when they decode, join and clean a path. A path that any of them could read as another one is
//! malformed; the rest has one meaning, and the upstream's path is built from what was parsed.

use std::borrow::Cow;

/// The path has no single meaning, or none at all. Answer with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed path: {0}")]
pub struct Malformed(&'static str);

/// The segments of a well-formed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments<'a> {
    list: Vec<Segment<'a>>,
    trailing_slash: bool,
}

/// One segment: neither empty nor `.` nor `..`, without `/`, `\` and control characters, also when decoded repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    raw: &'a str,
    decoded: Cow<'a, [u8]>,
}

/// Parses the path of a request target, as it came and without its query.
///
/// A single slash at the end is no empty segment but part of the name (`/owner/repo.git/` is what people paste, and
/// clients join `info/refs` to it); it is kept and told by [`Segments::trailing_slash`]. Two of them are malformed
/// there as everywhere.
///
/// # Errors
/// [`Malformed`] for a path that does not begin with `/`; names that are encoded more than four times over; empty, `.` and `..` segments; `/`, `\`, NUL and other control
/// characters; anything of these percent-encoded, once or more often; `?`, `#`, bytes beyond ASCII and broken
/// percent-encoding.
pub fn parse(raw_path: &str) -> Result<Segments<'_>, Malformed> {
    let rest = raw_path.strip_prefix('/').ok_or(Malformed("it does not begin with /"))?;
    let (names, trailing_slash) = match rest.strip_suffix('/') {
        Some(names) => (names, true),
        None => (rest, false),
    };
    if rest.is_empty() {
        return Ok(Segments { list: Vec::new(), trailing_slash: false });
    }
    let list = names.split('/').map(segment).collect::<Result<_, _>>()?;
    Ok(Segments { list, trailing_slash })
}

fn segment(raw: &str) -> Result<Segment<'_>, Malformed> {
    if !raw.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')) {
        return Err(Malformed("it holds a character that must be encoded"));
    }
    let Decoded { text: decoded, broken } = decode(raw.as_bytes());
    if broken {
        return Err(Malformed("its percent-encoding is broken"));
    }
    let mut last = 0;
    for (number, reading) in readings(&decoded).enumerate() {
        single_meaning(&reading)?;
        last = number;
    }
    if last == READINGS {
        return Err(Malformed("it is encoded too often"));
    }
    Ok(Segment { raw, decoded })
}

fn single_meaning(name: &[u8]) -> Result<(), Malformed> {
    match name {
        b"" => Err(Malformed("a segment is empty")),
        b"." | b".." => Err(Malformed("a segment is . or ..")),
        _ if name.iter().any(|byte| matches!(byte, b'/' | b'\\')) => Err(Malformed("a segment holds a slash")),
        _ if name.iter().any(u8::is_ascii_control) => Err(Malformed("a segment holds a control character")),
        _ => Ok(()),
    }
}

/// What one reading of percent-encoding gives.
struct Decoded<'a> {
    /// Borrowed when there is no `%`; a `%` that stands alone is left as it is.
    text: Cow<'a, [u8]>,
    /// A `%` stands alone.
    broken: bool,
}

fn decode(text: &[u8]) -> Decoded<'_> {
    if !text.contains(&b'%') {
        return Decoded { text: Cow::Borrowed(text), broken: false };
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut broken = false;
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let encoded = digit(0).zip(digit(1)).filter(|_| byte == b'%');
        let encoded = encoded.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        broken |= byte == b'%' && encoded.is_none();
        decoded.push(encoded.unwrap_or(byte));
        rest = if encoded.is_some() { &after[2..] } else { after };
    }
    Decoded { text: Cow::Owned(decoded), broken }
}

/// How often a name may change by being decoded again. Each reading costs as much as the name is long, and nobody encodes
/// so often.
const READINGS: usize = 4;

/// What readers may take this for that decode it again, and leave what is no encoding as it is. No more than can tell that
/// it is encoded too often.
fn readings(decoded: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    std::iter::successors(Some(Cow::Borrowed(decoded)), |last| match decode(last).text {
        Cow::Owned(next) if next != **last => Some(Cow::Owned(next)),
        _ => None,
    })
    .take(READINGS + 1)
}

impl<'a> Segments<'a> {
    /// The segments, in order.
    #[must_use]
    pub fn list(&self) -> &[Segment<'a>] {
        &self.list
    }

    /// Whether the path ended with a slash after its last segment.
    #[must_use]
    pub fn trailing_slash(&self) -> bool {
        self.trailing_slash
    }

    /// Whether the path lies at or below `prefix`, whatever the case of its letters and however often they are encoded.
    /// For refusals: upstreams that fold case or decode twice exist.
    #[must_use]
    pub fn starts_with_ignoring_case(&self, prefix: &[&str]) -> bool {
        self.list.len() >= prefix.len() && self.list.iter().zip(prefix).all(|(have, want)| have.is_ignoring_case(want))
    }

    /// Whether the path lies at or below `prefix`. For permissions.
    #[must_use]
    pub fn starts_with(&self, prefix: &[&str]) -> bool {
        self.list.len() >= prefix.len() && self.list.iter().zip(prefix).all(|(have, want)| have.is(want))
    }

    /// The path again, made of what was parsed.
    #[must_use]
    pub fn to_path(&self) -> String {
        let mut path = String::new();
        for segment in &self.list {
            path.push('/');
            path.push_str(segment.raw);
        }
        if self.list.is_empty() || self.trailing_slash {
            path.push('/');
        }
        path
    }
}

impl<'a> Segment<'a> {
    /// As it came, percent-encoding and all.
    #[must_use]
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// Decoded once; need not be UTF-8.
    #[must_use]
    pub fn decoded(&self) -> &[u8] {
        &self.decoded
    }

    /// Whether it says `name`, however it is encoded.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        *self.decoded == *name.as_bytes()
    }

    /// Whether any reader may take it for `name`: in any case of ASCII letters, encoded once or more often.
    #[must_use]
    pub fn is_ignoring_case(&self, name: &str) -> bool {
        readings(&self.decoded).any(|reading| reading.eq_ignore_ascii_case(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[track_caller]
    fn good(path: &str, segments: &[&str]) {
        let parsed = parse(path).unwrap();
        assert_eq!(parsed.list().iter().map(Segment::raw).collect::<Vec<_>>(), segments);
        assert_eq!(parsed.to_path(), path, "nothing is lost");
    }

    #[test]
    fn good_paths() {
        good("/", &[]);
        good("/o/r.git/info/refs", &["o", "r.git", "info", "refs"]);
        good("/o/r.git/", &["o", "r.git"]);
        good("/a.b/..c/d../...", &["a.b", "..c", "d..", "..."]);
        good("/a%20b/50%25/%c3%a4/%ff", &["a%20b", "50%25", "%c3%a4", "%ff"]);
        good("/x:y@z;p=1,2!$&'()*+=~", &["x:y@z;p=1,2!$&'()*+=~"]);
        good("/50%25zz", &["50%25zz"]);
        assert!(parse("/o/r.git/").unwrap().trailing_slash());
        assert!(!parse("/o/r.git").unwrap().trailing_slash());
    }

    /// NEW-97: every spelling of a separator, NUL, a dot segment or an empty segment.
    #[test]
    fn malformed_paths() {
        for path in [
            "",
            "a",
            "*",
            "//",
            "//a",
            "/a//b",
            "/a//",
            "/o/r.git//",
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/a/..",
            "/%2e",
            "/%2E%2e/a",
            "/a/.%2e/b",
            "/a/%2e./b",
            "/a/%252e%252e/b",
            "/a/%25252e/b",
            "/a%2fb",
            "/a%2Fb",
            "/a%252fb",
            "/a%25252Fb",
            "/a\\b",
            "/a%5cb",
            "/a%255Cb",
            "/a%00b",
            "/a%2500b",
            "/a\0b",
            "/a%0d%0ab",
            "/a\nb",
            "/a%7f",
            "/a b",
            "/a?b",
            "/a#b",
            "/\u{e4}",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%+1",
            "/a%2500%25o",
            "/a%252f..%252fb%25o",
            "/a/%",
            "/%2f",
            "/..%2f..%2fetc",
        ] {
            assert!(parse(path).is_err(), "{path:?}");
        }
    }

    /// NEW-97, NEW-98: a name costs no more than a few readings, however often it is encoded.
    #[test]
    fn encoded_too_often() {
        let encoded = |times: usize| format!("/a%{}20b", "25".repeat(times));
        assert!(parse(&encoded(3)).is_ok());
        for times in [4, 5, 8_000] {
            assert_eq!(parse(&encoded(times)), Err(Malformed("it is encoded too often")), "{times}");
        }
        assert_eq!(readings(encoded(8_000).as_bytes()).count(), READINGS + 1);
    }

    /// NEW-97: `/api/actions` is recognised in any case and encoding.
    #[test]
    fn comparison() {
        let parsed = parse("/API/%61ctions/x").unwrap();
        assert!(parsed.starts_with_ignoring_case(&["api", "actions"]));
        assert!(!parsed.starts_with(&["api", "actions"]));
        let twice = parse("/%2541pi/%252561ctions%25o").unwrap();
        assert!(!twice.starts_with_ignoring_case(&["api", "actions"]) && twice.list()[0].is_ignoring_case("api"));
        assert!(parse("/%2541pi/%252561ctions/x").unwrap().starts_with_ignoring_case(&["api", "actions"]));
        assert!(parse("/api/%61ctions").unwrap().starts_with(&["api", "actions"]));
        assert!(!parse("/api").unwrap().starts_with(&["api", "actions"]));
        assert!(!parse("/api/actions_pipeline").unwrap().starts_with_ignoring_case(&["api", "actions"]));
    }
}
