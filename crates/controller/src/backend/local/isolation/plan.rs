//! What a job sees of the host, as a list of mounts. Pure: nothing here looks at a file.
//!
//! The list is ordered so that a folder comes before what lies in it. So a later entry opens again what an earlier one
//! closed, and closes again what an earlier one opened.

use std::path::{Path, PathBuf};

use super::super::folder::Folder;
use super::{Access, Walls};

/// One mount in the job's own mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where.
    pub(super) at: PathBuf,
    /// What stands there from then on.
    pub(super) what: What,
}

/// See [`Mount`]. The order is that of two mounts at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// An empty folder in which nothing can be made.
    Nothing,
    /// An empty file in place of one that is there.
    Blank,
    /// An empty folder in memory.
    Memory,
    /// The processes of the PID namespace.
    Processes,
    /// Terminals that nobody else has.
    Terminals,
    /// A part of the host.
    Host {
        /// Its path there.
        from: PathBuf,
        /// What may be done in it.
        access: Access,
    },
}

/// Folders that programs of one user or of all share, and which can give a job away or let it out.
const MEETING_PLACES: [&str; 2] = ["/run/user", "/dev/mqueue"];

/// Everything else of the host stays in sight and read-only.
pub(super) fn plan(walls: &Walls, folder: &Folder) -> Vec<Mount> {
    let mount = |at: &Path, what| Mount { at: at.to_owned(), what };
    let host = |from: &Path, access| What::Host { from: from.to_owned(), access };
    let own = |path: PathBuf, access| mount(&path, host(&path, access));
    let hidden = walls.hidden.iter().map(PathBuf::as_path).chain([walls.state.as_path()]);
    let hidden = hidden.chain(MEETING_PLACES.iter().map(Path::new)).map(|at| mount(at, What::Nothing));
    let blank = walls.blank.iter().map(|at| mount(at, What::Blank));
    let shared = walls.shared.iter().map(|shared| own(shared.path.clone(), shared.access));
    // The folder of the socket and not the socket: a restarted controller puts a new one there.
    let writable = [folder.own(), folder.work()].map(|path| own(path, Access::Writable));
    let executor = writable.into_iter().chain([own(folder.socket_folder(), Access::ReadOnly)]);
    // On the disk and not in memory, and gone with the executor.
    let temporary = ["/tmp", "/var/tmp"].map(|at| mount(Path::new(at), host(&folder.tmp(), Access::Writable)));
    let accounts = mount(Path::new("/etc/passwd"), host(&folder.accounts(), Access::ReadOnly));
    let kernel = [("/proc", What::Processes), ("/dev/pts", What::Terminals), ("/dev/shm", What::Memory)];
    let kernel = kernel.map(|(at, what)| mount(Path::new(at), what));
    let all = hidden.chain(blank).chain(shared).chain(executor).chain(temporary).chain([accounts]).chain(kernel);
    let mut all: Vec<Mount> = all.collect();
    // Paths compare by component, so that what lies in a folder comes behind it; the sort keeps the order above among
    // mounts at one place, where the last one is what is seen.
    all.sort_by(|a, b| a.at.cmp(&b.at));
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::local::isolation::Shared;

    fn walls(state: &str, hidden: &[&str], shared: &[(&str, Access)]) -> Walls {
        Walls {
            state: state.into(),
            hidden: hidden.iter().map(PathBuf::from).collect(),
            blank: vec!["/etc/gdr/token".into()],
            shared: shared.iter().map(|&(path, access)| Shared { path: path.into(), access }).collect(),
            processes: 100,
        }
    }

    /// What the last mount at or above a path makes of it; none: the host's, read-only.
    fn seen(walls: &Walls, path: &str) -> Option<What> {
        let folder = Folder::new(walls.state.join("executors/one"));
        let mut over = plan(walls, &folder).into_iter().filter(|mount| Path::new(path).starts_with(&mount.at));
        over.next_back().map(|mount| mount.what)
    }

    #[track_caller]
    fn shows(walls: &Walls, path: &str, from: &str, access: Access) {
        assert_eq!(seen(walls, path), Some(What::Host { from: from.into(), access }), "{path}");
    }

    /// NEW-170: of the state folder a job sees its own work and its socket, wherever the folder lies.
    #[test]
    fn the_state_folder_is_closed_but_for_the_own_part() {
        for (state, home) in [
            ("/var/lib/gdr", "/root"),
            ("/home/ci/.local/state/gdr", "/home/ci"),
            ("/home/ci", "/home/ci"),
            ("/var/tmp/x/gdr", "/home/ci"),
            ("/tmp/gdr", "/tmp"),
        ] {
            let walls = walls(state, &[home], &[]);
            for closed in ["registration.json", "keys/ca.json", "queue.db", "executors", "executors/two/api/id"] {
                assert_eq!(seen(&walls, &format!("{state}/{closed}")), Some(What::Nothing), "{state}/{closed}");
            }
            assert_eq!(seen(&walls, &format!("{state}/executors/one/launch.json")), Some(What::Nothing));
            let own = |part: &str| format!("{state}/executors/one/{part}");
            shows(&walls, &own("work/a/b"), &own("work"), Access::Writable);
            shows(&walls, &own("own/capability"), &own("own"), Access::Writable);
            shows(&walls, &own("api/id"), &own("api"), Access::ReadOnly);
        }
    }

    /// NEW-170: home and secrets are closed, the rest of the host is left as it is; what is shared opens a closed folder,
    /// and does not open the state folder in it.
    #[test]
    fn what_is_shared_is_open_and_no_more() {
        let walls = walls(
            "/home/ci/app/state",
            &["/home/ci"],
            &[("/home/ci/app", Access::Writable), ("/home/ci/bin/runner", Access::ReadOnly)],
        );
        assert_eq!(seen(&walls, "/home/ci/.ssh/id"), Some(What::Nothing));
        assert_eq!(seen(&walls, "/run/user/1000/bus"), Some(What::Nothing));
        assert_eq!(seen(&walls, "/usr/bin/git"), None);
        assert_eq!(seen(&walls, "/etc/gdr/token"), Some(What::Blank));
        shows(&walls, "/home/ci/app/cache", "/home/ci/app", Access::Writable);
        shows(&walls, "/home/ci/bin/runner", "/home/ci/bin/runner", Access::ReadOnly);
        assert_eq!(seen(&walls, "/home/ci/app/state/queue.db"), Some(What::Nothing));
    }

    /// NEW-170: places that all users write to are the job's own, and go with it.
    #[test]
    fn temporary_folders_are_the_jobs_own() {
        let walls = walls("/var/lib/gdr", &["/root"], &[]);
        for shared in ["/tmp/x", "/var/tmp/x"] {
            shows(&walls, shared, "/var/lib/gdr/executors/one/work/tmp", Access::Writable);
        }
        assert_eq!(seen(&walls, "/dev/shm/x"), Some(What::Memory));
        assert_eq!(seen(&walls, "/proc/1"), Some(What::Processes));
        assert_eq!(seen(&walls, "/dev/pts/1"), Some(What::Terminals));
        assert_eq!(seen(&walls, "/dev/null"), None);
    }
}
