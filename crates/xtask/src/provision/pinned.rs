//! Go programs of modules that cannot be asked for by version alone: our own module names them, with every version
//! pinned. Kubernetes replaces its parts by folders, which a module that depends on it must replace by versions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::Command;

use super::host::Tool;
use crate::child::run_logged;
use crate::say::Step;

/// Kubernetes takes twelve minutes of one core, SPIRE as long, when nothing is cached.
const LIMIT: Duration = Duration::from_secs(60 * 60);

/// Kubernetes 1.34: later ones refuse cgroup v1 unless they are told otherwise.
pub(super) const KUBERNETES: Programs = Programs {
    name: "kube-apiserver",
    beside: &["kube-controller-manager", "kube-scheduler", "kubelet", "pause", "spiffe-csi"],
    version: "v1.34.4",
    source: Source::Module(&[
        ("go.mod", include_str!("kubernetes/go.mod")),
        ("go.sum", include_str!("kubernetes/go.sum")),
        ("pause/main.go", include_str!("kubernetes/pause/main.go")),
        ("spiffe-csi/main.go", include_str!("kubernetes/spiffe-csi/main.go")),
    ]),
    packages: &[
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-scheduler",
        "k8s.io/kubernetes/cmd/kubelet",
        "./pause",
        "./spiffe-csi",
    ],
    linker: "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1 \
             -X k8s.io/component-base/version.gitMinor=34 -X k8s.io/component-base/version.gitTreeState=clean",
    c_code: false,
    debian: true,
};

/// SPIRE's server and agent.
pub(super) const SPIRE: Programs = Programs {
    name: "spire-server",
    beside: &["spire-agent"],
    version: "v1.13.3",
    source: Source::Tools,
    packages: &["github.com/spiffe/spire/cmd/spire-server", "github.com/spiffe/spire/cmd/spire-agent"],
    linker: "-s -w",
    c_code: true,
    debian: false,
};

/// Where the versions of everything come from.
enum Source {
    /// The files of a module of ours.
    Module(&'static [(&'static str, &'static str)]),
    /// `go get -tool` of each package in an empty module.
    Tools,
}

/// Programs that are built together.
pub(super) struct Programs {
    /// The one whose version file counts.
    pub(super) name: &'static str,
    /// The others.
    pub(super) beside: &'static [&'static str],
    /// The version, with its `v`.
    pub(super) version: &'static str,
    source: Source,
    packages: &'static [&'static str],
    linker: &'static str,
    /// Whether they need a C compiler.
    c_code: bool,
    /// Whether Debian packages belong to them.
    debian: bool,
}

impl Programs {
    pub(super) fn tools(&self) -> Vec<Tool> {
        let mut tools = vec![Tool::Go, Tool::Git];
        if self.c_code {
            tools.push(Tool::CCompiler);
        }
        tools
    }

    /// Whether everything beside the programs is there.
    pub(super) fn is_complete(&self) -> bool {
        !self.debian || testkit::real::kubernetes::missing_packages().is_empty()
    }

    /// Builds in `work`; returns the first program, beside which the others are.
    pub(super) async fn build(&self, work: &Path, log: &Path, mut step: Step) -> anyhow::Result<(PathBuf, Step)> {
        if self.debian {
            super::debian::install(&testkit::real::kubernetes::missing_packages(), log, &mut step).await?;
        }
        match self.source {
            Source::Module(files) => write(work, files)?,
            Source::Tools => {
                let own = format!("testbed.invalid/{}", self.name);
                self.go(work, log, &mut step, &["mod", "init", &own]).await?;
                for package in self.packages {
                    let package = format!("{package}@{}", self.version);
                    self.go(work, log, &mut step, &["get", "-tool", &package]).await?;
                }
            }
        }
        let target = work.join("out");
        std::fs::create_dir_all(&target)?;
        let folder = format!("{}/", target.display());
        let mut words = vec!["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", self.linker, "-o", &folder];
        words.extend(self.packages);
        self.go(work, log, &mut step, &words).await?;
        Ok((target.join(self.name), step))
    }

    async fn go(&self, work: &Path, log: &Path, step: &mut Step, words: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new("go");
        let c_code = if self.c_code { "1" } else { "0" };
        command.args(words).current_dir(work).env("GOWORK", "off").env("GOFLAGS", "").env("CGO_ENABLED", c_code);
        run_logged(command, LIMIT, step, log).await.map(drop)
    }
}

fn write(work: &Path, files: &[(&str, &str)]) -> anyhow::Result<()> {
    for (name, text) in files {
        let path = work.join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
