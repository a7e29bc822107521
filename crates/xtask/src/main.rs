//! `cargo xtask`: what a developer and the build machine do with this repository.
//!
//! Invariant: a task that judges something prints `N passed, N failed` as its last line and exits accordingly.

mod backend_kind;
mod bench;
mod build;
mod child;
mod conformance;
mod coverage;
mod crash_matrix;
mod demo;
mod fuzz;
mod images;
mod manifests;
mod mixed_versions;
mod mutations;
mod proto;
mod provision;
mod queue_kind;
mod rows;
mod samples;
mod say;
mod sides;
mod soak;
mod sources;
mod spec;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer tasks.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the real parts (Gitea, the official runner, ...) into the cache folder.
    Provision(provision::Arguments),
    /// Check and test everything: format, lints, licences, documents, unit and end-to-end tests.
    Test(test::Arguments),
    /// Show the whole system at work: a real Gitea, real workflows, a table of what came out.
    Demo(demo::Arguments),
    /// Ask the real Gitea and its double the same questions, and print what each answered.
    Conformance(conformance::Arguments),
    /// Print the figures of one-host mode beside their goals; judges nothing.
    Bench(bench::Arguments),
    /// Be the runner of one job of the bench.
    #[command(hide = true)]
    BenchRunner(bench::StandIn),
    /// Kill controller, executors and runners at random under load, and judge what became of every task.
    Soak(soak::Arguments),
    /// Be the runner of a job whose steps are words, for soak and crash matrix.
    #[command(hide = true)]
    StandIn,
    /// Say which requirements and faults have a test that names them.
    Coverage(coverage::Arguments),
    /// Break the program in recorded ways and see the tests notice.
    Mutations(mutations::Arguments),
    /// Fuzz the boundaries that bytes from outside cross, with libFuzzer.
    Fuzz(fuzz::Arguments),
    /// Kill the controller at each of its boundaries, start it anew, and judge what follows.
    CrashMatrix(crash_matrix::Arguments),
    /// Roll from an earlier version to this one and back, with work queued and running.
    MixedVersions(mixed_versions::Arguments),
    /// Write the images of controller and executor as OCI archives, without an engine.
    Images(images::Arguments),
    /// Render the plain manifests of Kubernetes from the Helm chart, or check that they are what would be rendered.
    Manifests(manifests::Arguments),
    /// Generate the protocol's sources, or check that they are what would be generated.
    Proto(proto::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let root = root();
    let result = match Arguments::parse().task {
        Task::Provision(arguments) => provision::main(arguments).await,
        Task::Test(arguments) => test::main(&root, arguments).await,
        Task::Demo(arguments) => demo::main(&root, arguments).await,
        Task::Conformance(arguments) => conformance::main(arguments).await,
        Task::Bench(arguments) => bench::main(&root, arguments).await,
        Task::Soak(arguments) => soak::main(&root, arguments).await,
        // It makes a runtime of its own and ends this process.
        Task::StandIn => {
            tokio::task::spawn_blocking(testkit::stand_in::run).await.map(|()| ExitCode::SUCCESS).map_err(Into::into)
        }
        Task::Coverage(arguments) => coverage::main(&root, &arguments),
        Task::Mutations(arguments) => mutations::main(&root, arguments).await,
        Task::BenchRunner(stand_in) => stand_in.main().await,
        Task::Fuzz(arguments) => fuzz::main(&root, arguments).await,
        Task::CrashMatrix(arguments) => crash_matrix::main(&root, arguments).await,
        Task::MixedVersions(arguments) => mixed_versions::main(&root, arguments).await,
        Task::Images(arguments) => images::main(&root, arguments).await,
        Task::Manifests(arguments) => manifests::main(&root, arguments).await,
        Task::Proto(arguments) => proto::main(&root, &arguments),
    };
    result.unwrap_or_else(|error| {
        say::line(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

/// The repository.
fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    crates.canonicalize().unwrap_or(crates)
}
