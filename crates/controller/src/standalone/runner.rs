//! Finds the official Gitea runner and asks it what it is: its version, and whether it can do one job and end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{Access, access};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::error::StartError;
use crate::config::Runner;
use crate::gitea::OnCancel;

/// Names the official runner goes by.
const NAMES: [&str; 2] = ["gitea-runner", "act_runner"];

/// A runner that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its file; absolute.
    pub path: PathBuf,
    /// Its version, without `v`; `dev` when it was built without one, as `go install` does.
    pub version: String,
}

impl Found {
    /// What it does when its job is cancelled: from 2.0.0 on it runs what runs after a cancel and reports the end (Gitea
    /// contract §8). One without a version is taken for an older one.
    #[must_use]
    pub fn on_cancel(&self) -> OnCancel {
        let major = self.version.split('.').next().and_then(|major| major.parse().ok());
        major.map_or(OnCancel::Stops, OnCancel::of_major)
    }
}

/// The absolute path of the runner that the settings name, else of one by the known names in PATH. It is an executable
/// file; whether it is a runner is for [`ask`] to say.
///
/// # Errors
/// [`StartError::RunnerMissing`] or [`StartError::RunnerUnusable`].
pub fn locate(settings: &Runner) -> Result<PathBuf, StartError> {
    let path = match settings.binary.as_deref() {
        // Jobs start it from another folder than ours. Without a folder of our own it is looked for as it is written.
        Some(path) if path.contains('/') => std::path::absolute(path).unwrap_or_else(|_| path.into()),
        Some(name) => in_path(&[name], settings.path())?,
        None => in_path(&NAMES, settings.path())?,
    };
    match executable(&path) {
        Ok(()) => Ok(path),
        Err(cause) => Err(StartError::RunnerUnusable { path, cause }),
    }
}

/// Asks the program in this file what it is: it must answer `--version` within `patience`, and know `daemon --once`
/// (EXE-5).
///
/// # Errors
/// [`StartError::RunnerUnusable`] or [`StartError::RunnerTooOld`].
pub async fn ask(path: PathBuf, patience: Duration) -> Result<Found, StartError> {
    let unusable = |cause: String| StartError::RunnerUnusable { path: path.clone(), cause };
    let (version, help) =
        tokio::join!(call(&path, &["--version"], patience), call(&path, &["daemon", "--help"], patience));
    let version = version.and_then(|answer| answer.version()).map_err(unusable)?;
    if !help.map_err(unusable)?.text.contains("--once") {
        return Err(StartError::RunnerTooOld { path, version });
    }
    Ok(Found { path, version })
}

/// The first executable file of one of these names; without one, a file that is not executable, so that it is named.
fn in_path(names: &[&str], search: &str) -> Result<PathBuf, StartError> {
    let folders: Vec<_> = search.split(':').filter(|folder| folder.starts_with('/')).collect();
    let candidates = names.iter().flat_map(|name| folders.iter().map(move |folder| Path::new(folder).join(name)));
    let files: Vec<_> = candidates.filter(|path| path.is_file()).collect();
    match files.iter().find(|path| executable(path).is_ok()).or(files.first()) {
        Some(path) => Ok(path.clone()),
        None => Err(StartError::RunnerMissing { looked: format!("no {} in PATH", names.join(" or ")) }),
    }
}

fn executable(path: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(path).map_err(|e| crate::config::secret::plain(&e))?;
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    access(path, Access::EXEC_OK).map_err(|_| "it is not executable for this user".into())
}

/// What a runner said, and how it ended.
struct Answer {
    text: String,
    status: std::process::ExitStatus,
}

impl Answer {
    fn version(&self) -> Result<String, String> {
        match parse(&self.text) {
            Some(version) if self.status.success() => Ok(version),
            Some(_) => Err(format!("--version ended with {}", self.status)),
            None => Err(format!("it does not answer --version with a version ({})", self.status)),
        }
    }
}

async fn call(path: &Path, arguments: &[&str], patience: Duration) -> Result<Answer, String> {
    let mut command = Command::new(path);
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A group of its own, so that whatever it starts ends with it.
    let mut child = command.process_group(0).spawn().map_err(|e| crate::config::secret::plain(&e))?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    let stdout = child.stdout.take();
    let answered = tokio::time::timeout(patience, async {
        let mut text = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(4096).read_to_end(&mut text).await.map_err(|e| e.to_string())?;
        }
        let status = child.wait().await.map_err(|e| e.to_string())?;
        Ok::<_, String>(Answer { text: String::from_utf8_lossy(&text).into_owned(), status })
    })
    .await;
    let Ok(answered) = answered else {
        if let Some(group) = group {
            // It may have ended by itself in this moment.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        return Err(format!("it did not answer {} within {} s", arguments.join(" "), patience.as_secs_f32().ceil()));
    };
    answered
}

/// The version in `gitea-runner version v1.0.8`.
fn parse(text: &str) -> Option<String> {
    if text.trim_end().ends_with(" version dev") {
        return Some("dev".to_owned());
    }
    let version = |word: &&str| {
        let mut parts = word.split('.');
        let number = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        number(parts.next()) && number(parts.next()) && parts.next().is_some()
    };
    let words = text.split_whitespace().map(|word| word.strip_prefix('v').unwrap_or(word));
    words.filter(|w| w.len() <= 64 && w.as_bytes().is_ascii()).find(version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn settings(binary: Option<&Path>, path: &str) -> Runner {
        let binary = binary.map(|path| path.display().to_string());
        Runner { binary, config: None, environment: [("PATH".to_owned(), path.to_owned())].into() }
    }

    #[test]
    fn versions() {
        assert_eq!(parse("gitea-runner version v1.0.8\n").as_deref(), Some("1.0.8"));
        assert_eq!(parse("act_runner version v0.2.11-dev").as_deref(), Some("0.2.11-dev"));
        assert_eq!(parse("gitea-runner version dev\n").as_deref(), Some("dev"));
        assert_eq!(parse("hello 1.0"), None);
        assert_eq!(parse(""), None);
    }

    /// NEW-25: `cancelling` is for runners that can, and for none of which it is not known.
    #[test]
    fn who_reports_after_a_cancel() {
        let of = |version: &str| Found { path: PathBuf::new(), version: version.to_owned() }.on_cancel();
        for version in ["1.0.8", "1.99.0", "0.2.11-dev", "dev", ""] {
            assert_eq!(of(version), OnCancel::Stops, "{version}");
        }
        for version in ["2.0.0", "2.0.0-rc1", "3.3.0", "10.0.1"] {
            assert_eq!(of(version), OnCancel::Reports, "{version}");
        }
    }

    /// A file that cannot be executed does not hide one that can, whatever its name.
    #[tokio::test]
    async fn the_first_executable_wins() {
        let dir = tempfile::tempdir().unwrap();
        let runner = dir.path().join("act_runner");
        std::fs::write(dir.path().join("gitea-runner"), "").unwrap();
        std::fs::write(&runner, "#!/bin/sh\necho --once; echo act_runner version v0.2.11\n").unwrap();
        std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755)).unwrap();
        let search = format!("relative:{}", dir.path().display());
        let found = ask(locate(&settings(None, &search)).unwrap(), Duration::from_secs(10)).await.unwrap();
        assert_eq!(found, Found { path: runner, version: "0.2.11".to_owned() });
    }

    /// A runner that hangs is ended with all it started.
    #[tokio::test]
    async fn nothing_of_a_hanging_runner_stays() {
        let dir = tempfile::tempdir().unwrap();
        let runner = dir.path().join("gitea-runner");
        std::fs::write(&runner, "#!/bin/sh\nsleep 600 &\necho $! > \"$0.pid\"\nwait\n").unwrap();
        std::fs::set_permissions(&runner, std::fs::Permissions::from_mode(0o755)).unwrap();
        let located = locate(&settings(Some(&runner), "")).unwrap();
        let error = ask(located, Duration::from_secs(1)).await.unwrap_err();
        assert!(error.to_string().ends_with("it did not answer --version within 1 s"), "{error}");
        let child = std::fs::read_to_string(dir.path().join("gitea-runner.pid")).unwrap();
        let state = PathBuf::from(format!("/proc/{}/stat", child.trim()));
        let runs = || std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z "));
        let gone = async {
            while runs() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap();
    }
}
