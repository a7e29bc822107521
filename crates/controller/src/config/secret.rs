//! Secrets come from files only (CFG-1). The content has no `Debug` and no `Display`, and is wiped when it goes.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
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
#[derive(Clone)]
pub struct SecretFile {
    path: PathBuf,
    /// None when it is a part of that file only.
    rule: Option<SecretRule>,
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
        Ok(Self { path: path.to_owned(), rule: Some(rule), text: Zeroizing::new(text.to_owned()) })
    }

    /// A secret that came with another file (the registration of one-host mode).
    #[must_use]
    pub fn held(path: PathBuf, text: Zeroizing<String>) -> Self {
        Self { path, rule: None, text }
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

    /// Reads the same file again, by the same rule, with the errors of [`SecretFile::read`]. None when the secret is only
    /// a part of its file, which nobody but us writes.
    #[must_use]
    pub fn reread(&self) -> Option<Result<Self, Problem>> {
        self.rule.map(|rule| Self::read(&self.path, rule))
    }
}

/// What to say about a secret that other users of this host can read: a warning, since mounted secrets of a container
/// often look so, and nobody else is there. None when it is ours alone, or cannot be looked at.
#[must_use]
pub fn exposure(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    let (mode, owner) = (about.mode() & 0o777, about.uid());
    let path = path.display();
    is_exposed(mode, owner, rustix::process::geteuid().as_raw())
        .then(|| format!("{path} holds a secret and is open to other users (mode {mode:04o}): chmod 600 {path}"))
}

/// What belongs to somebody else and opens to a group only is how a kubelet gives us a Secret: we read it by that group,
/// and could not change it.
fn is_exposed(mode: u32, owner: u32, us: u32) -> bool {
    let of_our_group = owner != us && mode & 0o037 == 0;
    mode & 0o077 != 0 && !of_our_group
}

fn content(path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let unreadable = |error: std::io::Error| Problem::Unreadable(plain(&error));
    // Without NONBLOCK the open of a pipe waits for a writer, for ever.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if kind.is_fifo() {
        return Err(Problem::Unreadable("it is a pipe; put the secret into a regular file".into()));
    }
    if !kind.is_file() {
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
    use std::os::unix::fs::PermissionsExt as _;

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

    /// NEW-141: a secret that others can read is told about, with the remedy.
    #[test]
    fn open_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "s").unwrap();
        for (mode, told) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o622, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let expect = format!(
                "{0} holds a secret and is open to other users (mode {mode:04o}): chmod 600 {0}",
                path.display()
            );
            assert_eq!(exposure(&path), told.then_some(expect));
        }
        assert_eq!(exposure(&dir.path().join("none")), None);
    }

    /// NEW-141, NEW-72: a Secret as the kubelet mounts it, 0440 and root's, is open to nobody else.
    #[test]
    fn what_a_kubelet_mounts_is_ours() {
        let exposed = |mode| is_exposed(mode, 0, 65532);
        assert_eq!([0o440, 0o400, 0o444, 0o460, 0o640].map(exposed), [false, false, true, true, false]);
        assert!(is_exposed(0o440, 65532, 65532) && is_exposed(0o640, 0, 0));
    }

    /// CFG-2: a pipe without a writer is refused at once, not waited for.
    #[test]
    fn a_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (done, waited) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(SecretFile::read(&path, SecretRule::Text).err()));
        let error = waited.recv_timeout(std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(error, Some(Problem::Unreadable("it is a pipe; put the secret into a regular file".into())));
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
