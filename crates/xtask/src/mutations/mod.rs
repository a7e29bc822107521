//! `cargo xtask mutations`: a test that cannot fail shows nothing. Each recorded mutation breaks one rule in a copy of
//! the sources, and the tests that claim to hold the rule must notice.

mod copy;
mod recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;

use crate::coverage::scan::Address;
use crate::rows::{Tally, conclude, table};
use crate::say::{self, Step};
use copy::Copy;
pub(crate) use recorded::Mutation;

/// Break the program in recorded ways and see the tests notice.
///
/// Works on a copy of the sources in `target/mutations`; the checkout is not touched.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these, by the name of their file in `mutations/`; without any: all but those of the real Kubernetes, which need
    /// `GDR_CONTROLLER_IMAGE` and `GDR_EXECUTOR_IMAGE` as well.
    names: Vec<String>,
    /// Only so many of them, drawn by `--seed`.
    #[arg(long, value_name = "COUNT")]
    sample: Option<usize>,
    /// What the draw starts from; without it the current commit, so that each commit draws others.
    #[arg(long)]
    seed: Option<u64>,
    /// Write a row per mutation into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    mutation: String,
    breaks: String,
    seconds: f64,
    caught: bool,
    /// Why it was not.
    complaint: Option<String>,
}

pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let rows = judge(root, &arguments.names, arguments.sample, arguments.seed).await?;
    let word = |row: &Row| if row.caught { "caught" } else { "NOT CAUGHT" }.to_owned();
    let cells = |row: &Row| vec![row.mutation.clone(), word(row), format!("{:.0}", row.seconds), row.breaks.clone()];
    say::result(&table(&["mutation", "", "seconds", "breaks"], &rows.iter().map(cells).collect::<Vec<_>>()));
    rows.iter().filter_map(|row| row.complaint.as_deref()).for_each(say::line);
    conclude(&rows, tally(&rows), arguments.json.as_deref())
}

/// A drawn part, for the checks of every change.
pub(crate) async fn sample(root: &Path, count: usize) -> anyhow::Result<(Tally, Vec<String>)> {
    let rows = judge(root, &[], Some(count), None).await?;
    Ok((tally(&rows), rows.into_iter().filter_map(|row| row.complaint).collect()))
}

fn tally(rows: &[Row]) -> Tally {
    rows.iter().map(|row| Tally::one(row.caught)).sum()
}

async fn judge(root: &Path, names: &[String], sample: Option<usize>, seed: Option<u64>) -> anyhow::Result<Vec<Row>> {
    let mut chosen = Mutation::all(root)?;
    for name in names {
        ensure!(chosen.iter().any(|mutation| mutation.name == *name), "there is no mutations/{name}.patch");
    }
    chosen.retain(|mutation| names.is_empty() || names.contains(&mutation.name));
    if names.is_empty() {
        // Pods in a cluster take minutes, need root, and find their images by a variable.
        chosen.retain(|mutation| !mutation.needs_cluster());
    }
    if let Some(count) = sample {
        let seed = seed.map_or_else(|| of_commit(root), Ok)?;
        say::line(&format!("{count} of {} mutations, --seed {seed}", chosen.len()));
        draw(&mut chosen, count, seed);
    }
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let copy = Copy::refresh(root, &folder.join("mutations"))?;
    let mut rows = Vec::new();
    let unbroken = unbroken(&copy, &chosen).await?;
    for mutation in &chosen {
        rows.push(try_one(&copy, mutation, &unbroken).await);
    }
    Ok(rows)
}

/// What the tests do as long as nothing is broken: pass, or end with these last words.
type Unbroken = BTreeMap<Address, Result<(), String>>;

/// Runs the tests of these mutations without any. One that fails among the others is tried once more alone: the
/// question here is whether it can pass, and on a busy machine a deadline may hit any. Whether it does pass is judged
/// where all tests run.
async fn unbroken(copy: &Copy, chosen: &[Mutation]) -> anyhow::Result<Unbroken> {
    let mut step = Step::begin("their tests without a mutation");
    let mut unbroken = Unbroken::new();
    for tests in by_target(chosen.iter().flat_map(|mutation| &mutation.caught_by)) {
        copy.build(&tests, &mut step).await.context("without a mutation")?;
        let together = copy.run(&tests, &mut step).await?;
        for test in tests {
            let verdict = if together.passed(test) { Ok(()) } else { alone(copy, test, &mut step).await? };
            unbroken.insert(test.clone(), verdict);
        }
    }
    step.end(&format!("{} pass", unbroken.values().filter(|verdict| verdict.is_ok()).count()));
    Ok(unbroken)
}

async fn alone(copy: &Copy, test: &Address, step: &mut Step) -> anyhow::Result<Result<(), String>> {
    let ran = copy.run(&[test], step).await?;
    Ok(if ran.passed(test) { Ok(()) } else { Err(ran.last_words()) })
}

async fn try_one(copy: &Copy, mutation: &Mutation, unbroken: &Unbroken) -> Row {
    let started = Instant::now();
    let mut step = Step::begin(format!("mutation {}", mutation.name));
    let complaint = noticed(copy, mutation, unbroken, &mut step).await.err();
    step.end(if complaint.is_none() { "caught" } else { "NOT CAUGHT" });
    Row {
        mutation: mutation.name.clone(),
        breaks: mutation.breaks.clone(),
        seconds: started.elapsed().as_secs_f64(),
        caught: complaint.is_none(),
        complaint: complaint.map(|error| format!("{}: {error:#}", mutation.name)),
    }
}

/// The tests pass without the mutation and fail with it.
async fn noticed(copy: &Copy, mutation: &Mutation, unbroken: &Unbroken, step: &mut Step) -> anyhow::Result<()> {
    for test in &mutation.caught_by {
        let words = match unbroken.get(test) {
            Some(Ok(())) => continue,
            Some(Err(words)) => words.as_str(),
            None => "it was not run",
        };
        bail!("{test} does not pass without it, or is not there:\n{words}");
    }
    copy.break_it(&mutation.patch).context("it does not fit the sources any more")?;
    let noticed = fail(copy, mutation, step).await;
    copy.mend(&mutation.patch)?;
    noticed
}

async fn fail(copy: &Copy, mutation: &Mutation, step: &mut Step) -> anyhow::Result<()> {
    for tests in by_target(&mutation.caught_by) {
        copy.build(&tests, step).await?;
        let ran = copy.run(&tests, step).await?;
        let passed: Vec<_> = tests.into_iter().filter(|test| ran.passed(test)).collect();
        ensure!(passed.is_empty(), "{} passes although it is broken", list(&passed));
    }
    Ok(())
}

/// The tests, those of one test program together: they are built and run at once.
fn by_target<'a>(tests: impl IntoIterator<Item = &'a Address>) -> Vec<Vec<&'a Address>> {
    let sorted: BTreeSet<&Address> = tests.into_iter().collect();
    let sorted: Vec<&Address> = sorted.into_iter().collect();
    sorted.chunk_by(|a, b| a.is_beside(b)).map(<[_]>::to_vec).collect()
}

fn list(tests: &[&Address]) -> String {
    tests.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The first digits of the commit.
pub(crate) fn of_commit(root: &Path) -> anyhow::Result<u64> {
    let mut git = std::process::Command::new("git");
    let output = git.args(["rev-parse", "--short=12", "HEAD"]).current_dir(root).output().context("start git")?;
    u64::from_str_radix(String::from_utf8_lossy(&output.stdout).trim(), 16).context("git names no commit; give --seed")
}

/// Keeps `count` of them. The steps of a linear congruential generator (Knuth, MMIX) are random enough for a draw.
pub(crate) fn draw<T>(from: &mut Vec<T>, count: usize, seed: u64) {
    let mut state = seed;
    while from.len() > count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(state >> 33).unwrap_or(0) % from.len();
        from.remove(at);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Its second test fails when it runs for the first time, as one does whose deadline a busy machine missed.
    const TESTS: &str = r#"
        #[test] fn passes() {}
        #[test] fn once_more() { if std::fs::create_dir("been-here").is_ok() { panic!("too late") } }
        #[test] fn never() { panic!("these are its words") }
    "#;

    #[tokio::test]
    async fn a_test_without_a_mutation_has_a_second_try_and_its_failure_explains_itself() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            std::fs::create_dir_all(root.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(file), text).unwrap();
        };
        write("Cargo.toml", "[workspace]\nmembers = [\"crates/small\"]\nresolver = \"3\"\n");
        write("crates/small/Cargo.toml", "[package]\nname = \"small\"\nedition = \"2024\"\n");
        write("crates/small/src/lib.rs", TESTS);
        assert!(std::process::Command::new("git").arg("init").current_dir(&root).output().unwrap().status.success());
        let folder = tempfile::tempdir().unwrap();
        let copy = Copy::refresh(root.path(), folder.path()).unwrap();
        let test = |name: &str| Address::parse(&format!("small lib {name}")).unwrap();
        let mutation = |tests: &[&str]| Mutation {
            name: "m".to_owned(),
            breaks: "it".to_owned(),
            caught_by: tests.iter().map(|name| test(name)).collect(),
            patch: PathBuf::new(),
        };
        let tests = unbroken(&copy, &[mutation(&["passes", "once_more", "never"])]).await.unwrap();
        assert_eq!(tests[&test("passes")], Ok(()));
        assert_eq!(tests[&test("once_more")], Ok(()));
        let complaint = try_one(&copy, &mutation(&["passes", "never"]), &tests).await.complaint.unwrap();
        assert!(complaint.contains("never does not pass") && complaint.contains("these are its words"), "{complaint}");
    }
}
