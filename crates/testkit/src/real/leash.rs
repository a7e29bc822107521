//! Ties what we started to our own life: a small shell holds the read end of a pipe whose write end only we have. When
//! we are gone, in whatever way, it reads the end of the pipe, kills what is tied and removes its folder.
//!
//! A destructor alone does not do: statics are never dropped, and nothing is after a `kill -9`.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::Error;

/// `$1`: a process to kill, or 0. `$2`: every process that names this path in its arguments or environment is killed,
/// unless it is empty. `$3`: a folder to remove, unless it is empty.
const SCRIPT: &str = r#"
read -r _
[ "$1" = 0 ] || kill -9 "$1"
if [ -n "$2" ]; then
  for p in /proc/[0-9]*; do
    [ "${p#/proc/}" = $$ ] || ! grep -qsF -- "$2" "$p/cmdline" "$p/environ" || kill -9 "${p#/proc/}"
  done
fi
[ -z "$3" ] || { sleep 0.3; rm -rf -- "$3"; }
"#;

/// Holds the tie; dropping it unties.
pub(crate) struct Leash(Option<Child>);

impl Leash {
    /// Ties a process, everything that names `path`, and a folder to remove to the life of this process.
    pub(crate) fn tie(pid: u32, path: Option<&Path>, remove: Option<&Path>) -> Result<Self, Error> {
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "leash", &pid.to_string()])
            .arg(path.unwrap_or(Path::new("")))
            .arg(remove.unwrap_or(Path::new("")))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What ends us may go to our whole process group.
            .process_group(0)
            .spawn()
            .map_err(Error::system("start /bin/sh"))?;
        Ok(Self(Some(child)))
    }

    /// Ends the watcher without harm to what was tied. Do this before the process id is given back by a wait.
    pub(crate) fn untie(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.untie();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    /// What the kernel does to the pipe when its holder dies.
    fn let_go(leash: &mut Leash) {
        let mut watcher = leash.0.take().unwrap();
        drop(watcher.stdin.take());
        assert!(watcher.wait().unwrap().success());
    }

    #[test]
    fn the_end_of_the_holder_ends_what_is_tied() {
        let folder = tempfile::tempdir().unwrap().keep();
        let mut tied = sleeper();
        let marked = Command::new("sleep").arg("60").env("FOLDER", folder.join("state")).spawn();
        let mut marked = marked.unwrap();
        let mut bystander = sleeper();
        let mut leash = Leash::tie(tied.id(), Some(&folder.join("state")), Some(&folder)).unwrap();
        let_go(&mut leash);
        assert!(!tied.wait().unwrap().success());
        assert!(!marked.wait().unwrap().success());
        assert!(!folder.exists());
        assert!(bystander.try_wait().unwrap().is_none());
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }

    #[test]
    fn untied_is_spared() {
        let mut spared = sleeper();
        Leash::tie(spared.id(), None, None).unwrap().untie();
        assert!(spared.try_wait().unwrap().is_none());
        spared.kill().unwrap();
        spared.wait().unwrap();
    }
}
