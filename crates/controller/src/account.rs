//! Who we are on this host: what `/etc/passwd` says of the user that this program runs as, and the host's name.

use std::path::PathBuf;

/// An account of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its home, which the environment may name otherwise.
    pub home: PathBuf,
}

/// Our own; none where the host has no entry for our uid, as in many containers.
#[must_use]
pub fn ours() -> Option<Account> {
    in_table(&std::fs::read_to_string("/etc/passwd").ok()?, rustix::process::geteuid().as_raw())
}

/// The name of this host, for people; empty where the kernel tells none.
#[must_use]
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn in_table(table: &str, uid: u32) -> Option<Account> {
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, id, _, _, home, ..] = fields[..] else { return None };
        (id.parse() == Ok(uid)).then(|| Account { name: name.to_owned(), home: home.into() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_of_a_uid() {
        let table = "broken:x:7\nroot:x:0:0:,,:/root:/bin/sh\nci:x:7:8::/srv/ci:/bin/sh\nother:x:7:7::/:/bin/sh\n";
        let account = |name: &str, home: &str| Some(Account { name: name.to_owned(), home: home.into() });
        assert_eq!(in_table(table, 7), account("ci", "/srv/ci"));
        assert_eq!(in_table(table, 0), account("root", "/root"));
        assert_eq!(in_table(table, 8), None);
    }
}
