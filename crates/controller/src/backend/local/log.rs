//! The output of an executor, kept in two files of bounded size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// What stands behind the name of the earlier file.
const OLDER: &str = "log.1";

/// Of a tail.
const TAIL_LINES: usize = 20;
const TAIL_BYTES: usize = 4 << 10;

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

/// The last lines of a log, [`TAIL_LINES`] of them in [`TAIL_BYTES`] at most, without what could move a cursor. Empty
/// where there is no log.
pub(super) fn tail(path: &Path) -> String {
    let [older, newer] = [path.with_extension(OLDER), path.to_owned()].map(|path| end_of(&path).unwrap_or_default());
    let mut end = [older, newer].concat();
    end.drain(..end.len().saturating_sub(TAIL_BYTES));
    let text = String::from_utf8_lossy(&end);
    // The first line may have lost its beginning.
    let text = if end.len() < TAIL_BYTES { &text[..] } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    let lines: Vec<_> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    last.join("\n").replace(|c: char| c.is_control() && c != '\n', " ")
}

fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES as u64)))?;
    let mut end = Vec::new();
    file.take(TAIL_BYTES as u64).read_to_end(&mut end).map(|_| end)
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
            fs::rename(&self.path, self.path.with_extension(OLDER))?;
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

    /// The last lines of both files, whole ones only, and never more than 20 in 4 KiB.
    #[test]
    fn the_tail_is_bounded_and_of_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("executor.log");
        assert_eq!(tail(&path), "");
        fs::write(path.with_extension(OLDER), "one\ntwo\n").unwrap();
        assert_eq!(tail(&path), "one\ntwo");
        fs::write(&path, "three \u{1b}[31m\nlast").unwrap();
        assert_eq!(tail(&path), "one\ntwo\nthree  [31m\nlast");
        let many: String = (0..100).map(|n| format!("line {n}\n")).collect();
        fs::write(&path, many).unwrap();
        let lines: Vec<_> = (80..100).map(|n| format!("line {n}")).collect();
        assert_eq!(tail(&path), lines.join("\n"));
        let long = "x".repeat(1500);
        fs::write(&path, format!("{long}\n{long}\n{long}\nend\n")).unwrap();
        assert_eq!(tail(&path), format!("{long}\n{long}\nend"));
        fs::write(&path, "y".repeat(10_000)).unwrap();
        assert_eq!(tail(&path), "");
    }

    /// Where no log can be written the reader still takes everything.
    #[test]
    fn a_log_that_cannot_be_written_stops_nobody() {
        keep(&[b'x'; 100_000][..], PathBuf::from("/nowhere/at/all/executor.log"));
    }
}
