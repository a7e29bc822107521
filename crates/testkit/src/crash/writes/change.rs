//! Which system calls change a folder, and what they change there.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::libc::{self, c_long, user_regs_struct};
use nix::sys::ptrace;
use nix::unistd::Pid;

/// A change that is about to be made.
pub(super) struct Change {
    /// The system call.
    pub(super) call: &'static str,
    /// What it changes, as a path in the folder.
    pub(super) path: String,
}

/// Where a system call says what it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// An open file: this argument.
    File(usize),
    /// A folder and a path in it: these arguments.
    Path(usize, usize),
    /// As [`Target::Path`], if the flags in the third argument make or cut the file.
    Opened(usize, usize, usize),
    /// A path: this argument.
    Bare(usize),
    /// As [`Target::Bare`], if the flags make or cut the file.
    BareOpened(usize, usize),
}

use Target::{Bare, BareOpened, File as Open, Opened, Path as At};

/// What every Linux has. `fsync` is not among them: it changes nothing that a killed process leaves behind, so a kill before
/// it is a kill before the change or call that comes next.
const CALLS: &[(c_long, &str, Target)] = &[
    (libc::SYS_openat, "open", Opened(0, 1, 2)),
    (libc::SYS_mkdirat, "mkdir", At(0, 1)),
    (libc::SYS_mknodat, "mknod", At(0, 1)),
    (libc::SYS_unlinkat, "unlink", At(0, 1)),
    (libc::SYS_linkat, "link", At(2, 3)),
    (libc::SYS_symlinkat, "symlink", At(1, 2)),
    (libc::SYS_renameat2, "rename", At(2, 3)),
    (libc::SYS_fchmodat, "chmod", At(0, 1)),
    (libc::SYS_fchownat, "chown", At(0, 1)),
    (libc::SYS_fchmod, "chmod", Open(0)),
    (libc::SYS_fchown, "chown", Open(0)),
    (libc::SYS_truncate, "truncate", Bare(0)),
    (libc::SYS_ftruncate, "truncate", Open(0)),
    (libc::SYS_fallocate, "allocate", Open(0)),
    (libc::SYS_write, "write", Open(0)),
    (libc::SYS_writev, "write", Open(0)),
    (libc::SYS_pwrite64, "write", Open(0)),
    (libc::SYS_pwritev, "write", Open(0)),
    (libc::SYS_copy_file_range, "write", Open(2)),
];

/// What older architectures have besides.
#[cfg(target_arch = "x86_64")]
const OLDER_CALLS: &[(c_long, &str, Target)] = &[
    (libc::SYS_open, "open", BareOpened(0, 1)),
    (libc::SYS_creat, "open", Bare(0)),
    (libc::SYS_mkdir, "mkdir", Bare(0)),
    (libc::SYS_mknod, "mknod", Bare(0)),
    (libc::SYS_rmdir, "unlink", Bare(0)),
    (libc::SYS_unlink, "unlink", Bare(0)),
    (libc::SYS_link, "link", Bare(1)),
    (libc::SYS_symlink, "symlink", Bare(1)),
    (libc::SYS_rename, "rename", Bare(1)),
    (libc::SYS_renameat, "rename", At(2, 3)),
    (libc::SYS_chmod, "chmod", Bare(0)),
    (libc::SYS_chown, "chown", Bare(0)),
    (libc::SYS_lchown, "chown", Bare(0)),
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER_CALLS: &[(c_long, &str, Target)] = &[];

/// The change that a thread at the entry of a system call is about to make in a folder.
pub(super) fn of(thread: Pid, folder: &Path) -> Option<Change> {
    let entry = entry(thread)?;
    let (_, call, target) = CALLS.iter().chain(OLDER_CALLS).find(|(number, ..)| *number == entry.number)?;
    let path = entry.target(*target)?;
    let path = path.strip_prefix(folder).ok()?.to_string_lossy().into_owned();
    Some(Change { call, path })
}

/// A system call at its entry.
struct Entry {
    thread: Pid,
    number: c_long,
    arguments: [u64; 6],
}

fn entry(thread: Pid) -> Option<Entry> {
    let registers = ptrace::getregset::<ptrace::regset::NT_PRSTATUS>(thread).ok()?;
    let (number, arguments) = decode(&registers);
    Some(Entry { thread, number: c_long::try_from(number).ok()?, arguments })
}

#[cfg(target_arch = "x86_64")]
fn decode(registers: &user_regs_struct) -> (u64, [u64; 6]) {
    let r = registers;
    (r.orig_rax, [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
}

#[cfg(target_arch = "aarch64")]
fn decode(registers: &user_regs_struct) -> (u64, [u64; 6]) {
    let r = &registers.regs;
    (r[8], [r[0], r[1], r[2], r[3], r[4], r[5]])
}

impl Entry {
    fn target(&self, target: Target) -> Option<PathBuf> {
        match target {
            Open(file) => self.file(file),
            At(folder, path) => self.path(Some(folder), path),
            Bare(path) => self.path(None, path),
            Opened(folder, path, flags) => self.makes(flags).then(|| self.path(Some(folder), path))?,
            BareOpened(path, flags) => self.makes(flags).then(|| self.path(None, path))?,
        }
    }

    fn makes(&self, flags: usize) -> bool {
        let making = u64::try_from(libc::O_CREAT | libc::O_TRUNC).unwrap_or_default();
        self.arguments[flags] & making != 0
    }

    /// Descriptors are 32 bits wide, whatever stands in the rest of the register.
    fn descriptor(&self, argument: usize) -> i32 {
        self.arguments[argument] as u32 as i32
    }

    fn file(&self, argument: usize) -> Option<PathBuf> {
        self.link(&format!("fd/{}", self.descriptor(argument)))
    }

    fn path(&self, folder: Option<usize>, argument: usize) -> Option<PathBuf> {
        let path = PathBuf::from(self.text(self.arguments[argument])?);
        if path.is_absolute() {
            return Some(path);
        }
        let open = folder.filter(|folder| self.descriptor(*folder) != libc::AT_FDCWD);
        let folder = open.map_or_else(|| self.link("cwd"), |folder| self.file(folder))?;
        Some(folder.join(path))
    }

    fn link(&self, what: &str) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/{what}", self.thread)).ok()
    }

    /// A text in its memory, which ends with a zero.
    fn text(&self, address: u64) -> Option<String> {
        /// `PATH_MAX`.
        const LONGEST: usize = 4096;
        const PART: u64 = 256;
        let memory = File::open(format!("/proc/{}/mem", self.thread)).ok()?;
        let (mut text, mut at) = (Vec::new(), address);
        while text.len() < LONGEST {
            // Up to a border of parts: a part lies in one page, and the next page may not be there.
            let mut part = vec![0; usize::try_from(PART - at % PART).ok()?];
            memory.read_exact_at(&mut part, at).ok()?;
            if let Some(end) = part.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&part[..end]);
                return String::from_utf8(text).ok();
            }
            text.extend_from_slice(&part);
            at += PART - at % PART;
        }
        None
    }
}
