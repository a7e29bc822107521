//! The root file system below the executor image: Debian's packages, unpacked once into the cache, or somebody's own.
//!
//! `mmdebstrap` installs the packages from Debian's mirrors. What it makes is held to `packaging/images/executor-base.json`
//! ([`Pin`]), byte for byte, and kept: the same commit has the same base on every machine, as long as somebody still has its
//! packages. Where nobody has, that is said, and refused with `--locked`; only a person moves the pin on (`--renew-base`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use testkit::real::Cache;
use tokio::process::Command;

use super::layout::{Blob, Layer};
use super::pin::Pin;
use super::tree::Tree;
use crate::child::run_logged;
use crate::provision;
use crate::say::{self, Step};

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
///
/// The list of mirrors is one of these: whoever wants more packages has the Containerfile.
const LEFT_OVER: [&str; 19] = [
    "etc/.pwd.lock",
    "etc/apt/sources.list",
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

/// Which of Debian's packages may be in a base.
pub(super) enum Packages<'a> {
    /// Those that the file of the commit names; `archive` keeps what mirrors no longer have. Where nobody has them, those of
    /// today and a word, unless it is `locked`.
    Pinned { file: &'a Path, archive: Option<&'a str>, locked: bool },
    /// Those that mirrors have now; the file is written.
    Renewed { file: &'a Path },
    /// What the cache has, else what mirrors have: for tests, which must not stop when Debian moves on.
    Any,
}

/// Debian's packages, from the cache; made when they are not there, or are not those that are asked for.
pub(super) async fn debian(cache: &Cache, packages: Packages<'_>) -> anyhow::Result<Base> {
    let folder = cache.root().join("images");
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let _lock = provision::lock::take(cache.root()).await?;
    let file = folder.join(format!("base-{SUITE}.tar"));
    let store = Store { mark: file.with_extension("json"), folder, file };
    let mark = match packages {
        Packages::Renewed { file } => {
            let mark = store.make(&[]).await?;
            mark.pin.write(file)?;
            mark
        }
        Packages::Pinned { file, archive, locked } => {
            let pin = Pin::read(file)?;
            let mark = store.pinned(&pin, archive, locked).await?;
            match pin.hold(&mark.pin) {
                Err(other) if locked => return Err(other),
                Err(other) => say::line(&format!("note: {other:#}")),
                Ok(()) => {}
            }
            mark
        }
        Packages::Any => match store.kept() {
            Some(mark) => mark,
            None => store.make(&[]).await?,
        },
    };
    Ok(Base { tree: Tree::read(&store.file)?, layer: Layer { file: store.file, blob: mark.blob } })
}

/// Written last: a base without it does not count.
#[derive(Serialize, Deserialize)]
struct Mark {
    packages: Vec<String>,
    blob: Blob,
    pin: Pin,
    /// The digest of a pin that the mirrors no longer had when this was made.
    instead_of: Option<String>,
}

/// Where the last base lies.
struct Store {
    folder: PathBuf,
    file: PathBuf,
    mark: PathBuf,
}

impl Store {
    fn kept(&self) -> Option<Mark> {
        let mark: Mark = serde_json::from_slice(&std::fs::read(&self.mark).ok()?).ok()?;
        (mark.packages == PACKAGES && self.file.is_file()).then_some(mark)
    }

    /// The base of a pin: as kept, of the mirrors, or of an archive of their former states; where none of them has it, what the
    /// mirrors have, which is then kept for as long as nobody insists.
    async fn pinned(&self, pin: &Pin, archive: Option<&str>, locked: bool) -> anyhow::Result<Mark> {
        let kept = self.kept();
        let insists = locked || archive.is_some();
        let serves =
            |mark: &Mark| mark.pin.digest == pin.digest || (!insists && mark.instead_of == Some(pin.digest.clone()));
        if let Some(mark) = kept.filter(serves) {
            return Ok(mark);
        }
        let mut made = self.make(&[]).await?;
        if let (true, Some(archive)) = (made.pin.digest != pin.digest, archive) {
            made = self.make(&pin.sources(archive)).await?;
        }
        made.instead_of = Some(pin.digest.clone());
        self.keep(&made)?;
        Ok(made)
    }

    /// Installs the packages from these sources, or from Debian's mirrors when there are none.
    async fn make(&self, sources: &[String]) -> anyhow::Result<Mark> {
        let raw = self.folder.join("base.raw");
        bootstrap(&self.folder, &raw, sources).await?;
        let mut tree = Tree::read(&raw)?;
        clean(&mut tree);
        needed(&tree).context("Debian's packages no longer bring all that jobs need: correct the list")?;
        // A file that cannot be removed cannot be written either, which is told below.
        let _ = std::fs::remove_file(&self.mark);
        let blob = Layer::write(&tree, &self.file, TIME)?.blob;
        let status = tree.content("var/lib/dpkg/status")?.unwrap_or_default();
        let pin = Pin::of(&String::from_utf8_lossy(&status), &blob.digest);
        let mark = Mark { packages: PACKAGES.map(str::to_owned).to_vec(), blob, pin, instead_of: None };
        self.keep(&mark)?;
        std::fs::remove_file(&raw).with_context(|| format!("remove {}", raw.display()))?;
        Ok(mark)
    }

    fn keep(&self, mark: &Mark) -> anyhow::Result<()> {
        std::fs::write(&self.mark, serde_json::to_vec(mark)?).with_context(|| format!("write {}", self.mark.display()))
    }
}

async fn bootstrap(folder: &Path, raw: &Path, sources: &[String]) -> anyhow::Result<()> {
    ensure_mmdebstrap(folder).await?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--variant=minbase", "--format=tar", "--components=main", "--include"]).arg(PACKAGES.join(","));
    command.args(["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"]);
    command.arg(SUITE).arg(raw).args(sources).env("SOURCE_DATE_EPOCH", TIME.to_string());
    let from = if sources.is_empty() { "" } else { ", from the archive" };
    let mut step = Step::begin(format!("base of the executor image (Debian {SUITE}{from})"));
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
        for name in [
            "var/cache/ldconfig/aux-cache",
            "var/log/dpkg.log",
            "etc/hostname",
            "etc/apt/sources.list",
            "usr/share/doc/git/README.md",
        ] {
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
