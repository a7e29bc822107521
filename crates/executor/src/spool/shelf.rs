//! The file in which the spool's content outlives its executor: sealed, 0600, removed once everything is delivered
//! (NEW-112). The controller opens it when it finds the executor gone.
//!
//! A file that cannot be written costs that second chance and nothing else: what is in memory is delivered all the same.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use domain::id::AssignmentId;
use domain::last_report::{self, LastReport};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::Left;

/// Where the file goes, and what is in it now.
pub(crate) struct Shelf {
    place: Option<Arc<Place>>,
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
        Self { place: Some(Arc::new(place)), stored: Mutex::default() }
    }

    /// Makes the file say what `left` says when it is its turn; it is on the disk when this returns.
    pub(crate) async fn keep(&self, left: impl Fn() -> (Left, String)) {
        let Some(place) = self.place.clone() else { return };
        let mut stored = self.stored.lock().await;
        let (left, cause) = left();
        if left == *stored {
            return;
        }
        let report = report_of(&left, cause);
        match tokio::task::spawn_blocking(move || place.write(&report)).await {
            Ok(Ok(())) => *stored = left,
            Ok(Err(error)) => tracing::warn!(%error, "the last report is in memory only"),
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
