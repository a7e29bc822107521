//! `cargo xtask test`: everything a change must pass, in the order in which a person wants to hear of it.

mod count;
mod docs;
mod links;
pub(crate) mod real_kubernetes;
mod second_queue;
mod second_server;
mod stage;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;

use crate::backend_kind::BackendKind;
use crate::provision::{self, Part};
use crate::queue_kind::QueueKind;
use crate::rows::{Tally, conclude, table};
use crate::say;
use crate::sides::Sides;
use stage::{Outcome, Row, cargo_test, command, inline};

/// Check and test.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only a part of it; may be given more than once.
    #[arg(long, visible_alias = "real", value_name = "PART")]
    only: Vec<Only>,
    /// Write a row per stage into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A part of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Every test that needs no real Gitea of its own workflows.
    Unit,
    /// Real workflows on a real Gitea with the official runner.
    E2e,
    /// A real one-node Kubernetes with SPIRE: root on Debian 12.
    Kubernetes,
    /// Format, lints, generated sources, spelling, licences, documents.
    Lint,
    /// Random kills under load, always the same.
    Soak,
    /// A drawn part of the crash matrix.
    CrashMatrix,
    /// A drawn part of the recorded mutations.
    Mutations,
    /// The version before this one and this one, in turns.
    MixedVersions,
}

/// The command.
pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let wanted = |part: Only| arguments.only.is_empty() || arguments.only.contains(&part);
    let tests = wanted(Only::Unit) || wanted(Only::E2e);
    let mut rows = vec![provisioned(wanted(Only::Lint), tests).await];
    // Without the real parts the tests that need them fail with clear words; the rest is still worth a run.
    if wanted(Only::Lint) || tests {
        rows.push(test_programs(root, tests).await);
    }
    // Tests wait for most of their time, everything else computes: they run beside each other. What a stage has to say
    // comes in one piece at its end, and the rows in the order of this list.
    let (computed, unit, e2e) = tokio::join!(
        computed(root, &wanted),
        stage_if(wanted(Only::Unit), || unit(root)),
        stage_if(wanted(Only::E2e), || cargo_test("end-to-end tests", root, test_targets(&[E2E]), E2E_THREADS)),
    );
    rows.extend(computed.into_iter().chain(unit.into_iter().flatten()).chain(e2e));
    rows.extend(stage_if(wanted(Only::Kubernetes), || real_kubernetes::stage(root)).await.into_iter().flatten());
    // What judges by the clock comes when the machine is free again.
    for (stage, sides) in SOAKS {
        rows.extend(stage_if(wanted(Only::Soak), || drawn(stage, crate::soak::short(root, sides))).await);
    }
    for (stage, sides, points) in CRASHES {
        let sampled = || drawn(stage, crate::crash_matrix::sample(root, sides, points));
        rows.extend(stage_if(wanted(Only::CrashMatrix), sampled).await);
    }
    rows.extend(
        stage_if(wanted(Only::MixedVersions), || drawn("mixed versions", crate::mixed_versions::with_the_last(root)))
            .await,
    );
    let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    say::result(&table(&["stage", "seconds", "passed", "failed"], &cells));
    for row in rows.iter().filter(|row| row.tally.failed > 0) {
        say::result(&row.complaint());
    }
    let tally: Tally = rows.iter().map(|row| row.tally).sum();
    conclude(&rows, tally, arguments.json.as_deref())
}

/// The test target with the workflows on a real Gitea.
const E2E: &str = "e2e";

/// The test target that needs the operators' program and little else.
const COMMAND_LINE: &str = "command_line";

/// Tests at a time, on two cores: they wait for processes and servers, more than they compute.
const UNIT_THREADS: u32 = 6;
const E2E_THREADS: u32 = 8;

/// The stages that keep a core busy, one after the other.
async fn computed(root: &Path, wanted: &impl Fn(Only) -> bool) -> Vec<Row> {
    let mut rows = Vec::new();
    if wanted(Only::Lint) {
        lint(root, &mut rows).await;
    }
    if wanted(Only::Unit) {
        rows.push(cargo_test("documentation tests", root, vec!["--doc".to_owned()], UNIT_THREADS).await);
    }
    if wanted(Only::Mutations) {
        rows.push(drawn("mutations", crate::mutations::sample(root, MUTATIONS)).await);
    }
    rows
}

/// A stage that may not be wanted.
async fn stage_if<S: Future>(wanted: bool, stage: impl FnOnce() -> S) -> Option<S::Output> {
    if wanted { Some(stage().await) } else { None }
}

/// All of them, then those of the World that are worth it with the other queue, and those of NATS with another server.
async fn unit(root: &Path) -> [Row; 3] {
    let all = cargo_test("unit tests", root, unit_targets(root), UNIT_THREADS).await;
    [all, second_queue::stage(root, UNIT_THREADS).await, second_server::stage(root, UNIT_THREADS).await]
}

/// Builds what the other stages run, before any of them does: a program must not be replaced under a test. Without the
/// tests it is the operators' program alone, from the same build, so that nothing is built twice.
async fn test_programs(root: &Path, all: bool) -> Row {
    let targets = if all { Vec::new() } else { test_targets(&[COMMAND_LINE]) };
    let words: Vec<&str> =
        ["test", "--workspace", "--no-run"].into_iter().chain(targets.iter().map(String::as_str)).collect();
    command("programs", root, cargo(), &words).await
}

/// The operators' program: built by [`test_programs`] beside our own.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("gitea-dynamic-runner"))
}

fn test_targets(names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| ["--test".to_owned(), (*name).to_owned()]).collect()
}

/// How many mutations a check of a change tries.
const MUTATIONS: usize = 3;

/// What soak and crash matrix are run with: everything on this host, and then one side after the other elsewhere.
const ON_THIS_HOST: Sides = Sides { queue: QueueKind::Embedded, backend: BackendKind::Local };
const ON_JETSTREAM: Sides = Sides { queue: QueueKind::Jetstream, ..ON_THIS_HOST };
const WITH_PODS: Sides = Sides { backend: BackendKind::Pod, ..ON_THIS_HOST };

const SOAKS: [(&str, Sides); 3] =
    [("soak", ON_THIS_HOST), ("soak on JetStream", ON_JETSTREAM), ("soak with Pods", WITH_PODS)];

/// At how many points of each crash matrix a check of a change kills.
const CRASHES: [(&str, Sides, usize); 3] = [
    ("crash matrix", ON_THIS_HOST, 16),
    ("crash matrix on JetStream", ON_JETSTREAM, 8),
    ("crash matrix with Pods", WITH_PODS, 8),
];

/// A stage that judges a drawn part, with what there is to complain of.
async fn drawn(stage: &str, part: impl Future<Output = anyhow::Result<(Tally, Vec<String>)>>) -> Row {
    let started = std::time::Instant::now();
    let (tally, complaints) = match part.await {
        Ok(judged) => judged,
        Err(error) => (Tally::one(false), vec![format!("{error:#}")]),
    };
    complaints.iter().for_each(|complaint| say::line(complaint));
    Row::counted(stage, started.elapsed().as_secs_f64(), tally, complaints)
}

/// The `cargo` that runs us.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

async fn provisioned(lint: bool, tests: bool) -> Row {
    let mut parts = Vec::new();
    parts.extend(tests.then_some([Part::Gitea, Part::Runner, Part::Nats]).into_iter().flatten());
    parts.extend(lint.then_some([Part::Typos, Part::CargoDeny, Part::Helm]).into_iter().flatten());
    let started = std::time::Instant::now();
    let outcome = match provision::ensure(&parts).await {
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    Row::judged("provision", started.elapsed().as_secs_f64(), &outcome)
}

async fn lint(root: &Path, rows: &mut Vec<Row>) {
    rows.push(command("format", root, cargo(), &["fmt", "--all", "--check"]).await);
    rows.push(inline("generated sources", || stage::none(&crate::proto::outdated(root)?)));
    rows.push(inline("links in documents", || stage::none(&links::broken(root)?)));
    rows.push(inline("tests against the specification", || stage::none(&crate::coverage::complaints(root)?)));
    let manifests = crate::manifests::complaints(root).await;
    rows.push(inline("Helm chart and manifests", || stage::none(&manifests?)));
    let untrue = docs::untrue(root).await;
    rows.push(inline("documents against the code", || stage::none(&untrue?)));
    if let Ok(cache) = testkit::real::Cache::locate() {
        rows.push(command("spelling", root, Part::Typos.program(&cache), &["--config", "typos.toml"]).await);
        // Needs the packages of every platform, also of those that are not built for.
        rows.push(command("packages", root, cargo(), &["fetch", "--locked"]).await);
        let deny = ["--offline", "--workspace", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
        rows.push(command("licences, bans, sources", root, Part::CargoDeny.program(&cache), &deny).await);
    }
    let clippy = ["clippy", "--workspace", "--all-targets", "--keep-going", "--", "-D", "warnings"];
    rows.push(command("clippy", root, cargo(), &clippy).await);
    rows.push(
        command(
            "documentation",
            root,
            cargo(),
            &["doc", "--workspace", "--no-deps", "--document-private-items", "--keep-going"],
        )
        .await,
    );
}

/// Every test target but the end-to-end one: libraries, programs, and each file or folder in `tests/`.
fn unit_targets(root: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten() {
        for test in std::fs::read_dir(entry.path().join("tests")).into_iter().flatten().flatten() {
            let path = test.path();
            let is_target = path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
            names.extend(path.file_stem().filter(|_| is_target).map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    names.dedup();
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != E2E).collect();
    ["--lib".to_owned(), "--bins".to_owned()].into_iter().chain(test_targets(&names)).collect()
}
