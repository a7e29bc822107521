//! From an executor to nothing: its identity first, then its processes, then its folder.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use super::folder::Folder;
use super::process::{self, Process};
use super::{LocalBackend, on_files, require_name, starting, transient};
use crate::backend::BackendError;

/// For a supervisor to kill its executor in order, before we do it in its place.
const ORDERLY: Duration = Duration::from_secs(5);

/// For everything to be gone after it was killed. Below the deadline of work on files.
const KILLED: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) async fn delete(backend: &LocalBackend, name: &str) -> Result<(), BackendError> {
    require_name(name)?;
    backend.withdraw_identity(name);
    let turn = backend.turn(name).await;
    let folder = backend.folder(name);
    let ended = on_files(move || {
        let _turn = turn;
        end(&folder)
    });
    ended.await?.map_err(|error| transient(format!("executor {name} is not gone yet: {error}")))?;
    backend.forget_identity(name);
    backend.told().remove(name);
    Ok(())
}

fn end(folder: &Folder) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let _lock = end_processes(folder)?;
    folder.remove()
}

/// Returns when nothing of the executor runs, with the lock that keeps a supervisor from beginning (none in a folder
/// that was damaged so far that no supervisor can begin in it).
fn end_processes(folder: &Folder) -> io::Result<Option<File>> {
    let deadline = Instant::now() + ORDERLY + KILLED;
    loop {
        if let Ok(supervisor) = folder.supervisor() {
            end_supervisor(&supervisor);
        }
        let lock = match folder.open_lock() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return end_leftovers(folder, deadline).map(|()| None);
            }
            Err(error) => return Err(error),
        };
        // Held: a supervisor that has only just begun will have entered itself the next time we look.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return end_leftovers(folder, deadline).map(|()| Some(lock));
        }
        if Instant::now() > deadline {
            return Err(io::Error::other("its supervisor does not end"));
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn end_supervisor(supervisor: &Process) {
    let Some(handle) = supervisor.open() else { return };
    if process::signal_handle(&handle, Signal::USR1) && process::wait_for_end(&handle, ORDERLY) {
        return;
    }
    // Stopped, or stuck: its descendants first, since they lose their parent with it.
    process::stop_and_kill(|| process::descendants(supervisor.pid));
    process::signal_handle(&handle, Signal::KILL);
    process::wait_for_end(&handle, LOOK_AGAIN);
}

/// Nobody is left where the supervisor wrote its last word.
fn end_leftovers(folder: &Folder, deadline: Instant) -> io::Result<()> {
    if folder.exit().is_some() {
        return Ok(());
    }
    let (supervisor, marks) = (folder.supervisor().ok(), starting::marks(folder));
    let find = || process::leftovers(supervisor.as_ref(), &marks);
    loop {
        let left = find();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("processes that cannot be killed: {left:?}")));
        }
        process::stop_and_kill(find);
        thread::sleep(LOOK_AGAIN);
    }
}
