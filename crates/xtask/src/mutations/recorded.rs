//! The recorded mutations: `mutations/NAME.patch`, a diff with a head of its own.
//!
//! ```text
//! Breaks: NEW-63: the epoch is not compared
//! Caught-by: domain lib lifecycle::tests::a_fenced_runner_is_told_to_stop
//!
//! --- a/crates/domain/src/lifecycle/step.rs
//! +++ b/crates/domain/src/lifecycle/step.rs
//! @@ …
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::coverage::scan::Address;
use crate::sources::tracked;
use crate::test::real_kubernetes;

/// One way to break the program, and the tests that must notice.
#[derive(Debug)]
pub(crate) struct Mutation {
    pub(crate) name: String,
    pub(crate) breaks: String,
    pub(crate) caught_by: Vec<Address>,
    pub(crate) patch: PathBuf,
}

impl Mutation {
    /// Every recorded one, by name.
    pub(crate) fn all(root: &Path) -> anyhow::Result<Vec<Self>> {
        let mut all = Vec::new();
        for file in tracked(root, "mutations/*.patch")? {
            let text = std::fs::read_to_string(root.join(&file)).with_context(|| format!("read {}", file.display()))?;
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            all.push(Self::parse(name, &text, root.join(&file)).with_context(|| file.display().to_string())?);
        }
        Ok(all)
    }

    /// Whether it could still be put into these sources: what is drawn now and then would go stale unseen.
    pub(crate) fn fits(&self, root: &Path) -> anyhow::Result<()> {
        let mut git = Command::new("git");
        let output = git.args(["apply", "--check"]).arg(&self.patch).current_dir(root).output().context("start git")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: it does not fit the sources any more: {}", self.name, said.trim());
        Ok(())
    }

    /// Whether a test of it runs Pods, for which the stage of the real Kubernetes prepares this machine.
    pub(crate) fn needs_cluster(&self) -> bool {
        self.caught_by.iter().any(|test| real_kubernetes::TARGETS.contains(&test.target.as_str()))
    }

    fn parse(name: String, text: &str, patch: PathBuf) -> anyhow::Result<Self> {
        let (mut breaks, mut caught_by) = (String::new(), Vec::new());
        for line in text.lines().take_while(|line| !line.starts_with("--- ") && !line.starts_with("diff ")) {
            if let Some(what) = line.strip_prefix("Breaks: ") {
                what.clone_into(&mut breaks);
            } else if let Some(address) = line.strip_prefix("Caught-by: ") {
                caught_by.push(Address::parse(address)?);
            } else {
                ensure!(
                    line.is_empty(),
                    "the head has lines `Breaks: …` and `Caught-by: PACKAGE TARGET NAME`: {line:?}"
                );
            }
        }
        ensure!(!breaks.is_empty() && !caught_by.is_empty(), "the head says what breaks and which tests notice");
        Ok(Self { name, breaks, caught_by, patch })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_head_says_what_breaks_and_who_notices() {
        let read = |text: &str| Mutation::parse("m".to_owned(), text, PathBuf::new());
        let mutation =
            read("Breaks: NEW-1: it\nCaught-by: a lib b::c\nCaught-by: a e2e d\n\n--- a/x\nnoise\n").unwrap();
        assert_eq!((mutation.breaks.as_str(), mutation.caught_by.len()), ("NEW-1: it", 2));
        assert!(!mutation.needs_cluster());
        let of_pods = read("Breaks: NEW-1: it\nCaught-by: a lib b\nCaught-by: a kubernetes d\n\n--- a/x\n").unwrap();
        assert!(of_pods.needs_cluster());
        assert!(read("Breaks: it\n--- a/x\n").is_err());
        assert!(read("Breaks: it\nCaught-by: a lib b::c\nnoise\n--- a/x\n").is_err());
    }
}
