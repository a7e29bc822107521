//! What a job asks of the repository proxy (NEW-97).

use forward::path;

/// A path that is let through has one meaning: written again it is the same, and a reader that decodes it, joins its
/// slashes and cleans it, as often as it likes, comes to the same number of names and to no other place.
pub(crate) fn check(input: &[u8]) {
    let Ok(raw) = std::str::from_utf8(input) else { return };
    let Ok(segments) = path::parse(raw) else { return };
    let written = segments.to_path();
    assert_eq!(path::parse(&written).as_ref(), Ok(&segments), "written otherwise: {raw:?}");
    let mut reading = written.into_bytes();
    for _ in 0..4 {
        assert_eq!(cleaned(&reading), segments.list().len(), "{raw:?} is another path when read as {reading:?}");
        assert!(!reading.iter().any(u8::is_ascii_control), "{raw:?} holds a control character");
        reading = decoded(&reading);
    }
}

/// How many names are left when empty ones and `.` are dropped and `..` takes the one before; backslashes are slashes.
fn cleaned(path: &[u8]) -> usize {
    let mut names = 0_usize;
    for name in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        match name {
            b"" | b"." => {}
            b".." => names = names.saturating_sub(1),
            _ => names += 1,
        }
    }
    names
}

/// Decoded once, and what is no encoding left as it is, as lenient readers do.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                out.extend(u8::try_from(high * 16 + low));
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seeds = [
        "/",
        "/owner/repo.git/info/refs",
        "/owner/repo.git/",
        "/api/v1/repos/owner/repo/contents/a%20b%2Ec",
        "/api/actions/runner.v1.RunnerService/UpdateTask",
        "/twirp/github.actions.results.api.v1.ArtifactService/CreateArtifact",
        "/owner/%2e%2e/api/actions",
        "/owner/%252e%252e/%255c",
        "/owner//repo/./x/../y",
        "/100%25/%C3%A4",
    ];
    seeds.map(|seed| seed.as_bytes().to_vec()).into()
}
