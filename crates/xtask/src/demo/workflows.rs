//! What the demonstration pushes, and what must come out of it.

use std::path::Path;

use testkit::real::{ARTIFACT_ROUND_TRIP, CLONE_OWN_REPOSITORY, insert};

/// What must become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// SUCCESS, and the log says this.
    Success { says: &'static str },
    /// FAILURE, and the log says this.
    Failure { says: &'static str },
    /// FAILURE by us before anything ran, with this reason on the job's page.
    Refused { reason: &'static str },
}

/// One job that must exist after the push.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// The workflow's file.
    pub(super) file: &'static str,
    /// The name shown.
    pub(super) job: &'static str,
    pub(super) expected: Expected,
}

const fn wanted(file: &'static str, job: &'static str, expected: Expected) -> Wanted {
    Wanted { file, job, expected }
}

/// Every job.
pub(super) const WANTED: [Wanted; 11] = [
    wanted("success.yml", "build", Expected::Success { says: "hello from " }),
    wanted("failure.yml", "fails", Expected::Failure { says: "this step fails as 42 times before" }),
    wanted("needs.yml", "produce", Expected::Success { says: "" }),
    wanted("needs.yml", "consume", Expected::Success { says: "" }),
    wanted("matrix.yml", "shard (1)", Expected::Success { says: "part 1 of 3" }),
    wanted("matrix.yml", "shard (2)", Expected::Success { says: "part 2 of 3" }),
    wanted("matrix.yml", "shard (3)", Expected::Success { says: "part 3 of 3" }),
    wanted("identity.yml", "identity", Expected::Success { says: "" }),
    wanted("clone.yml", "clone", Expected::Success { says: "cloned " }),
    wanted("artifact.yml", "artifact", Expected::Success { says: "artifact round trip of " }),
    wanted("refused.yml", "a.b", Expected::Refused { reason: "invalid_job_key" }),
];

const FILES: [(&str, &str); 8] = [
    ("success.yml", include_str!("workflows/success.yml")),
    ("failure.yml", include_str!("workflows/failure.yml")),
    ("needs.yml", include_str!("workflows/needs.yml")),
    ("matrix.yml", include_str!("workflows/matrix.yml")),
    ("identity.yml", include_str!("workflows/identity.yml")),
    ("clone.yml", include_str!("workflows/clone.yml")),
    ("artifact.yml", include_str!("workflows/artifact.yml")),
    ("refused.yml", include_str!("workflows/refused.yml")),
];

/// How many runs the push starts: one per file.
pub(super) const RUNS: usize = FILES.len();

/// What a step writes before the backend it runs on and the identity it sees.
pub(super) const MARK: &str = "demo: ";

/// The files to push, with the program's path inside.
pub(super) fn files(program: &Path) -> Vec<(String, String)> {
    let program = program.display().to_string().replace('\'', r"'\''");
    let identity = format!("id=$('{program}' svid)\necho \"{MARK}backend ${{CI_RUNNER_BACKEND:-?}}, identity $id\"");
    let fill = |text: &str| {
        let pieces =
            [("@IDENTITY@", identity.as_str()), ("@CLONE@", CLONE_OWN_REPOSITORY), ("@ARTIFACT@", ARTIFACT_ROUND_TRIP)];
        pieces.iter().fold(
            text.to_owned(),
            |text, (marker, piece)| {
                if text.contains(marker) { insert(&text, marker, piece) } else { text }
            },
        )
    };
    FILES.iter().map(|(file, text)| (format!(".gitea/workflows/{file}"), fill(text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_fill_in_and_every_file_has_a_wanted_job() {
        let files = files(Path::new("/bin/it's"));
        for (path, text) in &files {
            assert!(!text.contains('@'), "{text}");
            let file = path.rsplit('/').next().unwrap_or_default();
            assert!(WANTED.iter().any(|wanted| wanted.file == file), "{file}");
        }
        assert!(files[0].1.contains(r"id=$('/bin/it'\''s' svid)"), "{}", files[0].1);
    }
}
