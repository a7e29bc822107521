//! Whether this host isolates jobs: tried once at the start, with the very walls that jobs get (NEW-172).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::super::folder::{Folder, LaunchFile};
use super::refusal::refusal;
use super::{Isolation, stage};

/// For a program behind walls to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts each program behind walls, in a folder that is like an executor's. The error has cause and remedy.
///
/// # Errors
/// What this host refuses, or why a program cannot be started there.
pub(in super::super) async fn prove(
    folder: PathBuf,
    isolation: Isolation,
    programs: &[PathBuf],
) -> Result<(), (String, String)> {
    for program in programs {
        let folder = Folder::new(folder.clone());
        let said = version(&folder, &isolation, program).await;
        let removed = folder.remove();
        said.map_err(|said| {
            let root = rustix::process::geteuid().is_root();
            let refusal = refusal(&said, root, &|file| std::fs::read_to_string(Path::new("/proc/sys").join(file)).ok());
            (refusal.cause, refusal.remedy)
        })?;
        if let Err(error) = removed {
            tracing::warn!(%error, "the folder of the trial stays until the next start");
        }
    }
    Ok(())
}

async fn version(folder: &Folder, isolation: &Isolation, program: &Path) -> Result<(), String> {
    let launch = LaunchFile {
        program: Some(program.to_owned()),
        args: vec!["--version".to_owned()],
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        isolation: Some(isolation.clone()),
    };
    folder.create_for_trial(&launch).map_err(|error| format!("{}: {error}", folder.path().display()))?;
    let mut command = tokio::process::Command::from(stage::command(folder));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.map_err(|_| format!("{} did not answer within {PATIENCE:?}", program.display()))?;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let how = format!("{} --version: {}", program.display(), output.status);
    Err(if said.is_empty() { how } else { said })
}
