//! The one edit in what a job reads: Gitea's base URL in a reply of the artifact services becomes the address of the
//! loopback proxy (NEW-110). Pure.

/// Replaces `base` by `own` wherever a JSON string begins with it; every other byte stays as it is.
///
/// A string begins with the base when the base is followed by `/`, `?`, `#` or its end, so that
/// `http://gitea:3000` does not match `http://gitea:30001/`. Both without a trailing `/`.
pub(crate) fn rewrite(json: &[u8], base: &str, own: &str) -> Vec<u8> {
    let needle = format!("\"{base}");
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = find(rest, needle.as_bytes()) {
        let (before, found) = rest.split_at(at);
        let after = &found[needle.len()..];
        out.extend_from_slice(before);
        let begins = !out.ends_with(b"\\") && matches!(after.first(), Some(b'/' | b'?' | b'#' | b'"' | b'\\'));
        if begins {
            out.push(b'"');
            out.extend_from_slice(own.as_bytes());
        } else {
            out.extend_from_slice(needle.as_bytes());
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// The bases that a header value names: a comma-separated list of http(s) URLs, trailing `/` dropped.
pub(crate) fn bases(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(|base| base.trim().trim_end_matches('/'))
        .filter(|base| base.starts_with("http://") || base.starts_with("https://"))
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(json: &str, expect: &str) {
        let out = rewrite(json.as_bytes(), "https://git.example.org", "http://127.0.0.1:4711");
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    /// NEW-110: both generations of the artifact service, formatting untouched.
    #[test]
    fn urls() {
        check(
            r#"{"ok":true, "signedUploadUrl":"https://git.example.org/twirp/x?sig=a\u0026b=c"}"#,
            r#"{"ok":true, "signedUploadUrl":"http://127.0.0.1:4711/twirp/x?sig=a\u0026b=c"}"#,
        );
        check(
            r#"{"value":[{"fileContainerResourceUrl":"https://git.example.org/api/a"},{"u":"https://git.example.org"}]}"#,
            r#"{"value":[{"fileContainerResourceUrl":"http://127.0.0.1:4711/api/a"},{"u":"http://127.0.0.1:4711"}]}"#,
        );
        check(r#"{"u":"https:\/\/git"}"#, r#"{"u":"https:\/\/git"}"#);
    }

    /// NEW-110: nothing else is edited.
    #[test]
    fn everything_else() {
        for json in [
            r#"{"name":"see https://git.example.org/x"}"#,
            r#"{"u":"https://git.example.org.evil/x"}"#,
            r#"{"u":"https://git.example.org:8443/x"}"#,
            r#"{"name":"\"https://git.example.org/x\""}"#,
            r#"{"u":"https://store.example.org/x"}"#,
            "",
        ] {
            check(json, json);
        }
    }

    #[test]
    fn header() {
        let list = "https://a.example/, http://b.example:3000/sub , ftp://c";
        assert_eq!(bases(list).collect::<Vec<_>>(), ["https://a.example", "http://b.example:3000/sub"]);
    }
}
