//! `cargo xtask images`: the controller's and the executor's image as OCI archives, without an engine and without a
//! registry (IMG-1 to IMG-3, NEW-144).
//!
//! Invariant: the same commit, programs and base give the same digests.

mod base;
mod layout;
mod pin;
mod program;
#[cfg(test)]
mod readback;
mod recipe;
mod sbom;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;
use testkit::real::Cache;

use crate::build;
use crate::provision::{self, Part};
use crate::say;
use layout::{Image, Layer};
use recipe::{CONTROLLER, EXECUTOR, Recipe};

/// Which base the executor image of this commit has.
const PIN: &str = "packaging/images/executor-base.json";

/// Write the images of controller and executor as OCI archives.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder for the archives [default: target/images].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The official runner of the executor image [default: the one that `provision` installs].
    #[arg(long, value_name = "FILE")]
    runner: Option<PathBuf>,
    /// Root file system below the executor image, a folder or a tar [default: Debian's packages, as this commit pins them].
    #[arg(long, value_name = "DIR_OR_TAR")]
    base: Option<PathBuf>,
    /// Take Debian's packages as they are now, and pin them in packaging/images/executor-base.json.
    #[arg(long, conflicts_with = "base")]
    renew_base: bool,
    /// Where former states of Debian's mirrors are kept, up to `/debian` and the time: for pinned packages that mirrors no
    /// longer have.
    #[arg(long, value_name = "URL", conflicts_with_all = ["base", "renew_base"])]
    archive: Option<String>,
    /// Fail where nobody has the pinned packages any more; else the executor image gets those of today, and it is said.
    #[arg(long, conflicts_with_all = ["base", "renew_base"])]
    locked: bool,
    /// Only one of them.
    #[arg(long, value_enum)]
    only: Option<Which>,
    /// How our programs are built.
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// What stands before the names of the images.
    #[arg(long, value_name = "HOST[/PATH]", default_value = "localhost")]
    registry: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Which {
    /// One static program and nothing else.
    Controller,
    /// Our small program, the official runner, and what jobs need.
    Executor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// As they are released: small, slow to build.
    Release,
    /// Quick to build, for tests.
    Dev,
}

/// One image that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Made {
    pub(crate) image: Which,
    /// `HOST/NAME:TAG`, by which the archive can be imported.
    pub(crate) name: String,
    /// `HOST/NAME@sha256:…`: what POD_EXECUTOR_IMAGE wants.
    pub(crate) reference: String,
    pub(crate) archive: PathBuf,
    /// What it is made of.
    pub(crate) sbom: PathBuf,
}

impl Arguments {
    /// The images that Pods of tests run: of programs as tests build them.
    pub(crate) fn for_tests(root: &Path) -> Self {
        Self {
            out: Some(root.join("target/images-for-tests")),
            runner: None,
            base: None,
            renew_base: false,
            archive: None,
            locked: false,
            only: None,
            profile: Profile::Dev,
            registry: "localhost".to_owned(),
        }
    }

    /// What is released has the pinned base; tests take any.
    fn packages<'a>(&'a self, file: &'a Path) -> base::Packages<'a> {
        match self {
            Self { renew_base: true, .. } => base::Packages::Renewed { file },
            Self { profile: Profile::Dev, .. } => base::Packages::Any,
            Self { archive, locked, .. } => {
                base::Packages::Pinned { file, archive: archive.as_deref(), locked: *locked }
            }
        }
    }
}

/// The command.
pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    for made in make(root, &arguments).await? {
        say::result(&format!("{}\n  {}\n  {}", made.reference, made.archive.display(), made.sbom.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what is asked for, and beside it `images.json` with a list of it.
pub(crate) async fn make(root: &Path, arguments: &Arguments) -> anyhow::Result<Vec<Made>> {
    let out = arguments.out.clone().unwrap_or_else(|| root.join("target/images"));
    std::fs::create_dir_all(&out).with_context(|| format!("make {}", out.display()))?;
    let maker = Maker { root, arguments, out: std::path::absolute(&out)?, commit: Commit::of(root)? };
    let mut made = Vec::new();
    let wanted = |which| arguments.only.is_none_or(|only| only == which);
    if wanted(Which::Controller) {
        made.push(maker.controller().await?);
    }
    if wanted(Which::Executor) {
        made.push(maker.executor().await?);
    }
    let list = serde_json::to_string_pretty(&made)? + "\n";
    std::fs::write(out.join("images.json"), list).with_context(|| format!("write {}/images.json", out.display()))?;
    Ok(made)
}

struct Maker<'a> {
    root: &'a Path,
    arguments: &'a Arguments,
    out: PathBuf,
    commit: Commit,
}

impl Maker<'_> {
    async fn controller(&self) -> anyhow::Result<Made> {
        let program = self.program("controller", "gitea-dynamic-runner", "release").await?;
        let work = tempfile::tempdir_in(&self.out)?;
        let layer = Layer::write(&recipe::controller(&program), &work.path().join("layer"), self.commit.date)?;
        let components = sbom::crates(self.root, "controller", &build::target())?;
        self.write(Which::Controller, &CONTROLLER, &[layer], components)
    }

    async fn executor(&self) -> anyhow::Result<Made> {
        let program = self.program("executor", "gitea-task-executor", "small").await?;
        let runner = match &self.arguments.runner {
            Some(runner) => runner.clone(),
            None => Part::Runner.program(&provision::ensure(&[Part::Runner]).await?),
        };
        let work = tempfile::tempdir_in(&self.out)?;
        let base = match &self.arguments.base {
            Some(path) => base::given(path, work.path())?,
            None => base::debian(&Cache::locate()?, self.arguments.packages(&self.root.join(PIN))).await?,
        };
        let tree = recipe::executor(&base.tree, &program, &runner)?;
        let above = Layer::write(&tree, &work.path().join("layer"), self.commit.date)?;
        let mut components = sbom::crates(self.root, "executor", &build::target())?;
        components.extend(sbom::go_program("gitea-runner", &runner)?);
        let text = |name: &str| -> anyhow::Result<String> {
            Ok(String::from_utf8_lossy(&base.tree.content(name)?.unwrap_or_default()).into_owned())
        };
        components.extend(sbom::debian(&text("var/lib/dpkg/status")?, &text("usr/lib/os-release")?));
        self.write(Which::Executor, &EXECUTOR, &[base.layer, above], components)
    }

    /// Our program, static: IMG-1 has nothing beside it, and a base may have another C library.
    async fn program(&self, package: &str, bin: &str, released: &str) -> anyhow::Result<PathBuf> {
        let profile = if self.arguments.profile == Profile::Dev { "dev" } else { released };
        let program = build::static_program(self.root, profile, package, bin).await?;
        program::ensure_static(&program)?;
        Ok(program)
    }

    fn write(&self, image: Which, recipe: &Recipe, layers: &[Layer], parts: Vec<Value>) -> anyhow::Result<Made> {
        let bare = format!("{}/{}", self.arguments.registry.trim_end_matches('/'), recipe.name);
        let name = format!("{bare}:{}", env!("CARGO_PKG_VERSION"));
        let archive = self.out.join(format!("{}.oci.tar", recipe.name));
        let settings = recipe.settings(&self.commit.id);
        let digest = Image { name: &name, settings, layers, date: self.commit.date }.write(&archive)?;
        let sbom = self.out.join(format!("{}.cdx.json", recipe.name));
        let document = sbom::document(&bare, &digest, self.commit.date, parts)?;
        std::fs::write(&sbom, serde_json::to_string_pretty(&document)? + "\n")
            .with_context(|| format!("write {}", sbom.display()))?;
        Ok(Made { image, reference: format!("{bare}@{digest}"), name, archive, sbom })
    }
}

/// What the images are made from.
struct Commit {
    id: String,
    /// Seconds since 1970: `SOURCE_DATE_EPOCH`, else when the commit was made.
    date: u64,
}

impl Commit {
    fn of(root: &Path) -> anyhow::Result<Self> {
        let told = std::env::var("SOURCE_DATE_EPOCH").ok();
        let mut git = std::process::Command::new("git");
        git.args(["log", "-1", "--format=%H %ct"]).current_dir(root);
        let output = git.output().ok().filter(|output| output.status.success());
        let known = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        let (id, date) = known.split_once(' ').unwrap_or(("unknown", ""));
        let date = told.as_deref().unwrap_or(date).trim().parse();
        let date =
            date.context("when the images are made: give SOURCE_DATE_EPOCH in seconds, or work in a git checkout")?;
        Ok(Self { id: id.to_owned(), date })
    }
}
