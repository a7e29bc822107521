//! Leadership on one host: a lock on a file, which the kernel frees when the process ends, however it ends. Whoever has
//! it keeps it until he lets go, so it is never lost.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Held, Leadership, LeaseError, Standing, Tenure};

/// The lock of one host: `<state>/lock`.
#[derive(Debug, Clone)]
pub struct FileLock {
    path: PathBuf,
}

impl FileLock {
    /// The lock file of a state folder.
    #[must_use]
    pub fn in_folder(state: &Path) -> Self {
        Self { path: state.join("lock") }
    }

    fn lock(&self) -> Result<File, LeaseError> {
        let unusable = |cause| LeaseError::Unusable { path: self.path.clone(), cause };
        loop {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let mut file = options.open(&self.path).map_err(unusable)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    return Err(LeaseError::Taken { path: self.path.clone(), holder: Holder::read(&mut file) });
                }
                Err(errno) => return Err(unusable(errno.into())),
            }
            if still_at(&file, &self.path) {
                Holder::of_this_process().write(&mut file).map_err(unusable)?;
                return Ok(file);
            }
            // The file was replaced between opening and locking; what we locked is nobody's lock any more.
        }
    }
}

impl Leadership for FileLock {
    fn acquire(&self) -> BoxFuture<'_, Result<Held, LeaseError>> {
        async move {
            let deadline = tokio::time::Instant::now() + MOMENT;
            loop {
                match self.lock() {
                    Ok(file) => {
                        let (standing, tenure) = Tenure::new(Standing::ForGood);
                        // The tenure is over before the lock is.
                        let place = place(&file);
                        return Ok(Held::new(tenure, (standing, Locked(file)), ready(()).boxed()).at(place));
                    }
                    Err(LeaseError::Taken { .. }) if tokio::time::Instant::now() < deadline => {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        .boxed()
    }
}

/// A child that is just being started may hold a copy of the file for an instant after its parent was killed.
const MOMENT: Duration = Duration::from_millis(500);

const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The lock. Let go by name and not by closing the file, of which a child that is just being started holds a copy.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn still_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), std::fs::metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

/// This file, on this host, since it was booted. Its holder keeps it open, so no other file gets its number while the holder
/// lives, whatever becomes of the folder; and on another host the same words cannot stand.
fn place(file: &File) -> Option<String> {
    const BOOT: &str = "/proc/sys/kernel/random/boot_id";
    let boot = std::fs::read_to_string(BOOT).ok()?;
    let file = file.metadata().ok()?;
    Some(format!("{} {}:{}", boot.trim(), file.dev(), file.ino()))
}

/// What the holder writes into the file, only for the message that a second process prints.
#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    since: String,
}

impl Holder {
    fn of_this_process() -> Self {
        Self { pid: std::process::id(), since: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string() }
    }

    fn write(&self, file: &mut File) -> std::io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        serde_json::to_writer(&*file, self)?;
        file.write_all(b"\n")
    }

    fn read(file: &mut File) -> String {
        let mut text = String::new();
        let read = file.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str::<Self>(&text).ok());
        match read {
            Some(Self { pid, since }) => format!("process {pid}, started {since}"),
            None => "another process".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use std::sync::Arc;

    use super::*;

    /// NEW-59, NEW-60, F48, F50: what every leadership keeps.
    #[tokio::test]
    async fn keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        super::super::contract::all(async |name: &str| {
            let state = dir.path().join(name);
            std::fs::create_dir_all(&state).unwrap();
            Arc::new(FileLock::in_folder(&state)) as Arc<dyn Leadership>
        })
        .await;
    }

    /// NEW-59, F48: the second one is told who holds the folder and what to do; the end of the first frees it.
    #[tokio::test]
    async fn a_second_holder_is_refused_until_the_first_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let first = FileLock::in_folder(dir.path()).acquire().await.unwrap();
        let refusal = FileLock::in_folder(dir.path()).acquire().await.err().unwrap().to_string();
        let pid = std::process::id();
        assert!(refusal.contains(&format!("process {pid}, started 2")) && refusal.contains("--state"), "{refusal}");
        assert!(first.lost().now_or_never().is_none());
        drop(first);
        FileLock::in_folder(dir.path()).acquire().await.unwrap();
    }

    /// NEW-59: a holder that was killed holds nothing, and no child of it does either.
    #[tokio::test]
    async fn a_killed_holder_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["lease::file::tests::holder_that_is_killed", "--exact", "--ignored", "--nocapture"])
            .env("LEASE_TEST_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let survivor = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("holds ")?.parse().ok());
        let refusal = FileLock::in_folder(dir.path()).acquire().await.err().unwrap().to_string();
        assert!(refusal.contains(&format!("process {}", child.id())), "{refusal}");
        child.kill().unwrap();
        child.wait().unwrap();
        FileLock::in_folder(dir.path()).acquire().await.unwrap();
        let survivor = rustix::process::Pid::from_raw(survivor.unwrap()).unwrap();
        rustix::process::kill_process(survivor, rustix::process::Signal::KILL).unwrap();
    }

    /// Not a test of its own: the child of [`a_killed_holder_holds_nothing`].
    #[tokio::test]
    #[ignore = "started by another test"]
    async fn holder_that_is_killed() {
        let Some(dir) = std::env::var_os("LEASE_TEST_DIR") else { return };
        let _held = FileLock::in_folder(Path::new(&dir)).acquire().await.unwrap();
        let mut survivor = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        writeln!(std::io::stdout(), "holds {}", survivor.id()).unwrap();
        survivor.wait().unwrap();
    }

    /// NEW-59, NEW-60: one lock after the other is the same place; another folder's, and that of a lock file which was made
    /// anew while its holder lived, is another one.
    #[tokio::test]
    async fn a_lock_is_a_place() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let locked = async |folder: &Path| FileLock::in_folder(folder).acquire().await.unwrap();
        let first = locked(dir.path()).await;
        let here = first.place().unwrap().to_owned();
        assert_ne!(locked(other.path()).await.place(), Some(here.as_str()));
        drop(first);
        let again = locked(dir.path()).await;
        assert_eq!(again.place(), Some(here.as_str()));
        // Its holder lives; the folder's number may be the same.
        std::fs::remove_file(dir.path().join("lock")).unwrap();
        assert_ne!(locked(dir.path()).await.place(), Some(here.as_str()));
        assert_eq!(again.tenure().over(), None);
    }

    /// A lock file that was taken away and made anew is not the lock.
    #[tokio::test]
    async fn the_lock_is_the_file_at_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = File::create(&path).unwrap();
        assert!(still_at(&file, &path));
        std::fs::remove_file(&path).unwrap();
        assert!(!still_at(&file, &path));
        let _other = File::create(&path).unwrap();
        assert!(!still_at(&file, &path));
    }

    /// The message names the folder's problem.
    #[tokio::test]
    async fn a_missing_folder_is_said() {
        let refusal = FileLock::in_folder(Path::new("/nowhere/at/all")).acquire().await.err().unwrap().to_string();
        assert!(refusal.contains("/nowhere/at/all/lock: No such file"), "{refusal}");
    }
}
