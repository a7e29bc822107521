//! Whether this host isolates jobs: tried once at the start, with the very walls that jobs get (NEW-172).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::super::folder::{Folder, LaunchFile};
use super::super::removal::remove_tree;
use super::refusal::{NotIsolated, closed_way, first_closed, refusal};
use super::{Isolation, JobUser, UserRange, Walls, somebody_in, stage};
use crate::files;

/// For the runner behind walls to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// Shows that jobs can be isolated here, by doing it with this program and the official runner. A folder like an
/// executor's is made below `walls.state` for it, and removed.
///
/// # Errors
/// What this host refuses, or why a program cannot be started there.
pub async fn prove(walls: &Walls, users: &UserRange, runner: &Path) -> Result<(), NotIsolated> {
    let isolation = Isolation { walls: walls.clone(), user: JobUser::of_this_process(*users.start()) };
    if let JobUser::Own(_) = isolation.user {
        require_free(users)?;
    }
    let own = std::env::current_exe().map_err(|error| refused(&format!("our own program: {error}")))?;
    let executors = walls.state.join("executors");
    files::new_private_folder(&executors).map_err(|error| refused(&format!("{}: {error}", executors.display())))?;
    // Swept at the next start if we end before it is removed.
    let folder = Folder::new(executors.join(".new-trial"));
    let said = version(&folder, &isolation, &own, runner).await;
    if let Err(error) = remove_tree(folder.path()) {
        tracing::warn!(%error, "the folder of the trial stays until the next start");
    }
    said.map_err(|said| match in_the_way(&isolation, [&own, runner]).filter(|_| said.contains("Permission denied")) {
        Some((closed, target)) => closed_way(&said, closed, target),
        None => refused(&said),
    })
}

/// The folder that keeps a user of a job's own from a program or from the state folder, and from which of them.
fn in_the_way<'a>(isolation: &'a Isolation, [own, runner]: [&'a Path; 2]) -> Option<(&'a Path, &'a Path)> {
    let JobUser::Own(_) = isolation.user else { return None };
    let Walls { state, hidden, .. } = &isolation.walls;
    let covered: Vec<&Path> = hidden.iter().chain([state]).map(PathBuf::as_path).collect();
    let mode = |folder: &Path| Some(std::fs::metadata(folder).ok()?.permissions().mode());
    let mut targets = [own, runner, state.as_path()].into_iter();
    targets.find_map(|target| Some((first_closed(target, &covered, &mode)?, target)))
}

fn refused(said: &str) -> NotIsolated {
    let root = rustix::process::geteuid().is_root();
    refusal(said, root, &|file| std::fs::read_to_string(Path::new("/proc/sys").join(file)).ok())
}

fn require_free(users: &UserRange) -> Result<(), NotIsolated> {
    let text = |file| std::fs::read_to_string(file).unwrap_or_default();
    match somebody_in(users, &text("/etc/passwd"), &text("/etc/subuid")) {
        None => Ok(()),
        Some(name) => Err(NotIsolated {
            cause: format!("LOCAL_USERS: a uid from {} to {} is {name}'s", users.start(), users.end()),
            remedy: "name a range that nobody on this host has".to_owned(),
        }),
    }
}

/// Starts our own program behind the walls, which becomes the runner there and says its version.
async fn version(folder: &Folder, isolation: &Isolation, own: &Path, runner: &Path) -> Result<(), String> {
    let launch = LaunchFile {
        program: Some(own.to_owned()),
        args: vec![stage::TRIAL.to_owned(), runner.display().to_string()],
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        isolation: Some(isolation.clone()),
        open_files: None,
    };
    folder.create_for_trial(&launch).map_err(|error| format!("{}: {error}", folder.path().display()))?;
    let mut command = tokio::process::Command::from(stage::command(folder));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.map_err(|_| format!("{} did not answer within {PATIENCE:?}", runner.display()))?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let how = format!("{} --version: {}", runner.display(), output.status);
    Err(if said.is_empty() { how } else { said })
}
