//! The output of an executor, kept in two files of bounded size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

/// A file reaches this size, becomes `executor.log.1` in place of the earlier one, and a new one begins.
const FILE_LIMIT: u64 = 8 << 20;

/// Copies everything from `source` into the log until its last writer is gone. A log that cannot be written, on a full
/// disk for instance, loses lines; it never stops the one who writes them.
pub(super) fn keep(mut source: impl Read, path: PathBuf) {
    let mut log = Log { path, file: None, size: 0, limit: FILE_LIMIT };
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                if log.append(&buffer[..n]).is_err() {
                    log.file = None;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

struct Log {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    limit: u64,
}

impl Log {
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let written = self.file()?.write_all(text);
        self.size += text.len() as u64;
        if self.size >= self.limit {
            self.file = None;
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        written
    }

    fn file(&mut self) -> io::Result<&mut File> {
        match self.file {
            Some(ref mut file) => Ok(file),
            None => {
                let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
                self.size = file.metadata()?.len();
                Ok(self.file.insert(file))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// F26 of a single host: a talkative executor does not fill the disk, and its last words are kept.
    #[test]
    fn the_log_is_bounded_and_keeps_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("executor.log");
        let mut log = Log { path: path.clone(), file: None, size: 0, limit: 100 };
        for n in 0..100 {
            log.append(format!("line {n:03}\n").as_bytes()).unwrap();
        }
        let older = fs::read_to_string(dir.path().join("executor.log.1")).unwrap();
        let newer = fs::read_to_string(&path).unwrap();
        assert!(older.len() <= 109 && newer.len() <= 109, "{} {}", older.len(), newer.len());
        assert!(format!("{older}{newer}").ends_with("line 098\nline 099\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    /// Where no log can be written the reader still takes everything.
    #[test]
    fn a_log_that_cannot_be_written_stops_nobody() {
        keep(&[b'x'; 100_000][..], PathBuf::from("/nowhere/at/all/executor.log"));
    }
}
