//! Why this host does not isolate jobs, and what to do about it. Pure.

/// What the host says about user namespaces: the text of a file below `/proc/sys`, none where it is missing.
pub(super) type Switch<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The explanation for an operator, made of what a stage said.
pub(super) struct Refusal {
    pub(super) cause: String,
    pub(super) remedy: String,
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
pub(super) fn refusal(said: &str, root: bool, switch: &Switch<'_>) -> Refusal {
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
    Refusal {
        cause: format!("jobs cannot be isolated on this host: {}{why}", said.trim().replace('\n', "; ")),
        remedy: format!(
            "{enable}; or run jobs without isolation from each other and from this program's secrets with --isolation none"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
