//! What an image is made of, as CycloneDX (NEW-144): Rust crates as cargo resolved them, Debian packages as dpkg knows
//! them, Go modules as the runner's own program names them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// The document of one image.
pub(super) fn document(name: &str, digest: &str, date: u64, components: Vec<Value>) -> anyhow::Result<Value> {
    let time = jiff::Timestamp::from_second(i64::try_from(date)?)?.to_string();
    let hash = digest.trim_start_matches("sha256:");
    let image = json!({
        "type": "container", "name": name, "version": env!("CARGO_PKG_VERSION"),
        "hashes": [{ "alg": "SHA-256", "content": hash }],
    });
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": { "timestamp": time, "component": image }, "components": components,
    }))
}

/// What we read of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// None for a crate of this workspace.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None for what is linked in; else `dev` or `build`.
    kind: Option<String>,
}

/// The crates that are linked into a package's programs.
pub(super) fn crates(root: &Path, package: &str, target: &str) -> anyhow::Result<Vec<Value>> {
    let mut command = Command::new(crate::test::cargo());
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]).current_dir(root);
    let output = command.output().context("start cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    linked(&serde_json::from_slice(&output.stdout).context("read what cargo metadata wrote")?, package)
}

fn linked(metadata: &Metadata, package: &str) -> anyhow::Result<Vec<Value>> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let ours = metadata.packages.iter().find(|p| p.name == package && p.source.is_none());
    let mut open = vec![ours.with_context(|| format!("no package {package}"))?.id.as_str()];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            let linked = nodes[id].deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            open.extend(linked.map(|dep| dep.pkg.as_str()));
        }
    }
    let mut found: Vec<&Package> = seen.into_iter().filter_map(|id| packages.get(id).copied()).collect();
    found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(found.into_iter().map(Package::component).collect())
}

impl Package {
    fn component(&self) -> Value {
        let mut component = json!({ "type": "library", "name": self.name, "version": self.version });
        if self.source.is_some() {
            component["purl"] = format!("pkg:cargo/{}@{}", self.name, escaped(&self.version)).into();
        }
        if let Some(license) = &self.license {
            // The older spelling of "or".
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        component
    }
}

/// A package that dpkg has installed.
pub(super) struct Installed {
    pub(super) name: String,
    pub(super) version: String,
    architecture: String,
}

/// What dpkg's list has as installed.
pub(super) fn installed(status: &str) -> impl Iterator<Item = Installed> {
    status.split("\n\n").filter_map(|about| {
        let of = |name: &str| field(about, name, ':');
        let package = Installed { name: of("Package")?, version: of("Version")?, architecture: of("Architecture")? };
        (of("Status")? == "install ok installed").then_some(package)
    })
}

/// A line's value, without quotes.
fn field(text: &str, name: &str, after: char) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(after).map(str::trim))?;
    Some(value.trim_matches('"').to_owned())
}

/// The installed packages of dpkg's list, and the system they belong to.
pub(super) fn debian(status: &str, os_release: &str) -> Vec<Value> {
    let of_system = |name: &str| field(os_release, name, '=').unwrap_or_default();
    let (id, version) = (of_system("ID"), of_system("VERSION_ID"));
    let system = (!id.is_empty()).then(|| json!({ "type": "operating-system", "name": id, "version": version }));
    let packages = installed(status).map(|Installed { name, version: is, architecture }| {
        let purl =
            format!("pkg:deb/{id}/{}@{}?arch={architecture}&distro={id}-{version}", escaped(&name), escaped(&is));
        json!({ "type": "library", "name": name, "version": is, "purl": purl })
    });
    system.into_iter().chain(packages).collect()
}

/// A program written in Go and the modules that it says it was built from.
pub(super) fn go_program(name: &str, path: &Path) -> anyhow::Result<Vec<Value>> {
    let content = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let hash = super::layout::digest(&content);
    let hashes = json!([{ "alg": "SHA-256", "content": hash.trim_start_matches("sha256:") }]);
    let program = json!({ "type": "application", "name": name, "hashes": hashes });
    Ok(std::iter::once(program).chain(modules(&module_list(&content))).collect())
}

/// What the linker of Go puts before and after the list of modules (`cmd/go/internal/modload`, since Go 1.13).
const MODULES: [&[u8; 16]; 2] = [
    b"\x30\x77\xaf\x0c\x92\x74\x08\x02\x41\xe1\xc1\x07\xe6\xd6\x18\xe6",
    b"\xf9\x32\x43\x31\x86\x18\x20\x72\x00\x82\x42\x10\x41\x16\xd8\xf2",
];

/// The list of modules in a program, as `go version -m` shows it; empty for one that has none.
fn module_list(program: &[u8]) -> String {
    let after = |bytes: &[u8], mark: &[u8; 16]| bytes.windows(mark.len()).position(|window| window == mark);
    let list = after(program, MODULES[0]).map(|at| &program[at + MODULES[0].len()..]);
    let list = list.and_then(|list| list.get(..after(list, MODULES[1])?));
    String::from_utf8_lossy(list.unwrap_or_default()).into_owned()
}

fn modules(told: &str) -> Vec<Value> {
    let rows = told.lines().map(|line| line.split('\t').filter(|cell| !cell.is_empty()).collect::<Vec<_>>());
    let modules = rows.filter_map(|row| match row.as_slice() {
        ["dep" | "=>", module, version, ..] => Some(json!({
            "type": "library", "name": module, "version": version,
            "purl": format!("pkg:golang/{module}@{}", escaped(version)),
        })),
        _ => None,
    });
    modules.collect()
}

/// As a package URL wants it.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('+', "%2B").replace('~', "%7E")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// NEW-144: what is linked in, and only that: no tool of a build, no crate of a test.
    #[test]
    fn crates_that_are_linked_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = crate::build::target();
        let names = |package: &str| -> Vec<String> {
            let found = crates(&root, package, &target).unwrap();
            found.iter().map(|component| component["name"].as_str().unwrap().to_owned()).collect()
        };
        let executor = names("executor");
        for there in ["executor", "domain", "rustls", "ring", "tokio"] {
            assert!(executor.iter().any(|name| name == there), "no {there}");
        }
        for absent in ["controller", "testkit", "cc", "kube"] {
            assert!(!executor.iter().any(|name| name == absent), "{absent}");
        }
        assert!(names("controller").iter().any(|name| name == "kube"));
    }

    /// NEW-144.
    #[test]
    fn packages_of_debian() {
        let status = "Package: git\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:2.47.3-0+deb13u1\n\n\
            Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n";
        let found = debian(status, "PRETTY_NAME=\"Debian\"\nVERSION_ID=\"13\"\nID=debian\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0]["type"], "operating-system");
        assert_eq!(found[1]["purl"], "pkg:deb/debian/git@1:2.47.3-0%2Bdeb13u1?arch=amd64&distro=debian-13");
        assert!(debian("", "").is_empty());
    }

    /// NEW-144, T75: the official runner's modules are read from the program itself, whether or not there is a `go`.
    #[test]
    fn modules_of_go() {
        let list = "path\tm\nmod\tm\tv1\th\ndep\tgithub.com/a/b\tv1.2.3\th1:x\nbuild\t-tags=\n";
        let program = [b"\x7fELF", MODULES[0].as_slice(), list.as_bytes(), MODULES[1], b"more"].concat();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &program).unwrap();
        let found = go_program("runner", file.path()).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[1]["purl"], "pkg:golang/github.com/a/b@v1.2.3");
        for cut in [&program[..program.len() - 8], &program[..30], b""] {
            assert_eq!(module_list(cut), "");
        }
    }
}
