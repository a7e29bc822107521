//! The root file system below the executor image: Debian's packages, unpacked once into the cache, or somebody's own.
//!
//! `mmdebstrap` installs the packages with the machine's own apt, from the mirrors that the machine knows. What it makes
//! is kept until `--renew-base`: the same base gives the same image, and only a person decides when packages move on.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use testkit::real::Cache;
use tokio::process::Command;

use super::layout::{Blob, Layer};
use super::tree::Tree;
use crate::child::run_logged;
use crate::provision;
use crate::say::Step;

/// Debian 13. Its Node.js is the 20 that today's actions ask for.
pub(super) const SUITE: &str = "trixie";

/// What is in the base beside Debian's essential packages. `packaging/images/executor.Containerfile` has the same list.
pub(super) const PACKAGES: [&str; 13] = [
    "bash",
    "ca-certificates",
    "curl",
    "git",
    "gzip",
    "jq",
    "nodejs",
    "openssh-client",
    "procps",
    "tar",
    "unzip",
    "xz-utils",
    "zstd",
];

/// The time of every file of a base, whoever made it: 2025-08-09, when Debian 13 came out. Any fixed day would do, but
/// for one before 1980, which zip cannot write.
pub(super) const TIME: u64 = 1_754_697_600;

/// A kilobyte in a minute from a slow mirror is no progress; all of it takes two minutes here.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// What jobs cannot do without, where it may lie, and what needs it.
const NEEDED: [(&[&str], &str); 4] = [
    (&["bin/sh", "usr/bin/sh"], "a shell, for `run` steps"),
    (&["usr/bin/git", "usr/local/bin/git", "bin/git"], "git, for checkouts"),
    (&["usr/bin/node", "usr/local/bin/node", "bin/node"], "Node.js (`node`), for actions written in it"),
    (
        &["etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/cert.pem"],
        "certificates of authorities, for everything behind https",
    ),
];

/// What mmdebstrap leaves that differs from run to run or serves nobody in an image.
const LEFT_OVER: [&str; 18] = [
    "etc/.pwd.lock",
    "etc/group-",
    "etc/gshadow-",
    "etc/hostname",
    "etc/machine-id",
    "etc/passwd-",
    "etc/resolv.conf",
    "etc/shadow-",
    "etc/subgid-",
    "etc/subuid-",
    "run/",
    "tmp/",
    "usr/share/locale/",
    "usr/share/man/",
    "var/cache/",
    "var/lib/apt/",
    "var/lib/dpkg/status-old",
    "var/log/",
];

/// A base and the layer it became.
pub(super) struct Base {
    pub(super) tree: Tree,
    pub(super) layer: Layer,
}

/// Somebody's own folder or archive, as it is; the layer is written into `work`.
pub(super) fn given(path: &Path, work: &Path) -> anyhow::Result<Base> {
    let tree = Tree::read(path)?;
    needed(&tree).with_context(|| format!("{} cannot carry jobs", path.display()))?;
    let layer = Layer::write(&tree, &work.join("base.tar"), TIME)?;
    Ok(Base { tree, layer })
}

/// Debian's packages, from the cache; made when they are not there, or anew when that is asked for.
pub(super) async fn debian(cache: &Cache, renew: bool) -> anyhow::Result<Base> {
    let folder = cache.root().join("images");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let _lock = provision::lock::take(cache.root()).await?;
    let file = folder.join(format!("base-{SUITE}.tar"));
    let mark = folder.join(format!("base-{SUITE}.json"));
    let kept = std::fs::read(&mark).ok().and_then(|text| serde_json::from_slice::<Mark>(&text).ok());
    let blob = match kept.filter(|mark| !renew && mark.packages == PACKAGES && file.is_file()) {
        Some(mark) => mark.blob,
        None => make(&folder, &file, &mark).await?,
    };
    Ok(Base { tree: Tree::read(&file)?, layer: Layer { file, blob } })
}

/// Written last: a base without it does not count.
#[derive(Serialize, Deserialize)]
struct Mark {
    packages: Vec<String>,
    blob: Blob,
}

async fn make(folder: &Path, file: &Path, mark: &Path) -> anyhow::Result<Blob> {
    let raw = folder.join("base.raw");
    bootstrap(folder, &raw).await?;
    let mut tree = Tree::read(&raw)?;
    clean(&mut tree);
    needed(&tree).context("Debian's packages no longer bring all that jobs need: correct the list")?;
    // A file that cannot be removed cannot be written either, which is told below.
    let _ = std::fs::remove_file(mark);
    let blob = Layer::write(&tree, file, TIME)?.blob;
    let text = serde_json::to_vec(&Mark { packages: PACKAGES.map(str::to_owned).to_vec(), blob: blob.clone() })?;
    std::fs::write(mark, text).with_context(|| format!("write {}", mark.display()))?;
    std::fs::remove_file(&raw).with_context(|| format!("remove {}", raw.display()))?;
    Ok(blob)
}

async fn bootstrap(folder: &Path, raw: &Path) -> anyhow::Result<()> {
    ensure_mmdebstrap(folder).await?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--format=tar", "--components=main", "--include"]).arg(PACKAGES.join(","));
    command.args(["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"]);
    command.arg(SUITE).arg(raw).env("SOURCE_DATE_EPOCH", TIME.to_string());
    let mut step = Step::begin(format!("base of the executor image (Debian {SUITE})"));
    run_logged(command, LIMIT, &mut step, &folder.join("base.log")).await?;
    step.end("made");
    Ok(())
}

/// As root on Debian it is installed; elsewhere a person must.
async fn ensure_mmdebstrap(folder: &Path) -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if has("mmdebstrap") {
        return Ok(());
    }
    let root = rustix::process::geteuid().is_root();
    ensure!(
        root && has("apt-get"),
        "the executor image needs `mmdebstrap`: install it (`apt-get install mmdebstrap`), or give a root file system of \
         your own with --base"
    );
    let log = folder.join("base.log");
    let mut step = Step::begin("install mmdebstrap");
    for words in [&["update", "-q"][..], &["install", "-y", "-q", "--no-install-recommends", "mmdebstrap"]] {
        let mut command = Command::new("apt-get");
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        run_logged(command, LIMIT, &mut step, &log).await?;
    }
    step.end("installed");
    Ok(())
}

fn clean(tree: &mut Tree) {
    tree.retain(|name| {
        let left_over = LEFT_OVER.iter().any(|start| name == *start || start.ends_with('/') && name.starts_with(start));
        // Licences stay.
        let document =
            name.starts_with("usr/share/doc/") && name.matches('/').count() > 3 && !name.ends_with("/copyright");
        !left_over && !document
    });
    tree.drop_set_ids();
}

/// Fails with all that is missing at once.
fn needed(tree: &Tree) -> anyhow::Result<()> {
    let missing = NEEDED.iter().filter(|(names, _)| !names.iter().any(|name| tree.has(name)));
    let missing: Vec<_> = missing.map(|(names, what)| format!("  - {what}: no {}", names.join(", no "))).collect();
    ensure!(missing.is_empty(), "the root file system lacks what jobs need:\n{}", missing.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A root file system that lacks something is refused with all of it.
    #[test]
    fn what_a_base_lacks_is_told_at_once() {
        let (root, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        std::fs::write(root.path().join("usr/bin/sh"), "").unwrap();
        let text = format!("{:#}", given(root.path(), work.path()).err().unwrap());
        assert!(text.contains("git, for checkouts") && text.contains("Node.js"), "{text}");
        assert!(!text.contains("a shell"), "{text}");
    }

    /// NEW-144, IMG-2: caches, logs and what names the machine do not get into a base; licences and the list of packages do.
    #[test]
    fn a_base_is_cleaned() {
        let mut tree = Tree::default();
        for name in ["var/cache/ldconfig/aux-cache", "var/log/dpkg.log", "etc/hostname", "usr/share/doc/git/README.md"]
        {
            tree.text(name, 0o644, "");
        }
        for name in ["var/lib/dpkg/status", "usr/share/doc/git/copyright", "etc/host.conf"] {
            tree.text(name, 0o644, "");
        }
        for name in ["var/cache", "tmp"] {
            tree.folder(name, 0o1777, super::super::tree::ROOT);
        }
        clean(&mut tree);
        let kept = ["etc/host.conf", "tmp", "usr/share/doc/git/copyright", "var/cache", "var/lib/dpkg/status"];
        assert_eq!(tree.names().collect::<Vec<_>>(), kept);
    }
}
