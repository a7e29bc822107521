//! Which base a commit's executor image has: `packaging/images/executor-base.json` (NEW-144, T75).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::base::SUITE;
use super::sbom;

/// What a base was made of, and the digest of what that became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pin {
    /// When it was made, as archives of mirrors name their states: `20251201T104500Z`.
    pub(super) time: String,
    /// Of the layer: `sha256:` and 64 hex digits.
    pub(super) digest: String,
    /// The version of each package: what tells a reader why a digest changed.
    pub(super) packages: BTreeMap<String, String>,
}

impl Pin {
    /// Of a base that was made just now, with the list of its packages that dpkg keeps.
    pub(super) fn of(status: &str, digest: &str) -> Self {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let packages = sbom::installed(status).map(|package| (package.name, package.version)).collect();
        Self { time, digest: digest.to_owned(), packages }
    }

    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))
    }

    pub(super) fn write(&self, file: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(file, text).with_context(|| format!("write {}", file.display()))
    }

    /// The mirrors as they were, in an archive that keeps every state below the time it was taken.
    pub(super) fn sources(&self, archive: &str) -> Vec<String> {
        let archive = archive.trim_end_matches('/');
        let of = |part: &str, suite: &str| {
            format!("deb [check-valid-until=no] {archive}/{part}/{}/ {SUITE}{suite} main", self.time)
        };
        vec![of("debian", ""), of("debian", "-updates"), of("debian-security", "-security")]
    }

    /// Fails unless `made` is this base, with what differs and what to do.
    pub(super) fn hold(&self, made: &Self) -> anyhow::Result<()> {
        if self.digest == made.digest {
            return Ok(());
        }
        let names: BTreeSet<&String> = self.packages.keys().chain(made.packages.keys()).collect();
        let version = |pin: &Self, name: &String| pin.packages.get(name).cloned().unwrap_or_else(|| "none".to_owned());
        let all: Vec<String> = names
            .into_iter()
            .filter(|name| self.packages.get(*name) != made.packages.get(*name))
            .map(|name| format!("  - {name}: {} is pinned, there is {}", version(self, name), version(made, name)))
            .collect();
        let differences = if all.is_empty() {
            format!("the packages are the same, and yet its digest is {} and not {}", made.digest, self.digest)
        } else {
            all.join("\n")
        };
        bail!(
            "the base of the executor image is not the one of this commit (packaging/images/executor-base.json):\n\
             {differences}\n\
             An archive of Debian's former states, named with --archive, still has the pinned ones; --renew-base pins those of \
             today"
        )
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const STATUS: &str = "Package: git\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.47.3-0+deb13u1\n\n\
        Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n\n";

    /// NEW-144, T75: a base of other bytes is refused, with each package that differs; the same bytes are taken whenever
    /// they were made.
    #[test]
    fn another_base_is_refused() {
        let pinned = Pin::of(STATUS, "sha256:aa");
        assert_eq!(pinned.packages.len(), 1);
        let later = Pin { time: "20991231T000000Z".to_owned(), ..pinned.clone() };
        pinned.hold(&later).unwrap();
        let moved = Pin::of(&STATUS.replace("deb13u1", "deb13u2"), "sha256:bb");
        let text = pinned.hold(&moved).unwrap_err().to_string();
        let line = "git: 1:2.47.3-0+deb13u1 is pinned, there is 1:2.47.3-0+deb13u2";
        assert!(text.contains(line) && text.contains("--archive") && text.contains("--renew-base"), "{text}");
        let silent = Pin { digest: "sha256:bb".to_owned(), ..pinned.clone() };
        assert!(pinned.hold(&silent).unwrap_err().to_string().contains("sha256:bb"));
    }

    /// NEW-144: the file of this commit can be read, and names a whole base.
    #[test]
    fn the_pin_of_this_commit() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(super::super::PIN);
        let pin = Pin::read(&file).unwrap();
        assert!(pin.digest.starts_with("sha256:") && pin.digest.len() == 71, "{}", pin.digest);
        for wanted in super::super::base::PACKAGES {
            assert!(pin.packages.contains_key(wanted), "{wanted} is not pinned");
        }
        let sources = pin.sources("http://archive.example.org/");
        assert_eq!(
            sources[2],
            format!(
                "deb [check-valid-until=no] http://archive.example.org/debian-security/{}/ trixie-security main",
                pin.time
            )
        );
    }
}
