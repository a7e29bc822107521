//! Whole images, on a root file system of a few files.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use serde_json::json;

use super::layout::{Image, Layer};
use super::readback::{Checked, check};
use super::recipe::{self, CONTROLLER, EXECUTOR};
use super::{Arguments, Profile, base, sbom};

const DATE: u64 = 1_767_225_600;

/// A base that is just enough.
fn small_base(root: &Path) {
    for (name, content) in [
        ("bin/sh", "#!"),
        ("usr/bin/git", "git"),
        ("usr/bin/node", "node"),
        ("etc/ssl/certs/ca-certificates.crt", "pem"),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
    ] {
        std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::fs::write(root.join(name), content).unwrap();
    }
}

/// The executor's image of that base, in a place of its own; `runner` is the content of the runner.
fn executor(base_root: &Path, runner: &str) -> (Vec<u8>, String, Checked) {
    let out = tempfile::tempdir().unwrap();
    let (program, runner_file) = (out.path().join("program"), out.path().join("runner"));
    std::fs::write(&program, "ours").unwrap();
    std::fs::write(&runner_file, runner).unwrap();
    let base = base::given(base_root, out.path()).unwrap();
    let tree = recipe::executor(&base.tree, &program, &runner_file).unwrap();
    let above = Layer::write(&tree, &out.path().join("layer"), DATE).unwrap();
    let archive = out.path().join("image.oci.tar");
    let (name, settings) = ("localhost/x:1", EXECUTOR.settings("commit"));
    let digest = Image { name, settings, layers: &[base.layer, above], date: DATE }.write(&archive).unwrap();
    (std::fs::read(&archive).unwrap(), digest, check(&archive).unwrap())
}

/// IMG-2, IMG-3, NEW-144: two runs write the same bytes, one changed byte of the runner or the base gives another digest,
/// and the image is what its configuration says.
#[test]
fn an_executor_image_is_the_same_again() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_base(one.path());
    small_base(two.path());
    let (bytes, digest, checked) = executor(one.path(), "runner");
    let (again, same, _) = executor(two.path(), "runner");
    assert!(bytes == again && digest == same && digest == checked.digest);
    assert_ne!(digest, executor(one.path(), "Runner").1);
    std::fs::write(two.path().join("usr/bin/git"), "Git").unwrap();
    assert_ne!(digest, executor(two.path(), "runner").1);

    let config = &checked.config["config"];
    assert_eq!(config["User"], "2000:2000");
    assert_eq!(config["Entrypoint"], json!(["/usr/local/bin/gitea-dynamic-runner"]));
    assert_eq!(config["Cmd"], json!(["executor"]));
    assert!(config["Env"].as_array().unwrap().contains(&json!("HOME=/home/runner")));
    assert_eq!(checked.config["created"], "2026-01-01T00:00:00Z");
    let above =
        ["etc/group", "etc/passwd", "home/runner/", "usr/local/bin/gitea-dynamic-runner", "usr/local/bin/gitea-runner"];
    assert_eq!(checked.files[1], above);
    assert!(checked.files[0].iter().any(|name| name == "usr/bin/node"));
}

/// IMG-1, F151, T75: the controller's image is one program: no shell, no interpreter, no package manager, nobody's files.
#[test]
fn a_controller_image_is_one_program() {
    let out = tempfile::tempdir().unwrap();
    let (program, archive) = (out.path().join("program"), out.path().join("image.oci.tar"));
    std::fs::write(&program, "ours").unwrap();
    let layer = Layer::write(&recipe::controller(&program), &out.path().join("layer"), DATE).unwrap();
    let (name, settings) = ("localhost/y:1", CONTROLLER.settings("commit"));
    Image { name, settings, layers: &[layer], date: DATE }.write(&archive).unwrap();
    let checked = check(&archive).unwrap();
    let folders = ["usr/", "usr/local/", "usr/local/bin/"];
    let all = folders.into_iter().chain(["usr/local/bin/gitea-dynamic-runner"]).map(str::to_owned);
    assert_eq!(checked.files, [all.collect::<Vec<_>>()]);
    assert_eq!(checked.config["config"]["User"], "65532:65532");
    assert_eq!(checked.config["config"]["Cmd"], json!(["controller"]));
    let ports = checked.config["config"]["ExposedPorts"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(ports, ["8443/tcp", "9090/tcp"]);
}

/// NEW-144: an archive with a changed byte is not what it says.
#[test]
fn a_changed_byte_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    small_base(root.path());
    let (mut bytes, ..) = executor(root.path(), "the runner's own words");
    let at = bytes.windows(22).position(|part| part == b"the runner's own words").unwrap();
    bytes[at] ^= 1;
    let archive = root.path().join("image.tar");
    std::fs::write(&archive, bytes).unwrap();
    assert!(check(&archive).err().unwrap().to_string().contains("is sha256:"));
}

/// NEW-144: the list of parts names the image it belongs to, and is the same again.
#[test]
fn a_list_of_parts() {
    let document = || sbom::document("localhost/x", "sha256:00ff", DATE, vec![json!({ "name": "a" })]).unwrap();
    assert_eq!(document(), document());
    assert_eq!(document()["metadata"]["component"]["hashes"][0]["content"], "00ff");
    assert_eq!(document()["metadata"]["timestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(document()["components"][0]["name"], "a");
}

/// NEW-144, T75: what is released has the base of its commit, unless somebody asks for another one; only tests take what
/// they find.
#[test]
fn what_is_released_has_the_pinned_base() {
    let file = Path::new("pin");
    let tests = Arguments::for_tests(Path::new("."));
    assert!(matches!(tests.packages(file), base::Packages::Any));
    let released = Arguments { profile: Profile::Release, ..tests };
    assert!(matches!(released.packages(file), base::Packages::Pinned { archive: None, locked: false, .. }));
    let locked = Arguments { locked: true, ..released };
    assert!(matches!(locked.packages(file), base::Packages::Pinned { locked: true, .. }));
    let renewed = Arguments { renew_base: true, ..locked };
    assert!(matches!(renewed.packages(file), base::Packages::Renewed { .. }));
}
