//! Who holds a TCP port, as far as `/proc` tells: a message that names the process saves a search.

use std::fs;
use std::path::Path;

/// The process that listens on this port, as `name (process id)`; none when it is another user's or cannot be found.
#[must_use]
pub fn of_port(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .find_map(|table| listening(&fs::read_to_string(table).ok()?, port))?;
    let link = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if holds(&process.path(), &link) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {pid})", name.trim()));
        }
    }
    None
}

/// The inode of the listening socket in a table of `/proc/net`.
fn listening(table: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let local = fields.get(1)?.rsplit_once(':')?.1;
        let matches = u16::from_str_radix(local, 16) == Ok(port) && *fields.get(3)? == LISTEN;
        matches.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    })
}

fn holds(process: &Path, link: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == link))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn finds_this_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let who = of_port(listener.local_addr().unwrap().port()).unwrap();
        assert!(who.ends_with(&format!("(process {})", std::process::id())), "{who}");
        assert_eq!(of_port(0), None);
    }
}
