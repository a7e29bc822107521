//! TRUST_POLICY_FILE (NEW-121): TOML, one `[[repository]]` section per repository or group of them.

use std::path::Path;

use domain::id::Backend;
use domain::policy::Section;
use serde::Deserialize;

use super::setting::Problem;

/// More is no policy that somebody can read, and every task that waits carries it.
const LARGEST: u64 = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    repository: Vec<Section>,
}

/// The sections of the file at this absolute path, in their order.
pub(super) fn policy_file(path: &str) -> Result<Vec<Section>, Problem> {
    let path = super::value::absolute(path)?;
    let size = std::fs::metadata(&path).map_err(unreadable)?.len();
    if size > LARGEST {
        return Err(Problem::Invalid(format!("it has {size} bytes; {LARGEST} are the most")));
    }
    sections(&path)
}

fn sections(path: &Path) -> Result<Vec<Section>, Problem> {
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        Problem::Invalid(format!("line {line}: {}", error.message()))
    })?;
    match file.repository.as_slice() {
        [] => Err(Problem::Invalid("it has no [[repository]] section, so it demands nothing".to_owned())),
        _ => Ok(file.repository),
    }
}

fn unreadable(error: std::io::Error) -> Problem {
    Problem::Unreadable(error.to_string())
}

/// `local,pod`; every word a backend, none twice.
pub(super) fn backends(text: &str) -> Result<Vec<Backend>, Problem> {
    let mut backends = Vec::new();
    for word in text.split(',').map(str::trim) {
        let backend: Backend = word.parse().map_err(|_| Problem::Invalid(format!("{word:?} is no backend")))?;
        if !backends.contains(&backend) {
            backends.push(backend);
        }
    }
    Ok(backends)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(text: &str) -> Result<Vec<Section>, Problem> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trust.toml");
        std::fs::write(&path, text).unwrap();
        policy_file(path.to_str().unwrap())
    }

    #[track_caller]
    fn wrong(text: &str, words: &str) {
        let Err(Problem::Invalid(problem)) = read(text) else { panic!("{text:?} was taken") };
        assert!(problem.contains(words), "{problem}");
    }

    /// NEW-121, CFG-2: the form of the file; an error names its line and what is wrong with it.
    #[test]
    fn a_policy_file_is_checked_line_by_line() {
        let good = "[[repository]]\nname = \"acme/app\"\nrefs = [\"default\", \"refs/tags/v*\"]\ncalled = [\"shared\"]\n\
                    [repository.workflows]\npublish = [\"release.yml\"]\n\n[[repository]]\nname = \"acme/*\"\n";
        assert_eq!(read(good).unwrap().len(), 2);
        wrong("", "no [[repository]] section");
        wrong("[[repository]]\nname = \"a/b\"\nbranches = []\n", "line 3: unknown field `branches`");
        wrong(
            "[[repository]]\nname = \"a/b\"\nrefs = [\"protected\"]\n",
            "line 3: the pattern \"protected\" cannot be proven",
        );
        wrong("[[repository]]\nrefs = []\n", "missing field `name`");
        wrong("[[repository]]\nname = \"a/b\"\n[repository.workflows]\n\"a.b\" = []\n", "job key");
        assert!(matches!(policy_file("/no/such/file"), Err(Problem::Unreadable(_))));
        assert!(policy_file("trust.toml").is_err(), "an absolute path");
    }

    /// NEW-120: backends by their words.
    #[test]
    fn backends_by_their_words() {
        assert_eq!(backends("pod, vm,pod").unwrap(), [Backend::Pod, Backend::Vm]);
        assert!(backends("").is_err() && backends("docker").is_err());
    }
}
