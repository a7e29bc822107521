//! What isolated jobs see of this host, made of the settings and of who we are.

use std::path::Path;

use crate::account;
use crate::backend::local::isolation::{self, Access, NotIsolated, Shared, Walls};
use crate::config::{IsolationKind, LocalJobs, Runner};

/// Folders without which nothing runs; some accounts have one of them as their home.
const NEEDED: [&str; 9] = ["/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// What keeps the jobs of this host apart, tried; nothing where they are not to be. Nobody makes executors without it.
pub struct Proven(Option<Walls>);

impl Proven {
    /// The walls of every job; none where jobs are not isolated.
    pub(super) fn walls(&self) -> Option<Walls> {
        self.0.clone()
    }
}

/// Tries whether jobs can be isolated here, with the runner in this file. `state` is there.
///
/// # Errors
/// What this host refuses, with its remedy.
pub async fn prove(local: &LocalJobs, runner: &Runner, program: &Path, state: &Path) -> Result<Proven, NotIsolated> {
    match local.isolation {
        IsolationKind::None => return Ok(Proven(None)),
        IsolationKind::Full => {}
    }
    // Jobs see their folder at its own path, where a link on the way may be hidden from them.
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let walls = of(local, runner, program, &state);
    isolation::prove(&walls, &local.users, program).await?;
    Ok(Proven(Some(walls)))
}

/// The walls of every job, which starts the runner in this file.
fn of(local: &LocalJobs, runner: &Runner, program: &Path, state: &Path) -> Walls {
    // HOME may name another folder than the one where an account's keys lie.
    let homes = local.home.clone().into_iter().chain(account::ours().map(|account| account.home));
    let programs = std::env::current_exe().ok().into_iter().chain([program.to_owned()]);
    let readable = programs.chain(runner.config.clone()).map(|path| Shared { path, access: Access::ReadOnly });
    Walls {
        state: state.to_owned(),
        hidden: homes.filter_map(|home| home.canonicalize().ok()).filter(|home| may_be_hidden(home)).collect(),
        // One that is not there may be there when a job starts.
        blank: local.secrets.iter().map(|file| file.canonicalize().unwrap_or_else(|_| file.clone())).collect(),
        shared: readable.chain(local.shared.iter().cloned()).flat_map(with_target).collect(),
        processes: local.processes.get().into(),
    }
}

fn may_be_hidden(home: &Path) -> bool {
    home != Path::new("/") && !NEEDED.iter().any(|needed| home.starts_with(needed))
}

/// A link is of no use to who cannot see where it leads.
fn with_target(shared: Shared) -> Vec<Shared> {
    match shared.path.canonicalize() {
        Ok(target) if target != shared.path => vec![Shared { path: target, ..shared.clone() }, shared],
        _ => vec![shared],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-170: a home is hidden, unless that would hide the system.
    #[test]
    fn a_home_is_hidden_unless_it_is_the_system() {
        for home in ["/root", "/home/ci", "/var/lib/ci", "/srv"] {
            assert!(may_be_hidden(Path::new(home)), "{home}");
        }
        for needed in ["/", "/usr/sbin", "/bin", "/proc", "/dev/shm"] {
            assert!(!may_be_hidden(Path::new(needed)), "{needed}");
        }
    }
}
