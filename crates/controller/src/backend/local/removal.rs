//! Removes what a job left behind, however it was laid: deeper than a path may be long, deeper than a stack or than we
//! have descriptors, in folders whose owner may not write them. A job must not be able to keep its slot by what it
//! leaves on the disk, and still less to end this program with it.
//!
//! Nothing recurses: a folder that is not empty is lifted to the top of the tree and taken apart there, so every folder
//! is one level deep when its turn comes. Two descriptors are open at a time. Links are not followed. Nobody else may
//! write in the tree any more.

use std::ffi::{CStr, CString};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a file, a link or a whole tree. What is not there is removed.
///
/// # Errors
/// The system's, for the first entry that cannot be removed; calling again goes on with what is left.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(there) if !there.is_dir() => return fs::remove_file(path),
        Ok(_) => fs::set_permissions(path, Permissions::from_mode(0o700))?,
    }
    let mut top = Top { folder: openat(CWD, path, FOLDER, Mode::empty())?, waiting: Vec::new(), lifted: 0 };
    top.clear_itself()?;
    while let Some(name) = top.waiting.pop() {
        top.take_apart(&name)?;
    }
    fs::remove_dir(path)
}

/// The top of the tree, with the folders in it that are still to be taken apart.
struct Top {
    folder: OwnedFd,
    waiting: Vec<CString>,
    lifted: u64,
}

impl Top {
    fn clear_itself(&mut self) -> io::Result<()> {
        for (name, kind) in entries(self.folder.as_fd())? {
            if !removed(self.folder.as_fd(), &name, kind)? {
                self.waiting.push(name);
            }
        }
        Ok(())
    }

    /// Empties a folder at the top and removes it; its own folders come to the top.
    fn take_apart(&mut self, name: &CStr) -> io::Result<()> {
        let folder = openat(&self.folder, name, FOLDER, Mode::empty())?;
        for (entry, kind) in entries(folder.as_fd())? {
            if !removed(folder.as_fd(), &entry, kind)? {
                let lifted = self.lift(folder.as_fd(), &entry)?;
                self.waiting.push(lifted);
            }
        }
        unlinkat(&self.folder, name, AtFlags::REMOVEDIR).map_err(Into::into)
    }

    fn lift(&mut self, from: BorrowedFd<'_>, name: &CStr) -> io::Result<CString> {
        loop {
            self.lifted += 1;
            let to = CString::new(format!(".lifted-{}", self.lifted))?;
            match renameat(from, name, &self.folder, &to) {
                Ok(()) => return Ok(to),
                // A job can have used the name itself.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the entry is gone; false: it is a folder with something in it, and may be opened and moved now.
fn removed(folder: BorrowedFd<'_>, name: &CStr, kind: FileType) -> io::Result<bool> {
    if kind != FileType::Directory {
        return unlinkat(folder, name, AtFlags::empty()).map(|()| true).map_err(Into::into);
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST | Errno::NOTEMPTY) => {
            // Its owner may have closed it; to move a folder one must be able to write it.
            chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Everything in a folder, read to the end before anything is changed.
fn entries(folder: BorrowedFd<'_>) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Some file systems do not tell.
            FileType::Unknown => FileType::from_raw_mode(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode),
            kind => kind,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::process::Command;

    use rustix::fs::mkdirat;

    use super::*;

    /// A chain of folders, made as a job would: by going into each.
    fn chain(top: &Path, name: &str, depth: usize, mode: Mode) {
        let mut folder = openat(CWD, top, FOLDER, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&folder, name, Mode::RWXU).unwrap();
            let next = openat(&folder, name, FOLDER, Mode::empty()).unwrap();
            chmodat(&folder, name, mode, AtFlags::empty()).unwrap();
            folder = next;
        }
        openat(&folder, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        let closed = Mode::from_raw_mode(rustix::fs::fstat(&folder).unwrap().st_mode) & !Mode::RWXU;
        rustix::fs::fchmod(&folder, closed).unwrap();
    }

    /// NEW-74, NEW-171: deeper than a path, a stack and the descriptors of this process.
    #[test]
    fn a_tree_of_any_depth() {
        // In memory: a disk takes minutes for a tree like this.
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let top = place.path().join("top");
        fs::create_dir(&top).unwrap();
        chain(&top, "d", 20_000, Mode::RWXU);
        chain(&top, &"n".repeat(250), 200, Mode::RWXU);
        let (removed, left) = (remove_tree(&top), top.exists());
        // What a fault left is too deep for the guard, which would end this program and all its tests with a full stack.
        Command::new("rm").arg("-rf").arg(place.path()).status().unwrap();
        removed.unwrap();
        assert!(!left);
    }

    #[test]
    fn links_files_closed_folders_and_names_of_ours() {
        let place = tempfile::tempdir().unwrap();
        let (top, outside) = (place.path().join("top"), place.path().join("outside"));
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        std::os::unix::fs::symlink(&outside, top.join("a/link")).unwrap();
        std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
        fs::write(top.join(".lifted-1"), "").unwrap();
        fs::create_dir_all(top.join(".lifted-2/x/y")).unwrap();
        fs::write(top.join("a/b/c/file"), "").unwrap();
        fs::set_permissions(top.join("a/b"), Permissions::from_mode(0o000)).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists() && outside.join("kept").exists());
        remove_tree(&top).unwrap();
        remove_tree(&outside.join("kept")).unwrap();
        assert!(!outside.join("kept").exists());
    }
}
