//! Files of ours: written whole or not at all, readable by us only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Writes a file 0600: temporary file, fsync, rename, fsync of the folder. A reader sees the old or the new content.
///
/// # Errors
/// Whatever the file system says; then the old file is as it was.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    Reserved::empty(path)?.commit(content)
}

/// A place on the disk for a file whose content cannot be had twice: what can fail fails before the content exists.
pub struct Reserved {
    temporary: PathBuf,
    path: PathBuf,
    file: File,
}

impl Reserved {
    /// Makes the temporary file, with 4 KiB in it, on the disk.
    ///
    /// # Errors
    /// No right to write, no space.
    pub fn new(path: &Path) -> io::Result<Self> {
        let mut reserved = Self::empty(path)?;
        reserved.file.write_all(&[b' '; 4096])?;
        reserved.file.sync_all()?;
        Ok(reserved)
    }

    /// The temporary file alone: nothing is lost with a content that finds no place.
    fn empty(path: &Path) -> io::Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        // One name, so that what a killed process left is overwritten by the next one. We are the only writer.
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        Ok(Self { temporary, path: path.to_owned(), file })
    }

    /// Puts the content in place.
    ///
    /// # Errors
    /// As [`write()`].
    pub fn commit(mut self, content: &[u8]) -> io::Result<()> {
        use std::io::Seek as _;
        self.file.rewind()?;
        self.file.write_all(content)?;
        self.file.set_len(content.len() as u64)?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // After a commit the name is gone already.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Makes a folder 0700, its parents too; one that is there stays as it is.
///
/// # Errors
/// It cannot be made, or is no folder.
pub fn new_private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// As [`new_private_folder`], and one that others could enter is closed to them.
///
/// # Errors
/// As there, or it belongs to somebody else.
pub fn private_folder(path: &Path) -> io::Result<()> {
    new_private_folder(path)?;
    let metadata = fs::metadata(path)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, b"one").unwrap();
        drop(Reserved::new(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        write(&path, &[b'x'; 5000]).unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn folders_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        private_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        private_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
