//! What the runner, and so every step of the job, finds in its environment (NEW-116). Pure.

use std::ffi::{OsStr, OsString};

use domain::launch_env::is_inherited;

/// Made for the job by whoever started the executor.
const MADE: [&str; 2] = ["HOME", "TMPDIR"];

/// Set from the launch environment: the job uses its own identity on purpose (requirements §2.2).
pub(crate) struct Told<'a> {
    /// `SPIFFE_ENDPOINT_SOCKET`.
    pub(crate) workload_socket: &'a str,
    /// `CI_SPIFFE_ID`.
    pub(crate) spiffe_id: &'a str,
    /// `CI_RUNNER_BACKEND`.
    pub(crate) backend: &'a str,
}

/// The whole environment of the runner, out of `own` and what the controller told.
pub(crate) fn of_runner(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    told: &Told<'_>,
) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = own.into_iter().filter(|(name, _)| passes(name)).collect();
    environment.extend(
        [
            ("SPIFFE_ENDPOINT_SOCKET", told.workload_socket),
            ("CI_SPIFFE_ID", told.spiffe_id),
            ("CI_RUNNER_BACKEND", told.backend),
        ]
        .map(|(name, value)| (name.into(), value.into())),
    );
    environment
}

fn passes(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| MADE.contains(&name) || is_inherited(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NEW-116, F82: neither the capability nor anything else of the launch environment, and no proxy settings.
    #[test]
    fn allow_list() {
        let own = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("CI_RUNNER_CAPABILITY", "secret"),
            ("CI_RUNNER_CAPABILITY_FILE", "/x"),
            ("CI_ASSIGNMENT_ID", "gitea-task-1"),
            ("CI_RUNNER_FACADE_URL", "https://f"),
            ("HTTPS_PROXY", "http://p"),
            ("GITEA_RUNNER_CONFIG", "/c"),
            ("LD_PRELOAD", "/x.so"),
            ("SPIFFE_ENDPOINT_SOCKET", "unix:///other"),
        ];
        let told = Told { workload_socket: "unix:///run/w.sock", spiffe_id: "spiffe://td/ci/o/r/j", backend: "pod" };
        let all = of_runner(own.map(|(name, value)| (name.into(), value.into())), &told);
        let expect = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("SPIFFE_ENDPOINT_SOCKET", "unix:///run/w.sock"),
            ("CI_SPIFFE_ID", "spiffe://td/ci/o/r/j"),
            ("CI_RUNNER_BACKEND", "pod"),
        ];
        assert_eq!(all, expect.map(|(name, value)| (OsString::from(name), OsString::from(value))));
    }
}
