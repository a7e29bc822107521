//! What stands in each image beside its base. The `Containerfile`s in `packaging/images` say the same, which a test holds
//! them to.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::layout::Settings;
use super::tree::{ROOT, Tree};

/// Where our program lies in either image (requirements §1.3: a sandbox is created with this entrypoint).
pub(super) const PROGRAM: &str = "usr/local/bin/gitea-dynamic-runner";

/// Where the official runner lies in the executor image.
pub(super) const RUNNER: &str = "usr/local/bin/gitea-runner";

const PATH: (&str, &str) = ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");

/// How an image is used.
pub(super) struct Recipe {
    /// The image's last name, and the file's.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// User and group.
    pub(super) user: u32,
    pub(super) command: &'static str,
    pub(super) environment: &'static [(&'static str, &'static str)],
    pub(super) folder: &'static str,
    pub(super) ports: &'static [&'static str],
}

/// IMG-1.
pub(super) const CONTROLLER: Recipe = Recipe {
    name: "gitea-dynamic-runner",
    title: "One Gitea registration; every job in its own executor with its own identity",
    user: 65532,
    command: "controller",
    environment: &[PATH],
    folder: "/",
    ports: &["8443/tcp", "9090/tcp"],
};

/// IMG-2, IMG-3: Pods and VMs use the same.
pub(super) const EXECUTOR: Recipe = Recipe {
    name: "gitea-task-executor",
    title: "The program around one official Gitea runner, with what jobs need",
    user: 2000,
    command: "executor",
    environment: &[PATH, ("HOME", "/home/runner"), ("LANG", "C.UTF-8")],
    folder: "/home/runner",
    ports: &[],
};

impl Recipe {
    /// What the image's configuration says.
    pub(super) fn settings(&self, revision: &str) -> Settings {
        let label = |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
        Settings {
            user: format!("{0}:{0}", self.user),
            env: self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            entrypoint: vec![format!("/{PROGRAM}")],
            cmd: vec![self.command.to_owned()],
            working_dir: self.folder.to_owned(),
            exposed_ports: self.ports.iter().map(|port| ((*port).to_owned(), serde_json::json!({}))).collect(),
            labels: BTreeMap::from([
                label("title", self.name),
                label("description", self.title),
                label("licenses", "MIT OR Apache-2.0"),
                label("version", env!("CARGO_PKG_VERSION")),
                label("revision", revision),
            ]),
        }
    }
}

/// The controller's one layer: the program, and the folders above it.
pub(super) fn controller(program: &Path) -> Tree {
    let mut tree = Tree::default();
    for folder in ["usr", "usr/local", "usr/local/bin"] {
        tree.folder(folder, 0o755, ROOT);
    }
    tree.program(PROGRAM, program);
    tree
}

/// The layer above a base: our program, the official runner, and the user with its home.
pub(super) fn executor(base: &Tree, program: &Path, runner: &Path) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    let id = EXECUTOR.user;
    tree.program(PROGRAM, program);
    tree.program(RUNNER, runner);
    let home = EXECUTOR.folder.trim_start_matches('/');
    tree.folder(home, 0o750, (id.into(), id.into()));
    let passwd = format!("runner:x:{id}:{id}::{}:/bin/sh", EXECUTOR.folder);
    for (file, line) in [("etc/passwd", passwd), ("etc/group", format!("runner:x:{id}:"))] {
        let before =
            String::from_utf8(base.content(file)?.unwrap_or_default()).with_context(|| format!("read {file}"))?;
        tree.text(file, 0o644, with_line(&before, &line).with_context(|| format!("/{file} of the base"))?);
    }
    Ok(tree)
}

/// Adds a line of passwd or group, unless it is there; a name or number that somebody else has is refused.
fn with_line(text: &str, line: &str) -> anyhow::Result<String> {
    let field = |line: &'_ str, at: usize| line.split(':').nth(at).map(str::to_owned);
    for taken in text.lines() {
        if taken == line {
            return Ok(text.to_owned());
        }
        if field(taken, 0) == field(line, 0) || field(taken, 2) == field(line, 2) {
            bail!("{taken:?} is in the place of {line:?}: name and number must be free, or exactly so");
        }
    }
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("{text}{gap}{line}\n"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// IMG-2: the user is added to the base's, once, and takes nobody's place.
    #[test]
    fn the_user_of_jobs() {
        let line = "runner:x:2000:";
        assert_eq!(with_line("", line).unwrap(), "runner:x:2000:\n");
        assert_eq!(with_line("root:x:0:", line).unwrap(), "root:x:0:\nrunner:x:2000:\n");
        assert_eq!(with_line("runner:x:2000:\nroot:x:0:\n", line).unwrap(), "runner:x:2000:\nroot:x:0:\n");
        assert!(with_line("ubuntu:x:2000:\n", line).is_err());
        assert!(with_line("runner:x:1001:\n", line).is_err());
    }

    /// One instruction of a Containerfile per line, continued lines joined, the rest of the file left out.
    fn instructions(file: &str) -> Vec<(String, String)> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/images").join(file);
        let text = std::fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        lines.map(words).map(|line| line.split_once(' ').map(|(a, b)| (a.into(), b.into())).unwrap()).collect()
    }

    #[track_caller]
    fn same_as(file: &str, recipe: &Recipe) {
        let all = instructions(file);
        let of =
            |name: &str| all.iter().filter(|(word, _)| word == name).map(|(_, rest)| rest.as_str()).collect::<Vec<_>>();
        let settings = recipe.settings("");
        assert_eq!(of("USER"), [settings.user.as_str()], "{file}");
        assert_eq!(of("ENTRYPOINT"), [serde_json::to_string(&settings.entrypoint).unwrap()], "{file}");
        assert_eq!(of("CMD"), [serde_json::to_string(&settings.cmd).unwrap()], "{file}");
        assert_eq!(of("ENV"), settings.env.iter().map(String::as_str).collect::<Vec<_>>(), "{file}");
        assert_eq!(of("WORKDIR"), [settings.working_dir.as_str()], "{file}");
        let ports: Vec<String> = settings.exposed_ports.keys().cloned().collect();
        assert_eq!(of("EXPOSE").join(" "), ports.join(" "), "{file}");
    }

    /// IMG-1, IMG-2, NEW-144: who builds with an engine gets the same user, command, environment, ports and files.
    #[test]
    fn the_containerfiles_say_the_same() {
        same_as("controller.Containerfile", &CONTROLLER);
        same_as("executor.Containerfile", &EXECUTOR);
        let copies = |file: &str| -> Vec<String> {
            let copies = instructions(file).into_iter().filter(|(word, _)| word == "COPY");
            copies.map(|(_, rest)| rest.rsplit(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(copies("controller.Containerfile"), [format!("/{PROGRAM}")]);
        assert_eq!(copies("executor.Containerfile"), [format!("/{PROGRAM}"), format!("/{RUNNER}")]);
        let run: String =
            instructions("executor.Containerfile").into_iter().filter(|(w, _)| w == "RUN").map(|r| r.1).collect();
        let packages = run.split("--no-install-recommends ").nth(1).and_then(|rest| rest.split(" &&").next()).unwrap();
        assert_eq!(packages.split(' ').collect::<Vec<_>>(), super::super::base::PACKAGES);
        // No default: what is built without a digest is not what was built yesterday.
        let bases =
            instructions("executor.Containerfile").into_iter().filter(|(word, _)| word == "ARG" || word == "FROM");
        let expected = [("ARG", "BASE"), ("FROM", "${BASE}")].map(|(word, rest)| (word.to_owned(), rest.to_owned()));
        assert_eq!(bases.collect::<Vec<_>>(), expected);
    }
}
