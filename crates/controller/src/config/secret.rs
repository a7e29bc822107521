//! Secrets come from files only (CFG-1). The content has no `Debug` and no `Display`, and is wiped when it goes.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::setting::Problem;

/// More than any key, token or password needs; a larger file is the wrong file.
const LARGEST: u64 = 64 * 1024;

/// What a secret must be, beyond not being empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretRule {
    /// A token, UUID or password of somebody else's making.
    Text,
    /// A key of ours: at least 32 bytes (CFG-10), printable ASCII only, since trimming would change other bytes.
    Key,
}

/// A secret and the file it was read from.
pub struct SecretFile {
    path: PathBuf,
    rule: SecretRule,
    text: Zeroizing<String>,
}

impl SecretFile {
    /// Reads, trims and checks the file.
    ///
    /// # Errors
    /// [`Problem::Unreadable`] when the file cannot be read, [`Problem::Invalid`] when it is empty or breaks the rule.
    /// No text repeats any of the content.
    pub fn read(path: &Path, rule: SecretRule) -> Result<Self, Problem> {
        let raw = content(path)?;
        let text = std::str::from_utf8(&raw).map_err(|_| Problem::Invalid("the content is not text".into()))?.trim();
        if text.is_empty() {
            return Err(Problem::Invalid("the file is empty".into()));
        }
        if text.bytes().any(|b| !b.is_ascii_graphic() && (rule == SecretRule::Key || b != b' ')) {
            return Err(Problem::Invalid(
                "the content has bytes other than printable ASCII; write the key as hex or base64 text".into(),
            ));
        }
        if rule == SecretRule::Key && text.len() < 32 {
            return Err(Problem::Invalid(format!("the key has {} bytes, fewer than 32", text.len())));
        }
        Ok(Self { path: path.to_owned(), rule, text: Zeroizing::new(text.to_owned()) })
    }

    /// A secret that came with another file (the registration of one-host mode).
    #[must_use]
    pub fn held(path: PathBuf, text: Zeroizing<String>) -> Self {
        Self { path, rule: SecretRule::Text, text }
    }

    /// The secret itself. Hand it on by reference; never log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Where it was read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the same file again, by the same rule.
    ///
    /// # Errors
    /// As [`SecretFile::read`].
    pub fn reread(&self) -> Result<Self, Problem> {
        Self::read(&self.path, self.rule)
    }
}

fn content(path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let unreadable = |error: std::io::Error| Problem::Unreadable(plain(&error));
    let file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Problem::Unreadable("not a regular file".into()));
    }
    // Reserved at once: a buffer that grows leaves copies of the secret behind.
    let mut raw = Zeroizing::new(Vec::with_capacity(LARGEST as usize + 1));
    file.take(LARGEST + 1).read_to_end(&mut raw).map_err(unreadable)?;
    if raw.len() as u64 > LARGEST {
        return Err(Problem::Invalid("the file is larger than 64 KiB".into()));
    }
    Ok(raw)
}

/// An operating system's error without its number.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(content: &[u8], rule: SecretRule) -> Result<String, Problem> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, content).unwrap();
        SecretFile::read(&path, rule).map(|s| s.expose().to_owned())
    }

    /// CFG-1: white space around the secret is not part of it.
    #[test]
    fn trims() {
        assert_eq!(read(b" a token\n", SecretRule::Text).unwrap(), "a token");
        assert!(matches!(read(b" \n", SecretRule::Text), Err(Problem::Invalid(why)) if why.contains("empty")));
    }

    /// CFG-1, CFG-10: 31 and 32 bytes, and bytes that trimming would change.
    #[test]
    fn keys() {
        assert!(read(&[b'k'; 31], SecretRule::Key).is_err());
        assert_eq!(read(&[b'k'; 32], SecretRule::Key).unwrap().len(), 32);
        for bad in [&b"\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"[..], "ü".repeat(32).as_bytes(), &[0xff; 40]] {
            assert!(matches!(read(bad, SecretRule::Key), Err(Problem::Invalid(_))));
        }
    }

    /// CFG-2: a missing file and a folder.
    #[test]
    fn unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let missing = SecretFile::read(&dir.path().join("none"), SecretRule::Text).err();
        assert_eq!(missing, Some(Problem::Unreadable("no such file or directory".into())));
        assert!(matches!(SecretFile::read(dir.path(), SecretRule::Text).err(), Some(Problem::Unreadable(_))));
    }
}
