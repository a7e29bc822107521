//! A Unix socket at a path: put there whole, with its permissions, and taken away only if it is still ours.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::net::{UnixListener, UnixStream};

/// `sun_path` of `unix(7)` holds 108 bytes, the last of which ends the string.
const LONGEST_PATH: usize = 107;
/// How long whoever listens on an existing socket has to accept. A dead one is known at once.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);

/// Who may open a served socket, beside the permissions of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Permission bits of the socket; connecting needs write permission.
    pub mode: u32,
}

impl Default for SocketAccess {
    fn default() -> Self {
        Self { mode: 0o600 }
    }
}

/// A socket cannot be served at its path.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The path does not fit into a socket address.
    #[error("the socket path {path} has {length} bytes, a Unix socket takes {LONGEST_PATH}; use a shorter state folder",
            length = .path.as_os_str().len())]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// Something that is no socket is there; it is left alone.
    #[error("{path} exists and is no socket; remove it if nobody needs it")]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// Somebody serves it.
    #[error("another process serves the socket {path}; two issuers cannot share one folder")]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("the socket {path} cannot be served: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The file of a served socket. Dropping it removes the file, unless another socket has taken its place.
pub(super) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.device_and_inode) {
            // Nothing is lost if it stays: who comes next finds nobody listening and replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path`. The socket gets its permissions under another name, so that it is never open to more than it
/// should be, and a stale one is replaced without a moment in which there is none.
pub(super) async fn listen(path: PathBuf, access: SocketAccess) -> Result<(UnixListener, SocketFile), SocketError> {
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(SocketError::TooLong { path });
    }
    probe(&path).await?;
    bind(&path, access).map_err(|source| SocketError::Io { path, source })
}

/// Whether the path is free or holds a socket that nobody listens on.
async fn probe(path: &Path) -> Result<(), SocketError> {
    let path = path.to_owned();
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(SocketError::Io { path, source }),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::Occupied { path }),
        Ok(_) => {}
    }
    match tokio::time::timeout(PROBE_PATIENCE, UnixStream::connect(&path)).await {
        Ok(Err(error)) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Ok(Err(source)) if source.kind() == io::ErrorKind::PermissionDenied => Err(SocketError::Io { path, source }),
        _ => Err(SocketError::InUse { path }),
    }
}

fn bind(path: &Path, access: SocketAccess) -> io::Result<(UnixListener, SocketFile)> {
    let temporary = neighbour(path);
    if fs::symlink_metadata(&temporary).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(&temporary)?;
    }
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, Permissions::from_mode(access.mode))?;
    let metadata = fs::symlink_metadata(&temporary)?;
    fs::rename(&temporary, path)?;
    Ok((listener, SocketFile { path: path.to_owned(), device_and_inode: (metadata.dev(), metadata.ino()) }))
}

/// A name of the same length in the same folder, so that it fits wherever the path itself does.
fn neighbour(path: &Path) -> PathBuf {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last = if *last == b'~' { b'#' } else { b'~' };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}
