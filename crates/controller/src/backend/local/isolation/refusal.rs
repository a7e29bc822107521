//! Why this host does not isolate jobs, and what to do about it. Pure.

use std::path::Path;

/// What the host says about user namespaces: the text of a file below `/proc/sys`, none where it is missing.
pub(super) type Switch<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Why jobs cannot be isolated on this host, for an operator.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct NotIsolated {
    /// What the host refuses.
    pub cause: String,
    /// What to do about it.
    pub remedy: String,
}

/// Switches that forbid what an ordinary user needs: the file, the forbidding value, what to do.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("user/max_user_namespaces", "0", "set user.max_user_namespaces to 10000 (sysctl)"),
    ("kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone to 1 (sysctl)"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "set kernel.apparmor_restrict_unprivileged_userns to 0 (sysctl), or give this program an AppArmor profile with `userns`",
    ),
];

/// `said` is the word of the stage that failed.
pub(super) fn refusal(said: &str, root: bool, switch: &Switch<'_>) -> NotIsolated {
    let closed = SWITCHES.iter().find(|(file, closed, _)| switch(file).is_some_and(|text| text.trim() == *closed));
    let (why, enable) = match closed.filter(|_| !root) {
        Some((file, closed, enable)) => {
            (format!(" (/proc/sys/{file} is {closed}: this host gives ordinary users no user namespaces)"), *enable)
        }
        None if root => {
            (String::new(), "see that this process may make namespaces and mounts: not in a container without them")
        }
        None => (String::new(), "start it as root, or where user namespaces are allowed"),
    };
    NotIsolated {
        cause: format!("jobs cannot be isolated on this host: {}{why}", said.trim().replace('\n', "; ")),
        remedy: format!(
            "{enable}; or run jobs without isolation from each other and from this program's secrets with --isolation none"
        ),
    }
}

/// The word of a stage that was denied a file, when `folder` on the way to `target` lets nobody else pass: the users of
/// jobs are none of the host's. Sharing the target would not help, because the way to it stays.
pub(super) fn closed_way(said: &str, folder: &Path, target: &Path) -> NotIsolated {
    let (folder, target) = (folder.display(), target.display());
    NotIsolated {
        cause: format!(
            "jobs cannot be isolated on this host: {}: {folder} lets only its owner and group pass, and each job runs as a \
             user of its own",
            said.trim().replace('\n', "; ")
        ),
        remedy: format!(
            "move {target} to where everybody may pass (a program: /usr/local/bin), or open the way with chmod o+x {folder}"
        ),
    }
}

/// The first folder on the way to `target` that others may not pass, by its mode. What lies in a `covered` folder is
/// reached by a way that we make.
pub(super) fn first_closed<'a>(
    target: &'a Path,
    covered: &[&Path],
    mode: &dyn Fn(&Path) -> Option<u32>,
) -> Option<&'a Path> {
    const OTHERS_PASS: u32 = 0o001;
    let mut way: Vec<&Path> = target.ancestors().skip(1).collect();
    way.reverse();
    let open = |folder: &Path| covered.iter().any(|covered| folder.starts_with(covered));
    way.into_iter().find(|folder| !open(folder) && mode(folder).is_some_and(|mode| mode & OTHERS_PASS == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-171, NEW-172: a closed folder is named, and what helps; a hidden one is no obstacle.
    #[test]
    fn a_closed_folder_on_the_way() {
        let mode = |folder: &Path| Some(if folder.ends_with("closed") { 0o40_700 } else { 0o40_755 });
        let closed = |target, covered: &[&'static str]| {
            let covered: Vec<&Path> = covered.iter().map(Path::new).collect();
            first_closed(Path::new(target), &covered, &mode)
        };
        assert_eq!(closed("/opt/closed/in/runner", &[]), Some(Path::new("/opt/closed")));
        assert_eq!(closed("/opt/open/runner", &[]), None);
        assert_eq!(closed("/opt/closed/in/runner", &["/opt/closed"]), None);
        assert_eq!(closed("/opt/closed", &[]), None);
        let refusal = closed_way("start /o/r: Permission denied\n", "/o".as_ref(), "/o/r".as_ref());
        assert!(refusal.cause.contains("denied: /o lets only its owner"), "{}", refusal.cause);
        assert!(refusal.remedy.starts_with("move /o/r ") && refusal.remedy.ends_with("chmod o+x /o"));
    }

    /// NEW-172: the reason and both remedies, whatever the host forbids.
    #[test]
    fn the_reason_and_both_remedies() {
        for (file, value) in [
            ("user/max_user_namespaces", "0"),
            ("kernel/unprivileged_userns_clone", "0"),
            ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        ] {
            let host = |asked: &str| (asked == file).then(|| format!("{value}\n"));
            let refusal = refusal("isolation: new namespaces: No space left\n", false, &host);
            assert!(refusal.cause.contains("No space left (/proc/sys/"), "{}", refusal.cause);
            assert!(refusal.cause.contains(file), "{}", refusal.cause);
            assert!(refusal.remedy.contains("sysctl") && refusal.remedy.contains("--isolation none"));
        }
        let nothing = |_: &str| None;
        for root in [true, false] {
            let refusal = refusal("isolation: mount /proc: Operation not permitted", root, &nothing);
            assert!(refusal.cause.ends_with("mount /proc: Operation not permitted"), "{}", refusal.cause);
            assert!(refusal.remedy.contains("--isolation none"));
        }
    }
}
