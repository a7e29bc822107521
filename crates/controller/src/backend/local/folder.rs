//! The folder of one executor, `<state>/executors/<name>/`, which is its backend object.
//!
//! ```text
//! meta.json        labels and annotations, as a Pod has them       written by the controller
//! launch.json      program and environment                         written by the controller
//! supervisor.json  who supervises it; nothing was started before   written by the supervisor, once
//! exit.json        how it ended; nothing of it runs any more       written by the supervisor, last
//! lock             held by the supervisor for life
//! executor.log     output of the executor
//! own/             its executor's: the capability, 0400, until it took it away; sealed, its last report
//! work/            its home and working directory
//! api/             the socket of its identity
//! passwd           the host's accounts and the job's own        written by the controller
//! ```
//!
//! Invariants: a folder appears complete, by one rename; every file is replaced by one rename and has one writer; what
//! others rely on is on the disk before the call returns.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::{ExecutorState, Exit};
use super::isolation::{Isolation, JobUser, accounts};
use super::process::Process;
use super::removal::remove_tree;
use crate::files::{self, Reserved};

/// Two calls of 16 MiB and a line.
const LAST_REPORT_LIMIT: u64 = 33 << 20;

/// What an executor is, in the form of a Pod's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// What the supervisor starts. It holds no secret: the capability is in a file of its own.
#[derive(Serialize, Deserialize)]
pub(super) struct LaunchFile {
    /// None: the same program as the supervisor.
    pub(super) program: Option<PathBuf>,
    pub(super) args: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub(super) env: BTreeMap<String, String>,
    /// None: as our own user, with nothing between.
    #[serde(default)]
    pub(super) isolation: Option<Isolation>,
    /// The soft limit of open files; none: the supervisor's.
    #[serde(default)]
    pub(super) open_files: Option<u64>,
}

impl LaunchFile {
    /// The user of its own that the executor runs as.
    fn job_user(&self) -> Option<u32> {
        match self.isolation.as_ref()?.user {
            JobUser::Own(uid) => Some(uid),
            JobUser::Ours => None,
        }
    }

    /// Uid and gid of the executor.
    fn owner(&self) -> (u32, u32) {
        let ours = || (geteuid().as_raw(), getegid().as_raw());
        self.job_user().map_or_else(ours, |uid| (uid, uid))
    }

    /// Gives a file that was made for the executor to the user it runs as.
    fn give(&self, path: &Path) -> io::Result<()> {
        let Some(uid) = self.job_user() else { return Ok(()) };
        let given = lchown(path, Some(uid), Some(uid));
        given.map_err(|error| io::Error::new(error.kind(), format!("give {} to user {uid}: {error}", path.display())))
    }
}

/// What a folder is made of.
pub(super) struct Contents<'a> {
    pub(super) meta: &'a Meta,
    pub(super) launch: &'a LaunchFile,
    pub(super) capability: &'a str,
}

#[derive(Serialize, Deserialize)]
struct ExitFile {
    code: Option<i32>,
    signal: Option<i32>,
    at: String,
}

/// Whether a change must be on the disk before the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// It survives a power failure.
    Synced,
    /// It survives the end of this process; a power failure may bring the earlier content back.
    Loose,
}

/// The right to say how it ended, once.
pub(super) struct LastWord(Reserved);

impl LastWord {
    /// Nothing of the executor runs any more.
    pub(super) fn say(self, exit: &Exit) -> io::Result<()> {
        let exit = ExitFile { code: exit.code, signal: exit.signal, at: exit.at.to_string() };
        self.0.commit(&serde_json::to_vec(&exit)?)
    }
}

/// One executor's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Where programs of the job put temporary files; inside `work`, so that it goes with it.
    pub(super) fn tmp(&self) -> PathBuf {
        self.path.join("work/tmp")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("api/id")
    }

    /// What an isolated job sees as `/etc/passwd`.
    pub(super) fn accounts(&self) -> PathBuf {
        self.path.join("passwd")
    }

    /// Where the controller puts sockets; the job can use them and put nothing there.
    pub(super) fn socket_folder(&self) -> PathBuf {
        self.path.join("api")
    }

    /// Where the executor may write and remove files. The job may as well, so nothing here is believed.
    pub(super) fn own(&self) -> PathBuf {
        self.path.join("own")
    }

    pub(super) fn capability(&self) -> PathBuf {
        self.path.join("own/capability")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("executor.log")
    }

    pub(super) fn exists(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// Makes the folder with everything in it. Until the last rename there is only a folder with a leading dot, which
    /// no list shows and which the next attempt replaces.
    pub(super) fn create(&self, contents: &Contents<'_>) -> io::Result<()> {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let draft = Self::new(parent.join(format!(".new-{}", name.display())));
        remove_tree(&draft.path)?;
        draft.make_folders(contents.launch, &self.work())?;
        // On the disk with what is written beside it.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft.path.join("lock"))?;
        draft.write_launch(contents)?;
        draft.write_meta(contents.meta, Durability::Synced)?;
        fs::rename(&draft.path, &self.path)?;
        sync_dir(parent)
    }

    /// `home` is where the job will find its working directory.
    fn make_folders(&self, launch: &LaunchFile, home: &Path) -> io::Result<()> {
        for dir in [self.path.clone(), self.own(), self.work(), self.tmp(), self.socket_folder()] {
            DirBuilder::new().mode(0o700).create(dir)?;
        }
        if launch.isolation.is_some() {
            // Passable for the job; nobody else passes the folder above it.
            fs::set_permissions(self.socket_folder(), Permissions::from_mode(0o755))?;
            let text = accounts::with_job(&fs::read_to_string("/etc/passwd").unwrap_or_default(), launch.owner(), home);
            fs::write(self.accounts(), text)?;
            fs::set_permissions(self.accounts(), Permissions::from_mode(0o644))?;
        }
        [self.own(), self.work(), self.tmp()].iter().try_for_each(|dir| launch.give(dir))
    }

    /// A folder in which a program can be started behind walls, and which is no executor's.
    pub(super) fn create_for_trial(&self, launch: &LaunchFile) -> io::Result<()> {
        remove_tree(&self.path)?;
        self.make_folders(launch, &self.work())?;
        // Not worth a wait for the disk.
        fs::write(self.path.join("launch.json"), serde_json::to_vec_pretty(launch)?)
    }

    /// Program, environment and capability; written anew when a start is tried again.
    pub(super) fn write_launch(&self, contents: &Contents<'_>) -> io::Result<()> {
        files::write(&self.capability(), contents.capability.as_bytes())?;
        fs::set_permissions(self.capability(), Permissions::from_mode(0o400))?;
        contents.launch.give(&self.capability())?;
        files::write(&self.path.join("launch.json"), &serde_json::to_vec_pretty(contents.launch)?)
    }

    pub(super) fn read_launch(&self) -> io::Result<LaunchFile> {
        self.read("launch.json")
    }

    pub(super) fn read_meta(&self) -> io::Result<Meta> {
        self.read("meta.json")
    }

    pub(super) fn write_meta(&self, meta: &Meta, durability: Durability) -> io::Result<()> {
        let (path, text) = (self.path.join("meta.json"), serde_json::to_vec_pretty(meta)?);
        match durability {
            Durability::Synced => files::write(&path, &text),
            Durability::Loose => write_loosely(&path, &text),
        }
    }

    /// The supervisor, once it has begun.
    pub(super) fn supervisor(&self) -> io::Result<Process> {
        self.read("supervisor.json")
    }

    /// The supervisor's entry, before it starts anything. An entry that is there stays: an executor is started once.
    /// Returns the room for the last word: a job that fills the disk does not keep us from telling that it ended.
    pub(super) fn enter_supervisor(&self, supervisor: &Process) -> io::Result<LastWord> {
        let entry = self.path.join("supervisor.json");
        if fs::symlink_metadata(&entry).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "this executor was started before"));
        }
        let room = Reserved::new(&self.path.join("exit.json"))?;
        files::write(&entry, &serde_json::to_vec_pretty(supervisor)?)?;
        Ok(LastWord(room))
    }

    /// What the executor left undelivered; as long as one call may be, and no longer. A job may have put something else
    /// there: a link is not followed, and nothing but a file is read.
    pub(super) fn last_report(&self) -> io::Result<Option<Vec<u8>>> {
        use std::io::Read as _;
        let path = self.own().join(domain::last_report::FILE);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut content = Vec::new();
        file.take(LAST_REPORT_LIMIT).read_to_end(&mut content).map(|_| Some(content))
    }

    pub(super) fn exit(&self) -> Option<Exit> {
        let ExitFile { code, signal, at } = self.read("exit.json").ok()?;
        Some(Exit { code, signal, at: at.parse::<Timestamp>().ok()? })
    }

    /// What the process table and the files say, in an order that no end in between can confuse: the supervisor writes
    /// its last word before it goes, so the word is looked for after it was seen gone.
    pub(super) fn state(&self) -> ExecutorState {
        match self.supervisor() {
            Ok(supervisor) if supervisor.runs() => ExecutorState::Running,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ExecutorState::Pending,
            Ok(_) | Err(_) => self.exit().map_or(ExecutorState::Vanished, ExecutorState::Ended),
        }
    }

    /// Opens the lock file, without making one: a folder that is being removed must not come to life again.
    pub(super) fn open_lock(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path.join("lock"))
    }

    /// Removes the folder with all a job left in it, folders without permissions included. Nothing may run in it any
    /// more. What says what it is goes last, so that a removal that stops half-way is still listed and repeated.
    pub(super) fn remove(&self) -> io::Result<()> {
        for bulk in [self.own(), self.work(), self.socket_folder()] {
            remove_tree(&bulk)?;
        }
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(()) };
        let trash = parent.join(format!(".gone-{}", name.display()));
        remove_tree(&trash)?;
        match fs::rename(&self.path, &trash) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        sync_dir(parent)?;
        remove_tree(&trash)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<T> {
        let path = self.path.join(name);
        let unreadable = |error: serde_json::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        serde_json::from_slice(&fs::read(&path)?).map_err(unreadable)
    }
}

/// Like [`files::write`], without the wait for the disk.
fn write_loosely(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("loose");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?.write_all(content)?;
    fs::rename(draft, path)
}

/// Removes what earlier processes left half made or half removed among the executors' folders.
pub(super) fn sweep(executors: &Path) -> io::Result<()> {
    for entry in fs::read_dir(executors)?.flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b".new-") || name.starts_with(b".gone-") {
            remove_tree(&entry.path())?;
        }
    }
    Ok(())
}

fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
