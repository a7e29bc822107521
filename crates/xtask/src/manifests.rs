//! `cargo xtask manifests`: the plain manifests in `packaging/kubernetes`, rendered by Helm from the chart.
//!
//! Invariant: what is committed is what Helm renders from the chart and the values beside it.

mod values;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use tokio::process::Command;

use self::values::{RIGHT, TOGETHER, WRONG};
use crate::child::{Finished, run};
use crate::provision::{self, Part};
use crate::rows::{Tally, conclude};
use crate::say::{self, Step};

const CHART: &str = "packaging/helm/gitea-dynamic-runner";
const FOLDER: &str = "packaging/kubernetes";

/// The ways for Pods to reach the Workload API, each with values and a rendering.
const VARIANTS: [&str; 2] = ["csi", "hostpath"];

/// The rendered release.
const RELEASE: &str = "gitea-dynamic-runner";

/// The namespace of its controller, as docs/kubernetes.md has it.
const NAMESPACE: &str = "gitea-runners";

/// Which Kubernetes it is rendered for; a Helm that sees no cluster would guess.
const KUBERNETES: &str = "1.34.0";

const LIMIT: Duration = Duration::from_secs(120);

/// What stands above each rendering.
const HEAD: &str = "# Rendered by `cargo xtask manifests` from packaging/helm/gitea-dynamic-runner; docs/kubernetes.md says how to use it.\n";

/// Render the plain manifests of Kubernetes from the chart.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing: judge whether what is committed is what would be rendered, and have Helm look at the chart.
    #[arg(long)]
    check: bool,
    /// Write the rows of the check into this file.
    #[arg(long, requires = "check", value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One judgement.
#[derive(Serialize)]
struct Row {
    what: String,
    passed: bool,
}

/// The command.
pub(crate) async fn main(root: &Path, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let helm = Helm::provisioned(root).await?;
    if !arguments.check {
        for variant in VARIANTS {
            let path = manifest(root, variant);
            std::fs::write(&path, helm.rendered(variant).await?)
                .with_context(|| format!("write {}", path.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows = helm.check().await?;
    rows.iter().filter(|row| !row.passed).for_each(|row| say::result(&row.what));
    let tally = rows.iter().map(|row| Tally::one(row.passed)).sum();
    conclude(&rows, tally, arguments.json.as_deref())
}

/// What is wrong with chart and manifests.
pub(crate) async fn complaints(root: &Path) -> anyhow::Result<Vec<String>> {
    let rows = Helm::provisioned(root).await?.check().await?;
    Ok(rows.into_iter().filter(|row| !row.passed).map(|row| row.what).collect())
}

fn manifest(root: &Path, variant: &str) -> PathBuf {
    root.join(FOLDER).join(format!("{variant}.yaml"))
}

struct Helm<'a> {
    root: &'a Path,
    program: PathBuf,
}

impl<'a> Helm<'a> {
    async fn provisioned(root: &'a Path) -> anyhow::Result<Self> {
        let cache = provision::ensure(&[Part::Helm]).await?;
        Ok(Self { root, program: Part::Helm.program(&cache) })
    }

    async fn check(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for variant in VARIANTS {
            let is = std::fs::read_to_string(manifest(self.root, variant)).unwrap_or_default();
            let what = format!(
                "{FOLDER}/{variant}.yaml is not what `cargo xtask manifests` renders; run it and commit the result"
            );
            rows.push(Row { what, passed: is == self.rendered(variant).await? });
            let values = format!("{FOLDER}/{variant}.values.yaml");
            let linted = self.call(&["lint", "--strict", CHART, "--values", &values]).await?;
            rows.push(Row { what: format!("helm lint: {}", linted.tail(20)), passed: linted.status.success() });
        }
        rows.extend(self.values().await?);
        Ok(rows)
    }

    /// What the chart does with values beside those of the variants.
    async fn values(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (wrong, part) in WRONG {
            rows.push(self.refuses("--set", wrong, part).await?);
        }
        for (wrong, part) in TOGETHER {
            rows.push(self.refuses("--set-json", wrong, part).await?);
        }
        for (given, part) in RIGHT {
            rows.push(self.takes(given, part).await?);
        }
        Ok(rows)
    }

    /// The chart refuses values that nobody could work with.
    async fn refuses(&self, how: &str, wrong: &str, part: &str) -> anyhow::Result<Row> {
        let told = self.with(&[how, wrong]).await?;
        let refused = !told.status.success() && told.tail(20).contains(part);
        Ok(Row { what: format!("the chart takes {wrong}: {}", told.tail(3)), passed: refused })
    }

    /// The chart makes this of a value.
    async fn takes(&self, given: &str, part: &str) -> anyhow::Result<Row> {
        let told = self.with(&["--set-json", given]).await?;
        let made = told.out().split_whitespace().collect::<Vec<_>>().join(" ");
        let what = format!("with {given} the chart does not make {part}: {}", told.tail(3));
        Ok(Row { what, passed: told.status.success() && made.contains(part) })
    }

    /// The chart rendered with the values of a variant and these.
    async fn with(&self, values: &[&str]) -> anyhow::Result<Finished> {
        let variant = format!("{FOLDER}/csi.values.yaml");
        let words = ["template", "--kube-version", KUBERNETES, RELEASE, CHART, "--values", &variant];
        self.call(&[&words[..], values].concat()).await
    }

    async fn rendered(&self, variant: &str) -> anyhow::Result<String> {
        let values = format!("{FOLDER}/{variant}.values.yaml");
        let words =
            ["template", "--kube-version", KUBERNETES, RELEASE, CHART, "--namespace", NAMESPACE, "--values", &values];
        let finished = self.call(&words).await?;
        ensure!(finished.status.success(), "helm template {variant}:\n{}", finished.tail(20));
        Ok(format!("{HEAD}{}\n", finished.out().trim_end()))
    }

    /// Helm of our own, which sees no cluster and no settings of the developer's.
    async fn call(&self, words: &[&str]) -> anyhow::Result<Finished> {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(self.root).env("KUBECONFIG", "/dev/null");
        let mut step = Step::begin(format!("helm {}", words[0]));
        let finished = run(command, LIMIT, &mut step).await?;
        step.end("done");
        Ok(finished)
    }
}

#[cfg(test)]
mod tests;
