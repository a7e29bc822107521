//! Carries out a [plan](super::plan) in the mount namespace of this process. No decision is made here.
//!
//! Order: parts of the host that may be written are taken hold of, then everything becomes read-only, then the parts
//! that may be read are taken hold of, and only then anything is covered.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_change, mount_remount,
    move_mount, open_tree,
};

use super::Access;
use super::plan::{Mount, What};

/// Makes this process see what the plan says, and only that.
pub(super) fn carry_out(plan: &[Mount]) -> io::Result<()> {
    let whole = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", whole).map_err(|error| failed("the mounts cannot be made our own", Path::new("/"), error))?;
    let mut held: Vec<Option<OwnedFd>> = plan.iter().map(|_| None).collect();
    hold(plan, &mut held, Access::Writable)?;
    make_read_only()?;
    hold(plan, &mut held, Access::ReadOnly)?;
    for (mount, held) in plan.iter().zip(held) {
        put(mount, held).map_err(|error| named("mount", &mount.at, error))?;
    }
    for (number, mount) in plan.iter().enumerate() {
        let covered = plan.get(number + 1).is_some_and(|next| next.at == mount.at);
        if mount.what == What::Nothing && !covered {
            close(&mount.at).map_err(|error| failed("close", &mount.at, error))?;
        }
    }
    Ok(())
}

/// Takes hold of parts of the host while they can still be reached. One that does not exist is nothing to show.
fn hold(plan: &[Mount], held: &mut [Option<OwnedFd>], wanted: Access) -> io::Result<()> {
    for (mount, held) in plan.iter().zip(held) {
        if let What::Host { from, access } = &mount.what
            && *access == wanted
        {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            *held = match open_tree(CWD, from, flags) {
                Ok(tree) => Some(tree),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(failed("show", from, error)),
            };
        }
    }
    Ok(())
}

fn make_read_only() -> io::Result<()> {
    let table =
        fs::read("/proc/self/mountinfo").map_err(|error| named("read", "/proc/self/mountinfo".as_ref(), error))?;
    // Of two mounts at one place the later one is the one that is reached.
    let standing: BTreeMap<_, _> = table.split(|&byte| byte == b'\n').filter_map(standing).collect();
    for (at, flags) in standing {
        match mount_remount(&at, MountFlags::BIND | MountFlags::RDONLY | flags, "") {
            // Covered by another mount, or where this user may not go: nobody of the job reaches it either.
            Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::INVAL | Errno::NOTDIR) => {}
            Err(error) => return Err(failed("make read-only", &at, error)),
        }
    }
    Ok(())
}

/// One line of `/proc/self/mountinfo`: where, and the flags that a change must keep.
fn standing(line: &[u8]) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(|&byte| byte == b' ').skip(4);
    let (at, options) = (fields.next()?, fields.next()?);
    let flag = |option: &[u8]| match option {
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"nosymfollow" => MountFlags::NOSYMFOLLOW,
        // Times of access stay as they are when nothing is said of them.
        _ => MountFlags::empty(),
    };
    Some((unescaped(at), options.split(|&byte| byte == b',').map(flag).collect()))
}

/// Blank, tab, line end and backslash stand there as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let code = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

fn put(entry: &Mount, held: Option<OwnedFd>) -> io::Result<()> {
    let (at, safe) = (entry.at.as_path(), MountFlags::NOSUID | MountFlags::NODEV);
    match (&entry.what, held) {
        (What::Host { .. }, Some(tree)) => show(&tree, at),
        (What::Host { .. }, None) => Ok(()),
        // Nothing to cover.
        _ if !at.exists() => Ok(()),
        (What::Blank, _) => Ok(mount_bind("/dev/null", at)?),
        (What::Nothing, _) => Ok(mount("none", at, "tmpfs", safe, c"mode=0755")?),
        (What::Memory, _) => Ok(mount("none", at, "tmpfs", safe, c"mode=1777")?),
        (What::Processes, _) => Ok(mount("proc", at, "proc", safe | MountFlags::NOEXEC, None)?),
        (What::Terminals, _) => {
            let options = c"newinstance,ptmxmode=0666,mode=0620";
            Ok(mount("devpts", at, "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, options)?)
        }
    }
}

/// Puts what is held to its place. In a folder that was covered the way to it is made.
fn show(tree: &OwnedFd, at: &Path) -> io::Result<()> {
    let is_folder = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode).is_dir();
    if !at.exists() {
        let folder = if is_folder { at } else { at.parent().unwrap_or(at) };
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        if !is_folder {
            File::create(at)?;
        }
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
    Ok(move_mount(tree.as_fd(), "", CWD, at, flags)?)
}

/// An empty folder stays so.
fn close(at: &Path) -> rustix::io::Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    match mount_remount(at, flags, "") {
        // It was never there, or another mount covers it by now.
        Err(Errno::NOENT | Errno::INVAL) => Ok(()),
        closed => closed,
    }
}

fn failed(what: &str, at: &Path, error: Errno) -> io::Error {
    named(what, at, error.into())
}

fn named(what: &str, at: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", at.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names with blanks and backslashes, and flags that must not get lost: without them the kernel refuses.
    #[test]
    fn lines_of_the_mount_table() {
        let line = br"36 35 98:0 /a /mnt/a\040b\134040 rw,nosuid,nodev,noexec,relatime master:1 - ext3 /dev/x rw";
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        assert_eq!(standing(line), Some((r"/mnt/a b\040".into(), flags)));
        let plain = b"25 1 254:0 / / rw,relatime - ext4 /dev/vda rw";
        assert_eq!(standing(plain), Some(("/".into(), MountFlags::empty())));
        assert_eq!(standing(b""), None);
    }
}
