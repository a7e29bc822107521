//! The `/etc/passwd` of an isolated job: programs like ssh refuse to run as a user that has no entry, and look for their
//! files in the home that it names. Pure.

use std::path::Path;

/// The accounts of the host, with one for the job, whose home is its working directory. A user of the host who has that
/// uid keeps the name.
pub(in super::super) fn with_job(host: &str, (uid, gid): (u32, u32), home: &Path) -> String {
    let is_job = |line: &&str| line.split(':').nth(2) == Some(uid.to_string().as_str());
    let name = host.lines().find(is_job).and_then(|line| line.split(':').next()).unwrap_or("job");
    let mut text: String = host.lines().filter(|line| !is_job(line)).map(|line| format!("{line}\n")).collect();
    text += &format!("{name}:x:{uid}:{gid}::{}:/bin/sh\n", home.display());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-171: one entry for the job, under the name it has or a new one; everybody else stays.
    #[test]
    fn the_job_has_one_entry() {
        let host = "root:x:0:0::/root:/bin/sh\nci:x:500:500:,,:/home/ci:/bin/zsh\n";
        let job = |uid| with_job(host, (uid, 7), Path::new("/w"));
        assert_eq!(job(500), "root:x:0:0::/root:/bin/sh\nci:x:500:7::/w:/bin/sh\n");
        assert_eq!(job(50), format!("{host}job:x:50:7::/w:/bin/sh\n"));
    }
}
