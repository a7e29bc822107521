//! `cargo xtask provision`: the real parts, built with ordinary package clients into the cache folder.
//!
//! Invariant: a part counts as installed only while `bin/NAME.version` holds the wanted version, and that file is
//! written last. A build works in a folder of its own, so an interruption leaves the old part or none, never half of
//! one. Two provisions at once wait for each other.

mod debian;
mod go;
mod host;
pub(crate) mod lock;
mod pinned;
mod rust;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use testkit::real::Cache;

use crate::say;

/// Install the real parts.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to install.
    #[arg(default_values = ["gitea", "runner", "nats"])]
    parts: Vec<Part>,
    /// Only show the parts, their versions and whether they are installed.
    #[arg(long)]
    list: bool,
}

/// One thing that can be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The Gitea server.
    Gitea,
    /// The official runner.
    Runner,
    /// The NATS server.
    Nats,
    /// A one-node Kubernetes: its programs, and the Debian packages that it runs on.
    Kubernetes,
    /// SPIRE's server and agent.
    Spire,
    /// What renders the Helm chart.
    Helm,
    /// The spelling check.
    Typos,
    /// The check of licences, bans and sources.
    CargoDeny,
    /// The driver of libFuzzer.
    CargoFuzz,
}

impl Part {
    fn recipe(self) -> Recipe {
        match self {
            Self::Gitea => Recipe::Go(&go::GITEA),
            Self::Runner => Recipe::Go(&go::RUNNER),
            Self::Nats => Recipe::Go(&go::NATS),
            Self::Kubernetes => Recipe::Pinned(&pinned::KUBERNETES),
            Self::Spire => Recipe::Pinned(&pinned::SPIRE),
            Self::Helm => Recipe::Go(&go::HELM),
            Self::Typos => Recipe::Rust(&rust::TYPOS),
            Self::CargoDeny => Recipe::Rust(&rust::CARGO_DENY),
            Self::CargoFuzz => Recipe::Rust(&rust::CARGO_FUZZ),
        }
    }

    /// The installed program.
    pub(crate) fn program(self, cache: &Cache) -> PathBuf {
        cache.root().join("bin").join(self.recipe().file_name())
    }
}

/// How a part is built.
enum Recipe {
    Go(&'static go::Program),
    Pinned(&'static pinned::Programs),
    Rust(&'static rust::Program),
}

impl Recipe {
    fn file_name(&self) -> &'static str {
        match self {
            Self::Go(program) => program.name,
            Self::Pinned(programs) => programs.name,
            Self::Rust(program) => program.name,
        }
    }

    /// What the version file holds; Go's versions carry a `v`.
    fn version(&self) -> &'static str {
        match self {
            Self::Go(program) => program.version,
            Self::Pinned(programs) => programs.version,
            Self::Rust(program) => program.version,
        }
    }

    fn tools(&self) -> Vec<host::Tool> {
        match self {
            Self::Go(program) => program.tools(),
            Self::Pinned(programs) => programs.tools(),
            Self::Rust(_) => vec![host::Tool::CCompiler],
        }
    }

    /// Folders beside the program that belong to it.
    fn folders(&self) -> &'static [&'static str] {
        match self {
            Self::Go(program) => program.folders,
            Self::Pinned(_) | Self::Rust(_) => &[],
        }
    }

    /// Programs that are built and installed with it.
    fn beside(&self) -> &'static [&'static str] {
        match self {
            Self::Pinned(programs) => programs.beside,
            Self::Go(_) | Self::Rust(_) => &[],
        }
    }

    /// Whether what it needs of the system is there.
    fn is_complete(&self) -> bool {
        match self {
            Self::Pinned(programs) => programs.is_complete(),
            Self::Go(_) | Self::Rust(_) => true,
        }
    }
}

/// The command.
pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if arguments.list {
        let cache = Cache::locate()?;
        for part in Part::value_variants() {
            let recipe = part.recipe();
            let state = if ready(cache.root(), &recipe) { "installed" } else { "not installed" };
            let name = part.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            say::result(&format!("{name:<11} {:<9} {state}", recipe.version().trim_start_matches('v')));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let cache = ensure(&arguments.parts).await?;
    say::result(&cache.root().display().to_string());
    Ok(ExitCode::SUCCESS)
}

/// Installs what is missing of `parts`. Free when nothing is.
pub(crate) async fn ensure(parts: &[Part]) -> anyhow::Result<Cache> {
    let cache = Cache::locate()?;
    let root = cache.root();
    let missing = |parts: &[Part]| parts.iter().copied().filter(|p| !ready(root, &p.recipe())).collect::<Vec<_>>();
    let wanted = missing(parts);
    if wanted.is_empty() {
        return Ok(cache);
    }
    host::check(wanted.iter().flat_map(|part| part.recipe().tools()))?;
    std::fs::create_dir_all(root.join("bin")).with_context(|| format!("make {}", root.display()))?;
    let _lock = lock::take(root).await?;
    // Another provision may have done the work while we waited.
    for part in missing(&wanted) {
        build(root, &part.recipe()).await?;
    }
    Ok(cache)
}

/// Installed, and the system has what belongs to it.
fn ready(root: &Path, recipe: &Recipe) -> bool {
    installed(root, recipe) && recipe.is_complete()
}

fn installed(root: &Path, recipe: &Recipe) -> bool {
    let bin = root.join("bin");
    let version = std::fs::read_to_string(bin.join(format!("{}.version", recipe.file_name()))).unwrap_or_default();
    let folders = recipe.folders().iter().all(|folder| root.join(folder).is_dir());
    let programs = recipe.beside().iter().all(|name| bin.join(name).is_file());
    version.trim() == recipe.version() && bin.join(recipe.file_name()).is_file() && folders && programs
}

async fn build(root: &Path, recipe: &Recipe) -> anyhow::Result<()> {
    let name = recipe.file_name();
    let work = root.join("build").join(name);
    // What an interrupted build left; nobody else works here while we hold the lock.
    remove(&work)?;
    std::fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let log = root.join("build").join(format!("{name}.log"));
    std::fs::write(&log, "").with_context(|| format!("write {}", log.display()))?;
    let step = say::Step::begin(format!("provision {name} {}", recipe.version().trim_start_matches('v')));
    let built = match recipe {
        Recipe::Go(program) => program.build(&work, &log, step).await,
        Recipe::Pinned(programs) => programs.build(&work, &log, step).await,
        Recipe::Rust(program) => program.build(&work, &log, step).await,
    };
    let (program, step) = built.with_context(|| format!("build {name} {}", recipe.version()))?;
    install(root, &work, recipe, &program)?;
    remove(&work)?;
    step.end("installed");
    Ok(())
}

/// Renames into place: the version goes first and comes last, so that nothing half-installed counts.
fn install(root: &Path, work: &Path, recipe: &Recipe, program: &Path) -> anyhow::Result<()> {
    let bin = root.join("bin");
    let mark = bin.join(format!("{}.version", recipe.file_name()));
    match std::fs::remove_file(&mark) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context("remove old version"),
        _ => {}
    }
    for folder in recipe.folders() {
        remove(&root.join(folder))?;
        std::fs::rename(work.join(folder), root.join(folder)).with_context(|| format!("install {folder}"))?;
    }
    for name in recipe.beside() {
        let from = program.with_file_name(name);
        std::fs::rename(&from, bin.join(name)).with_context(|| format!("install {name}"))?;
    }
    let target = bin.join(recipe.file_name());
    std::fs::rename(program, &target).with_context(|| format!("install {}", target.display()))?;
    let new = work.join("version");
    std::fs::write(&new, format!("{}\n", recipe.version()))?;
    std::fs::rename(&new, &mark).with_context(|| format!("write {}", mark.display()))
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn only_a_whole_part_of_the_wanted_version_counts() {
        let nats = [("bin/nats-server", ""), ("bin/nats-server.version", "v2.15.2\n")];
        assert!(installed(folder_with(&nats).path(), &Part::Nats.recipe()));
        assert!(!installed(folder_with(&nats[..1]).path(), &Part::Nats.recipe()));
        assert!(!installed(folder_with(&nats[1..]).path(), &Part::Nats.recipe()));
        let old = [nats[0], ("bin/nats-server.version", "v2.15.1\n")];
        assert!(!installed(folder_with(&old).path(), &Part::Nats.recipe()));
        let gitea = [("bin/gitea", ""), ("bin/gitea.version", "v1.26.0\n"), ("static/templates/x", "")];
        assert!(installed(folder_with(&gitea).path(), &Part::Gitea.recipe()));
        assert!(!installed(folder_with(&gitea[..2]).path(), &Part::Gitea.recipe()));
    }

    #[test]
    fn programs_that_are_built_together_count_together() {
        let files = ["bin/spire-server", "bin/spire-agent"].map(|path| (path, ""));
        let version = ("bin/spire-server.version", "v1.13.3\n");
        assert!(installed(folder_with(&[files[0], files[1], version]).path(), &Part::Spire.recipe()));
        assert!(!installed(folder_with(&[files[0], version]).path(), &Part::Spire.recipe()));
    }

    #[test]
    fn an_install_that_breaks_off_leaves_no_version() {
        let root = folder_with(&[
            ("bin/gitea", "old"),
            ("bin/gitea.version", "v1.25.0\n"),
            ("static/templates/old", ""),
            ("build/gitea/program", "new"),
        ]);
        let work = root.path().join("build/gitea");
        // The new static files are missing: the install stops in the middle.
        assert!(install(root.path(), &work, &Part::Gitea.recipe(), &work.join("program")).is_err());
        assert!(!root.path().join("bin/gitea.version").exists());
        std::fs::create_dir_all(work.join("static/templates")).unwrap();
        install(root.path(), &work, &Part::Gitea.recipe(), &work.join("program")).unwrap();
        assert!(installed(root.path(), &Part::Gitea.recipe()));
        assert_eq!(std::fs::read_to_string(root.path().join("bin/gitea")).unwrap(), "new");
    }
}
