//! The file in which the spool's content outlives its executor: sealed, 0600, removed once everything is delivered
//! (NEW-112). The controller opens it when it finds the executor gone.
//!
//! A file that cannot be written costs that second chance and nothing else: what is in memory is delivered all the same.
//!
//! It is written where it is asked for, with no thread for it: a job that has filled its limit of processes leaves none
//! to be had (NEW-174). The runtime's one thread stands still for that time. The file holds two calls, is
//! written a few times at the end of a job and only while they cannot be delivered; keep-alives are seconds apart.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use domain::id::AssignmentId;
use domain::last_report::{self, LastReport};
use zeroize::Zeroizing;

use super::Left;

/// Where the file goes, and what is in it now.
pub(crate) struct Shelf {
    place: Option<Place>,
    /// Held while the file is written, so that an older content never replaces a newer one.
    stored: Mutex<Left>,
}

/// No `Debug`, for the capability's sake.
struct Place {
    path: PathBuf,
    capability: Zeroizing<String>,
    assignment: AssignmentId,
}

impl Shelf {
    /// No file: there is no volume that outlives the executor.
    pub(crate) fn none() -> Self {
        Self { place: None, stored: Mutex::default() }
    }

    /// Beside the file that the capability came in.
    pub(crate) fn beside(capability_file: &Path, capability: &Zeroizing<String>, assignment: AssignmentId) -> Self {
        let path = capability_file.with_file_name(last_report::FILE);
        let place = Place { path, capability: capability.clone(), assignment };
        Self { place: Some(place), stored: Mutex::default() }
    }

    /// Makes the file say what `left` says when it is its turn; it is on the disk when this returns.
    pub(crate) fn keep(&self, left: impl FnOnce() -> (Left, String)) {
        let Some(place) = &self.place else { return };
        // A panic in here leaves what was stored before; then the file is written once more.
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, cause) = left();
        if left == *stored {
            return;
        }
        match place.write(&report_of(&left, cause)) {
            Ok(()) => *stored = left,
            Err(error) => tracing::warn!(%error, "the last report is in memory only"),
        }
    }
}

impl Place {
    fn write(&self, report: &LastReport) -> io::Result<()> {
        if report.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            };
        }
        let mut nonce = [0; 12];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let sealed = report.seal(&self.capability, self.assignment, nonce);
        let sealed = sealed.ok_or_else(|| io::Error::other("it cannot be sealed"))?;
        let draft = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&sealed)?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

fn report_of(left: &Left, cause: String) -> LastReport {
    let part = |body: &Option<Bytes>| body.as_ref().map(|body| Zeroizing::new(body.to_vec()));
    let interrupted = left.interrupted.then_some(cause);
    LastReport { interrupted, log: part(&left.log), state: part(&left.state) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// NEW-112, NEW-174: the file needs no thread and no runtime that would start one, so it is written also when the
    /// job has left no process to be had.
    #[test]
    fn is_written_by_whoever_asks() {
        let dir = tempfile::tempdir().unwrap();
        let (capability, assignment) = (Zeroizing::new("c2.text".to_owned()), "gitea-task-7".parse().unwrap());
        let shelf = Shelf::beside(&dir.path().join("capability"), &capability, assignment);
        let left = Left { state: Some(Bytes::from_static(b"the last state")), ..Left::default() };
        shelf.keep(|| (left, String::new()));
        let file = dir.path().join(last_report::FILE);
        assert!(fs::metadata(&file).unwrap().len() > 0);
        shelf.keep(|| (Left::default(), String::new()));
        assert!(!file.exists());
    }
}
