//! Programs written in Go: built from their modules with the ordinary `go` command.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::process::Command;

use super::host::Tool;
use crate::child::run_logged;
use crate::say::Step;

/// Gitea alone takes eight minutes of one core when nothing is cached.
const LIMIT: Duration = Duration::from_secs(25 * 60);

/// Gitea, without embedded files: it reads its templates from a folder.
pub(super) const GITEA: Program = Program {
    name: "gitea",
    module: "code.gitea.io/gitea",
    package: "",
    version: "v1.26.0",
    version_variable: Some("main.Version"),
    tags: "sqlite sqlite_unlock_notify",
    folders: &["static"],
    c_code: CCode::Inside,
};

/// The official runner.
pub(super) const RUNNER: Program = Program {
    name: "gitea-runner",
    module: "gitea.com/gitea/runner",
    package: "",
    version: "v1.0.8",
    version_variable: Some("gitea.com/gitea/runner/internal/pkg/ver.version"),
    tags: "",
    folders: &[],
    c_code: CCode::None,
};

/// The NATS server.
pub(super) const NATS: Program = Program {
    name: "nats-server",
    module: "github.com/nats-io/nats-server/v2",
    package: "",
    version: "v2.15.2",
    version_variable: None,
    tags: "",
    folders: &[],
    c_code: CCode::None,
};

/// What renders the chart.
pub(super) const HELM: Program = Program {
    name: "helm",
    module: "helm.sh/helm/v3",
    package: "/cmd/helm",
    version: "v3.22.0",
    version_variable: Some("helm.sh/helm/v3/internal/version.version"),
    tags: "",
    folders: &[],
    c_code: CCode::None,
};

/// Whether a program needs a C compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CCode {
    None,
    /// SQLite is C.
    Inside,
}

/// A main package of a module.
pub(super) struct Program {
    /// The file name of the program.
    pub(super) name: &'static str,
    module: &'static str,
    /// The main package below the module's root, with a slash in front; empty for the root itself.
    package: &'static str,
    /// The module's version, with its `v`.
    pub(super) version: &'static str,
    /// The variable that a release build sets to the version.
    version_variable: Option<&'static str>,
    tags: &'static str,
    /// Folders of the module that the program reads when it runs, gathered in one of our own.
    pub(super) folders: &'static [&'static str],
    c_code: CCode,
}

/// What `go mod download -json` tells.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Downloaded {
    dir: PathBuf,
}

/// What we read of `go mod edit -json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GoMod {
    #[serde(default)]
    replace: Option<Vec<Replace>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Replace {
    old: ModuleVersion,
    new: ModuleVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ModuleVersion {
    path: String,
    #[serde(default)]
    version: Option<String>,
}

impl Program {
    pub(super) fn tools(&self) -> Vec<Tool> {
        let mut tools = vec![Tool::Go, Tool::Git];
        if self.c_code == CCode::Inside {
            tools.push(Tool::CCompiler);
        }
        tools
    }

    /// Builds in `work`; returns the program.
    pub(super) async fn build(&self, work: &Path, log: &Path, mut step: Step) -> anyhow::Result<(PathBuf, Step)> {
        let module = format!("{}@{}", self.module, self.version);
        let own = format!("testbed.invalid/{}", self.name);
        self.go(work, log, &mut step, &["mod", "init", &own]).await?;
        let source = self.go(work, log, &mut step, &["mod", "download", "-json", &module]).await?;
        let source: Downloaded = serde_json::from_str(&source).context("read what `go mod download` wrote")?;
        let go_mod = source.dir.join("go.mod").display().to_string();
        let go_mod = self.go(work, log, &mut step, &["mod", "edit", "-json", &go_mod]).await?;
        let replaces = replaces(&go_mod)?;
        if !replaces.is_empty() {
            let words: Vec<&str> = ["mod", "edit"].into_iter().chain(replaces.iter().map(String::as_str)).collect();
            self.go(work, log, &mut step, &words).await?;
        }
        let package = format!("{}{}", self.module, self.package);
        self.go(work, log, &mut step, &["get", "-tool", &format!("{package}@{}", self.version)]).await?;
        let program = work.join(self.name);
        let flags = self.version_variable.map(|name| format!("-X {name}={}", self.version.trim_start_matches('v')));
        let mut words = vec!["build", "-v", "-tags", self.tags];
        words.extend(flags.iter().flat_map(|flags| ["-ldflags", flags]));
        let target = program.display().to_string();
        words.extend(["-o", &target, &package]);
        self.go(work, log, &mut step, &words).await?;
        if !self.folders.is_empty() {
            for folder in ["templates", "options", "public"] {
                copy_writable(&source.dir.join(folder), &work.join("static").join(folder))?;
            }
        }
        Ok((program, step))
    }

    async fn go(&self, work: &Path, log: &Path, step: &mut Step, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("go");
        // A `go.work` or flags of the developer's own must not take part.
        command.args(words).current_dir(work).env("GOWORK", "off").env("GOFLAGS", "");
        if self.c_code == CCode::Inside {
            command.env("CGO_ENABLED", "1");
        }
        Ok(run_logged(command, LIMIT, step, log).await?.out())
    }
}

/// The `replace` lines of a module as arguments of `go mod edit`. Go heeds only those of the main module, and Gitea
/// does not compile without its own, so ours repeats them. Replacements by a folder cannot be repeated.
fn replaces(go_mod: &str) -> anyhow::Result<Vec<String>> {
    let go_mod: GoMod = serde_json::from_str(go_mod).context("read what `go mod edit -json` wrote")?;
    let argument = |replace: Replace| {
        let version = replace.new.version?;
        let at = replace.old.version.map(|version| format!("@{version}")).unwrap_or_default();
        Some(format!("-replace={}{at}={}@{version}", replace.old.path, replace.new.path))
    };
    Ok(go_mod.replace.unwrap_or_default().into_iter().filter_map(argument).collect())
}

/// Copies a folder of the module cache, where everything is read-only.
fn copy_writable(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copy = || -> std::io::Result<()> {
        std::fs::create_dir_all(to)?;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                copy_writable(&entry.path(), &target).map_err(std::io::Error::other)?;
            } else {
                std::fs::copy(entry.path(), &target)?;
                std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o644))?;
            }
        }
        Ok(())
    };
    copy().with_context(|| format!("copy {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn replacements_are_repeated_but_not_those_by_a_folder() {
        let go_mod = r#"{"Module": {"Path": "m"}, "Replace": [
            {"Old": {"Path": "a"}, "New": {"Path": "b", "Version": "v1"}},
            {"Old": {"Path": "c", "Version": "v2"}, "New": {"Path": "d", "Version": "v3"}},
            {"Old": {"Path": "e"}, "New": {"Path": "./e"}}]}"#;
        assert_eq!(replaces(go_mod).unwrap(), ["-replace=a=b@v1", "-replace=c@v2=d@v3"]);
        assert!(replaces(r#"{"Module": {"Path": "m"}, "Replace": null}"#).unwrap().is_empty());
    }
}
