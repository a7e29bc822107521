//! A copy of the sources in which something can be broken: the checkout itself is never touched.

use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::child::{Finished, run};
use crate::coverage::scan::Address;
use crate::say::Step;
use crate::sources::tracked;

/// How many lines at the end of a program's output explain a failure: the words of one test and the summary fit.
const LAST_WORDS: usize = 40;

/// A cold build of everything on a slow machine fits.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// The copy, and its own build folder beside it: two checkouts that share one overwrite each other's programs.
pub(super) struct Copy {
    sources: PathBuf,
    build: PathBuf,
}

impl Copy {
    /// Brings the copy up to date. What did not change keeps its time, so that it is not built again.
    pub(super) fn refresh(root: &Path, folder: &Path) -> anyhow::Result<Self> {
        let copy = Self { sources: folder.join("sources"), build: folder.join("build") };
        std::fs::create_dir_all(&copy.sources).with_context(|| format!("make {}", copy.sources.display()))?;
        // A repository of its own, so that git takes no part of a path for the checkout's.
        git(&copy.sources, &["init", "--quiet"])?;
        let wanted = tracked(root, "*")?;
        for file in tracked(&copy.sources, "*")?.iter().filter(|file| !wanted.contains(file)) {
            std::fs::remove_file(copy.sources.join(file)).with_context(|| format!("remove {}", file.display()))?;
        }
        for file in &wanted {
            let (from, to) = (root.join(file), copy.sources.join(file));
            let text = std::fs::read(&from).with_context(|| format!("read {}", from.display()))?;
            if std::fs::read(&to).is_ok_and(|there| there == text) {
                continue;
            }
            std::fs::create_dir_all(to.parent().unwrap_or(&copy.sources))?;
            std::fs::copy(&from, &to).with_context(|| format!("write {}", to.display()))?;
        }
        Ok(copy)
    }

    /// Puts the mutation in.
    pub(super) fn break_it(&self, patch: &Path) -> anyhow::Result<()> {
        git(&self.sources, &["apply", "--whitespace=nowarn", &patch.display().to_string()])
    }

    /// Takes it out.
    pub(super) fn mend(&self, patch: &Path) -> anyhow::Result<()> {
        git(&self.sources, &["apply", "--whitespace=nowarn", "--reverse", &patch.display().to_string()])
    }

    /// Builds the program of these tests, so that a mutation that does not compile is no catch.
    pub(super) async fn build(&self, tests: &[&Address], step: &mut Step) -> anyhow::Result<()> {
        let finished = run(self.cargo(tests, &["--no-run"]), LIMIT, step).await?;
        ensure!(finished.status.success(), "it does not compile:\n{}", finished.tail(LAST_WORDS));
        Ok(())
    }

    /// Runs tests of one program.
    pub(super) async fn run(&self, tests: &[&Address], step: &mut Step) -> anyhow::Result<Ran> {
        let mut words = vec!["--", "--exact", "--include-ignored"];
        words.extend(tests.iter().map(|test| test.name.as_str()));
        Ok(Ran(run(self.cargo(tests, &words), LIMIT, step).await?))
    }

    fn cargo(&self, tests: &[&Address], more: &[&str]) -> Command {
        let mut command = Command::new(crate::test::cargo());
        command.current_dir(&self.sources).env("CARGO_TARGET_DIR", &self.build).args(["test", "--no-fail-fast"]);
        if let Some(test) = tests.first() {
            command.args(["--package", &test.package]);
            let has_library = self.sources.join("crates").join(&test.package).join("src/lib.rs").exists();
            match test.target.as_str() {
                // A package that is a program alone: Cargo refuses to look for a library there.
                "lib" if !has_library => command.arg("--bins"),
                "lib" => command.args(["--lib", "--bins"]),
                target => command.args(["--test", target]),
            };
        }
        command.args(more);
        command
    }
}

/// A run of one test program.
pub(super) struct Ran(Finished);

impl Ran {
    /// A test that ended without a word, or is not there, has not passed.
    pub(super) fn passed(&self, test: &Address) -> bool {
        self.0.lines().any(|line| line == format!("test {} ... ok", test.name))
    }

    pub(super) fn last_words(&self) -> String {
        self.0.tail(LAST_WORDS)
    }
}

fn git(folder: &Path, words: &[&str]) -> anyhow::Result<()> {
    let output = Program::new("git").args(words).current_dir(folder).output().context("start git")?;
    ensure!(output.status.success(), "git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
