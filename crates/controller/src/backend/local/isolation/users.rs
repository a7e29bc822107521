//! Which user a job of its own is: the lowest of a range that no executor on the disk has.
//!
//! Nothing is remembered: who owns the folders says it. Only while a folder is being made is its user held in memory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::folder::Folder;

/// Uids, from the first to the last, that nobody else on this host has.
pub type UserRange = RangeInclusive<u32>;

/// The users of one backend.
#[derive(Clone)]
pub(in super::super) struct Users {
    range: UserRange,
    taken: Arc<Mutex<BTreeSet<u32>>>,
}

/// A user whose folder is being made.
pub(in super::super) struct Taken {
    pub(in super::super) uid: u32,
    taken: Arc<Mutex<BTreeSet<u32>>>,
}

impl Users {
    pub(in super::super) fn new(range: UserRange) -> Self {
        Self { range, taken: Arc::default() }
    }

    /// Takes one for a new folder among these. Keep it until the folder is there.
    ///
    /// # Errors
    /// The folders cannot be read, or every user has an executor.
    pub(in super::super) fn take(&self, executors: &Path) -> io::Result<Taken> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = taken.clone();
        for entry in fs::read_dir(executors)? {
            used.extend(owner(&Folder::new(entry?.path())));
        }
        let free = self.range.clone().find(|uid| !used.contains(uid));
        let uid = free.ok_or_else(|| {
            io::Error::other("LOCAL_USERS: every user of the range has an executor; name a larger range")
        })?;
        taken.insert(uid);
        Ok(Taken { uid, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

/// Who has a uid of the range already, by the texts of `/etc/passwd` and `/etc/subuid`; none: nobody.
pub(super) fn somebody_in(range: &UserRange, accounts: &str, subordinate: &str) -> Option<String> {
    let field = |line: &str, number: usize| line.split(':').nth(number).and_then(|text| text.parse::<u32>().ok());
    let account = |line: &&str| field(line, 2).is_some_and(|uid| range.contains(&uid));
    let lent = |line: &&str| {
        let (first, count) = (field(line, 1), field(line, 2));
        let last = first.zip(count).map(|(first, count)| first.saturating_add(count.saturating_sub(1)));
        first.zip(last).is_some_and(|(first, last)| first <= *range.end() && last >= *range.start())
    };
    let found = accounts.lines().find(account).or_else(|| subordinate.lines().find(lent))?;
    found.split(':').next().map(str::to_owned)
}

/// Whose executor it is; none when the folder has gone meanwhile.
pub(in super::super) fn owner(folder: &Folder) -> Option<u32> {
    fs::symlink_metadata(folder.work()).ok().map(|work| work.uid())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// NEW-171: an account, or uids that were lent to one for containers.
    #[test]
    fn users_of_the_host_are_not_given_to_jobs() {
        let found = |accounts, lent| somebody_in(&(2000..=2009), accounts, lent);
        assert_eq!(found("root:x:0:0\nann:x:2009:5\n", ""), Some("ann".to_owned()));
        assert_eq!(found("", "bob:1990:10\ncat:1990:11\n"), Some("cat".to_owned()));
        assert_eq!(found("ann:x:2010:5\n", "bob:2010:100\nbob:1000:1000\n"), None);
    }

    /// NEW-171: no two executors have one user, those that are just being made included; one that is gone gives its
    /// user back.
    #[test]
    fn every_executor_has_a_user_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("one/work");
        fs::create_dir_all(&work).unwrap();
        let first = fs::metadata(&work).unwrap().uid();
        let users = Users::new(first..=first + 2);
        let (second, third) = (users.take(dir.path()).unwrap(), users.take(dir.path()).unwrap());
        assert_eq!((second.uid, third.uid), (first + 1, first + 2));
        assert!(users.take(dir.path()).is_err());
        drop(second);
        assert_eq!(users.take(dir.path()).unwrap().uid, first + 1);
        fs::remove_dir_all(dir.path().join("one")).unwrap();
        assert_eq!(users.take(dir.path()).unwrap().uid, first);
    }
}
