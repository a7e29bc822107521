//! The program itself around the runner's process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use executor::Starter;

use crate::double::{Act, Facade, Seen};
use crate::world::{Run, limits, steps};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gitea-task-executor");

/// NEW-113: the way through a second life of the program leads to the same runner, with the same environment.
#[tokio::test]
async fn second_life() {
    let facade = Facade::start(steps(&["env | grep -c ^GDR_ || echo clean"]), |_| Act::Serve).await;
    let starter = Starter::Reborn { program: PROGRAM.into(), arguments: Vec::new() };
    assert_eq!(Run::start_by(starter, &facade, limits()).code().await, 0);
    assert!(facade.seen().iter().any(Seen::is_last_state));
    assert!(facade.log().iter().any(|row| row == "clean"), "{:#?}", facade.log());
}

/// WFL-1, CMP-9, NEW-11: a job asks for its identity by the program's name. A wrong word or no endpoint is a usage error;
/// nobody behind the endpoint is a failure that names it.
#[test]
fn the_words_of_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = format!("unix://{}/none.sock", dir.path().display());
    for (word, endpoint, code, part) in [
        ("svid", None, 2, "SPIFFE_ENDPOINT_SOCKET is not set"),
        ("svid", Some(nobody.as_str()), 1, "none.sock gave no identity"),
        ("controller", None, 2, "Usage:"),
        ("--help", None, 0, "svid"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.arg(word).env_clear().envs(endpoint.map(|endpoint| ("SPIFFE_ENDPOINT_SOCKET", endpoint)));
        let output = command.output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        assert_eq!(output.status.code(), Some(code), "{word}");
        assert!(String::from_utf8_lossy(&told).contains(part), "{word}: {}", String::from_utf8_lossy(&told));
    }
}

/// §1.5: a runner that is not there ends with 13, started either way.
#[tokio::test]
async fn no_such_runner() {
    for starter in [Starter::Direct, Starter::Reborn { program: PROGRAM.into(), arguments: Vec::new() }] {
        let facade = Facade::start(steps(&["true"]), |_| Act::Serve).await;
        let run = Run::start_with(starter, "/no/such/runner".into(), &facade, limits());
        assert_eq!(run.code().await, 13);
        assert!(facade.seen().iter().any(Seen::is_goodbye));
    }
}

/// NEW-113: a runner does not outlive an executor that is killed. Its pipe closes when it is gone.
#[tokio::test]
async fn dies_with_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let runner = dir.path().join("runner");
    std::fs::write(&runner, "#!/bin/sh\necho up\nexec sleep 60\n").unwrap();
    std::fs::set_permissions(&runner, PermissionsExt::from_mode(0o755)).unwrap();
    let mut parent = Command::new("sh")
        .args(["-c", "GDR_RUNNER_PARENT=$$ \"$0\" & wait", PROGRAM])
        .env("GDR_RUNNER_PROGRAM", &runner)
        .env("GDR_RUNNER_CONFIG_FILE", "unused")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(parent.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    parent.kill().unwrap();
    parent.wait().unwrap();
    let rest = tokio::task::spawn_blocking(move || output.read_to_end(&mut Vec::new()).unwrap());
    tokio::time::timeout(Duration::from_secs(20), rest).await.expect("the runner outlives its parent").unwrap();
}

/// EXE-1: everything that is missing or malformed, at once, as an error, and exit 2.
#[test]
fn environment() {
    let output = Command::new(PROGRAM)
        .env_clear()
        .env("CI_RUNNER_FACADE_URL", "http://facade.example")
        .env("CI_RUNNER_BACKEND", "cloud")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(r#""level":"ERROR""#), "{text}");
    for name in [
        "CI_ASSIGNMENT_ID",
        "CI_RUNNER_CAPABILITY",
        "CI_RUNNER_FACADE_URL",
        "CI_RUNNER_FACADE_SPIFFE_ID",
        "CI_SPIFFE_ID",
        "CI_RUNNER_BACKEND",
        "SPIFFE_ENDPOINT_SOCKET",
    ] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
}
