//! The program as an operator meets it: arguments, exit codes, what stands on stdout and stderr.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs the program with exactly these arguments and this environment, outside a terminal.
fn run(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"));
    command.args(args).env_clear().envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Every line of stderr as JSON (CMP-11).
#[track_caller]
fn log(output: &Output) -> Vec<Value> {
    text(&output.stderr).lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

#[track_caller]
fn exits(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
}

/// CMP-9: an unknown word and surplus arguments.
#[test]
fn usage() {
    let output = run(&["frobnicate"], &[]);
    exits(&output, 2);
    assert!(text(&output.stderr).starts_with("unknown command \"frobnicate\"\n"));
    exits(&run(&["controller", "extra"], &[]), 2);
    let help = run(&["--help"], &[]);
    exits(&help, 0);
    assert!(help.stderr.is_empty() && text(&help.stdout).contains("runs-on: local"));
}

/// CMP-9: nothing but the name, in an environment that configures nothing, shows the help and not a list of errors.
#[test]
fn a_bare_call_helps() {
    let bare = run(&[], &[("LOG_LEVEL", "debug"), ("PATH", "/bin")]);
    exits(&bare, 2);
    assert_eq!(text(&bare.stderr), text(&run(&["--help"], &[]).stdout));
    assert!(bare.stdout.is_empty());
}

/// Completions and manual pages offer every word of `--help`, and no other.
#[test]
fn completions_and_manual_pages() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell], &[]);
        exits(&script, 0);
        let script = text(&script.stdout);
        assert!(script.contains("standalone") && !script.contains("supervise"), "{shell}");
    }
    let words = "COMP_WORDS=(gitea-dynamic-runner standalone --cap); COMP_CWORD=2";
    let asked =
        "source <(\"$0\" completions bash); WORDS; _gitea__dynamic__runner gitea-dynamic-runner --cap standalone";
    let bash = ["-c", &format!("{}; echo \"${{COMPREPLY[*]}}\"", asked.replace("WORDS", words))].map(str::to_owned);
    let bash = Command::new("bash").args(bash).arg(env!("CARGO_BIN_EXE_gitea-dynamic-runner")).output().unwrap();
    assert_eq!(text(&bash.stdout), "--capacity\n", "{}", text(&bash.stderr));
    let dir = tempfile::tempdir().unwrap();
    let listed = run(&["man", dir.path().to_str().unwrap()], &[]);
    exits(&listed, 0);
    let names = text(&listed.stdout);
    for page in
        ["gitea-dynamic-runner.1", "gitea-dynamic-runner-standalone.1", "gitea-dynamic-runner-config-effective.1"]
    {
        assert!(names.lines().any(|name| name == page), "{names}");
    }
    assert!(!names.contains("supervise") && !names.contains("help"), "{names}");
    let page = std::fs::read_to_string(dir.path().join("gitea-dynamic-runner-standalone.1")).unwrap();
    assert!(page.contains("registration\\-token\\-file") && page.contains("Not remembered"), "{page}");
    let whole = run(&["man"], &[]);
    exits(&whole, 0);
    assert!(text(&whole.stdout).contains(".TH gitea-dynamic-runner 1"), "{}", text(&whole.stdout));
    let nowhere = run(&["man", "/nowhere"], &[]);
    exits(&nowhere, 1);
    assert!(text(&nowhere.stderr).contains("/nowhere: No such file"), "{}", text(&nowhere.stderr));
}

/// CFG-2, CMP-11, SCH-8: no word is the controller; everything that is missing is told at once, one JSON line each, and
/// the last line is `runner stopped`.
#[test]
fn missing_settings_come_together() {
    let output = run(&[], &[("COMPONENTS", "scheduler,local-worker"), ("QUEUE", "embedded")]);
    exits(&output, 2);
    let log = log(&output);
    let problems: Vec<_> = log.iter().filter(|l| l["message"] == "configuration error").map(|l| &l["error"]).collect();
    for name in ["STATE_DIR", "GITEA_INSTANCE_URL", "TRUST_DOMAIN", "SPIFFE_ENDPOINT_SOCKET", "RUNNER_FACADE_URL"] {
        assert!(problems.iter().any(|p| **p == format!("{name} is required")), "{name}: {problems:?}");
    }
    let last = log.last().unwrap();
    assert_eq!((&last["message"], &last["level"]), (&"runner stopped".into(), &"ERROR".into()));
    assert!(last["error"].as_str().unwrap().contains("wrong settings"));
}

/// T44, CFG-2, CMP-8: with one setting wrong nobody is asked and nothing is made.
#[test]
fn a_wrong_setting_contacts_nobody() {
    let (gitea, dir) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    gitea.set_nonblocking(true).unwrap();
    let (url, token) = (format!("http://{}", gitea.local_addr().unwrap()), dir.path().join("token"));
    std::fs::write(&token, "a-token").unwrap();
    let (state, token) = (dir.path().join("state"), token.to_str().unwrap());
    let args = ["standalone", "--gitea", &url, "--state", state.to_str().unwrap(), "--registration-token-file", token];
    exits(&run(&[&args[..], &["--set", "CLAIM_LIMIT=30"]].concat(), &[("PATH", "/usr/bin:/bin")]), 2);
    assert!(gitea.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "Gitea was asked");
    assert!(!state.exists());
}

/// T44, CFG-2, CFG-13, NEW-48, F36: what is wrong with NATS is told together, with exit 2, before a server is contacted.
#[test]
fn wrong_settings_of_nats_contact_nobody() {
    let (nats, dir) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    nats.set_nonblocking(true).unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "hunter2hunter2").unwrap();
    let (state, url) = (dir.path().join("state"), format!("nats://{},nats://10.0.0.1", nats.local_addr().unwrap()));
    let output = run(
        &["controller"],
        &[
            ("COMPONENTS", "scheduler,local-worker"),
            ("QUEUE", "jetstream"),
            ("STATE_DIR", state.to_str().unwrap()),
            ("NATS_URL", &url),
            ("NATS_STREAM", "a.b"),
            ("NATS_PRODUCER_PASSWORD_FILE", password.to_str().unwrap()),
        ],
    );
    exits(&output, 2);
    let told = text(&output.stderr);
    for part in [
        "nats://10.0.0.1:4222 would carry passwords and tasks",
        "NATS_STREAM: \\\"a.b\\\" is not accepted",
        "NATS_WORKER_PASSWORD_FILE is required",
        "TRUST_DOMAIN is required",
    ] {
        assert!(told.contains(part), "{part}\n---\n{told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
    assert!(nats.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "NATS was asked");
    assert!(!state.exists());
}

/// CMP-3, CMP-4, CMP-5, SCH-8: the texts of a wrong selection.
#[test]
fn wrong_selections() {
    for (selection, part) in [
        ("scheduler,,pod-worker", "unknown controller component \"\""),
        ("webhook", "unknown controller component \"webhook\""),
        ("foo", "unknown controller component \"foo\""),
        ("local-worker", "splitting is not safe"),
        ("scheduler", "the scheduler needs at least one backend"),
    ] {
        let output = run(&["controller", "--components", selection], &[]);
        exits(&output, 2);
        let found = log(&output).iter().any(|line| line["error"].as_str().unwrap().contains(part));
        assert!(found, "{selection}: {}", text(&output.stderr));
    }
}

/// CFG-8, NEW-139: what is in effect, from where, and no secret.
#[test]
fn effective_settings() {
    let dir = tempfile::tempdir().unwrap();
    let (token, file) = (dir.path().join("token"), dir.path().join("gdr.toml"));
    std::fs::write(&token, "hunter2hunter2").unwrap();
    std::fs::write(&file, "claim_limit = \"3m\"\n").unwrap();
    let environment =
        [("GITEA_RUNNER_TOKEN_FILE", token.to_str().unwrap()), ("NATS_URL", "tls://me:hunter2@nats:4222")];
    let args = ["config", "effective", "--json", "--config", file.to_str().unwrap(), "--set", "LOOK_AHEAD=3"];
    let output = run(&args, &environment);
    exits(&output, 2);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| shown["settings"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone();
    assert_eq!(of("LOOK_AHEAD")["source"], "flag");
    assert_eq!(of("CLAIM_LIMIT")["value"], "3m");
    assert!(of("CLAIM_LIMIT")["source"].as_str().unwrap().starts_with("file "));
    assert_eq!(of("NATS_URL")["value"], "tls://***@nats:4222");
    assert_eq!(of("TERMINAL_GRACE")["source"], "default");
    assert_eq!(of("RUN_LIMIT")["value"], Value::Null);
    let all = text(&output.stdout) + &text(&output.stderr);
    assert!(!all.contains("hunter2"), "{all}");
}

/// CFG-8: the view of one-host mode takes its flags, shows what it decides itself, and tells every error.
#[test]
fn effective_settings_of_standalone() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let flags = ["--gitea", "https://git.example.org", "--state", state.to_str().unwrap(), "--capacity", "3"];
    let output = run(&[&["config", "effective", "standalone", "--json"], &flags[..]].concat(), &[]);
    exits(&output, 0);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |name: &str| shown["settings"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap().clone();
    assert_eq!((&of("LOCAL_CAPACITY")["value"], &of("LOCAL_CAPACITY")["source"]), (&"3".into(), &"flag".into()));
    assert_eq!((&of("QUEUE")["value"], &of("QUEUE")["source"]), (&"embedded".into(), &"standalone".into()));
    assert!(!state.exists());
    let wrong =
        run(&["config", "effective", "standalone", "--capacity", "0", "--set", "CLAIM_LIMIT=5"], &[("HOME", "/h")]);
    exits(&wrong, 2);
    let problems = text(&wrong.stderr);
    assert!(problems.contains("LOCAL_CAPACITY: \"0\"") && problems.contains("CLAIM_LIMIT: \"5\""), "{problems}");
}

/// A start that fails in one-host mode: one JSON line with the remedy, and no state folder.
#[test]
fn standalone_without_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let args = ["standalone", "--gitea", "https://git.example.org", "--state", state.to_str().unwrap()];
    let output = run(&args, &[]);
    exits(&output, 2);
    let log = log(&output);
    assert_eq!(log.len(), 1, "{log:?}");
    assert_eq!(log[0]["message"], "runner stopped");
    assert!(log[0]["remedy"].as_str().unwrap().ends_with("add --registration-token-file FILE"));
    assert!(!Path::new(&state).exists());
}

/// EXE-5, NEW-147: without the official runner `controller` refuses with the very words of `standalone`, before it makes
/// or asks anything.
#[test]
fn no_start_without_the_official_runner() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let (secret, key, state) = (file("secret", "a-secret"), file("key", &"k".repeat(64)), dir.path().join("state"));
    let (facade, state) = ("spiffe://example.org/controller", state.to_str().unwrap());
    let settings = [
        ("COMPONENTS", "scheduler,local-worker"),
        ("QUEUE", "embedded"),
        ("IDENTITY_ISSUER", "built-in"),
        ("GITEA_INSTANCE_URL", "http://127.0.0.1:1"),
        ("GITEA_RUNNER_UUID_FILE", &secret),
        ("GITEA_RUNNER_TOKEN_FILE", &secret),
        ("TRUST_DOMAIN", "example.org"),
        ("RUNNER_FACADE_LISTEN", "127.0.0.1:0"),
        ("RUNNER_FACADE_URL", "https://127.0.0.1:1"),
        ("RUNNER_FACADE_SPIFFE_ID", facade),
        ("RUNNER_FACADE_CAPABILITY_KEY_FILE", &key),
        ("ENVELOPE_KEY_FILE", &key),
        ("STATE_DIR", state),
        ("OPS_LISTEN", "127.0.0.1:0"),
    ];
    let token = ["--gitea", "http://127.0.0.1:1", "--state", state, "--registration-token-file", &secret];
    let standalone = [&["standalone"], &token[..]].concat();
    for (variable, path, problem) in [
        ("PATH", "/nowhere", "the official Gitea runner was not found: no gitea-runner or act_runner in PATH"),
        ("GITEA_RUNNER_BINARY", "their-runner", "the official Gitea runner was not found: no their-runner in PATH"),
        (
            "GITEA_RUNNER_BINARY",
            &key,
            &format!("{key} cannot be used as the official Gitea runner: it is not executable for this user"),
        ),
    ] {
        let controller = run(&["controller"], &[&settings[..], &[(variable, path)]].concat());
        let standalone = run(&standalone, &[(variable, path)]);
        let mut said = [log(&controller), log(&standalone)];
        for (output, lines) in [controller, standalone].iter().zip(&mut said) {
            exits(output, 1);
            assert_eq!((lines.len(), lines[0]["error"].as_str()), (1, Some(problem)), "{lines:?}");
            assert!(lines[0]["remedy"].as_str().unwrap().contains("https://gitea.com/gitea/runner/releases"));
            lines[0].as_object_mut().unwrap().remove("timestamp");
        }
        assert_eq!(said[0], said[1]);
        assert!(!Path::new(state).exists());
    }
}

/// The questions that need a running part say so when it is away.
#[test]
fn nobody_to_ask() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&["status", "--state", dir.path().to_str().unwrap()], &[]);
    exits(&output, 1);
    assert!(text(&output.stderr).contains("no controller has run on"));
    let output = run(&["svid"], &[]);
    exits(&output, 2);
    assert!(text(&output.stderr).contains("SPIFFE_ENDPOINT_SOCKET is not set; inside a job it is set"));
}

/// A disk with 16 KiB, and one on which no file can grow (for machines where we may not mount): one message with the
/// remedy, Gitea made no runner of us, and nothing half-written stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_one_message() {
    let gitea = testkit::gitea::Gitea::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (disk, token, runner) = (dir.path().join("disk"), dir.path().join("token"), dir.path().join("gitea-runner"));
    std::fs::create_dir(&disk).unwrap();
    std::fs::write(&token, gitea.registration_token()).unwrap();
    std::fs::write(&runner, "#!/bin/sh\necho --once; echo gitea-runner version 1.0.8\n").unwrap();
    std::fs::set_permissions(&runner, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let start = |shell: &[&str], limit: &str| {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).args([
            "sh",
            "-c",
            &format!("{limit} && \"$@\"; code=$?; ls -A state; exit $code"),
            "sh",
        ]);
        command.args([env!("CARGO_BIN_EXE_gitea-dynamic-runner"), "standalone", "--gitea", &gitea.url()]);
        command.arg("--registration-token-file").arg(&token).args(["--state", "state"]);
        command.env("GITEA_RUNNER_BINARY", &runner).current_dir(&disk).stdin(Stdio::null()).output().unwrap()
    };
    let mount = "mount -t tmpfs -o size=16k,mode=700 tmpfs . && cd \"$PWD\"";
    let cases = [
        (start(&["unshare", "--map-root-user", "--mount"], mount), " is full: "),
        (start(&["env"], "trap '' XFSZ && ulimit -f 0"), " cannot be used: file too large"),
    ];
    let may_mount =
        Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status().is_ok_and(|s| s.success());
    for (output, part) in cases.iter().skip(usize::from(!may_mount)) {
        exits(output, 1);
        let log = log(output);
        assert_eq!(log.len(), 1, "{log:?}");
        assert!(log[0]["error"].as_str().unwrap().contains(part), "{part}: {log:?}");
        assert!(log[0]["remedy"].as_str().unwrap().contains("--state DIR"), "{log:?}");
        let left = text(&output.stdout);
        assert!(left.lines().all(|name| name == "lock"), "{left}");
    }
    assert_eq!(gitea.counters().registers, 0);
}

/// NEW-98: a flood of connections leaves files for everything else, `status` says when there are few, and the soft limit
/// is raised.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_connections_leaves_files_for_the_rest() {
    let gitea = testkit::gitea::Gitea::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (state, token, runner) = (dir.path().join("s"), dir.path().join("token"), dir.path().join("gitea-runner"));
    std::fs::write(&token, gitea.registration_token()).unwrap();
    std::fs::write(&runner, "#!/bin/sh\necho --once; echo gitea-runner version 1.0.8\n").unwrap();
    std::fs::set_permissions(&runner, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -Sn 100; ulimit -Hn 160; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_gitea-dynamic-runner"),
    ]);
    command.args(["standalone", "--isolation", "none", "--gitea", &gitea.url(), "--registration-token-file"]);
    command.arg(&token).arg("--state").arg(&state).env("GITEA_RUNNER_BINARY", &runner).stderr(Stdio::null());
    let mut program = Ends(command.spawn().unwrap());
    gitea.wait_for("a FetchTask came", |gitea| gitea.counters().fetches > 0, PATIENCE).await.unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.0.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["160", "160"]);
    let port = std::fs::read_to_string(state.join("facade.port")).unwrap();
    let port = port.trim().parse().unwrap();
    let flood: Vec<_> = (0..150).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let mut status = Command::new("timeout");
    status.args(["5", env!("CARGO_BIN_EXE_gitea-dynamic-runner"), "status", "--state"]).arg(&state);
    let status = status.output().unwrap();
    let told = text(&status.stdout);
    assert!(told.contains("SHORTAGE: this process may open 160 files, so that 46 connections"), "{status:?}");
    drop(flood);
    program.0.kill().unwrap();
}

/// A program that ends with its test.
struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _ended = self.0.wait();
    }
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

const UNIT: &str = include_str!("../../../packaging/systemd/gitea-dynamic-runner.service");

/// NEW-147, NEW-53: a stop of the unit leaves running jobs alone, and nothing of it takes their files away.
#[test]
fn the_systemd_unit_leaves_jobs_alone() {
    let lines: Vec<_> = UNIT.lines().filter(|line| !line.starts_with('#')).collect();
    for line in ["KillMode=process", "OOMPolicy=continue", "RestartPreventExitStatus=2"] {
        assert!(lines.contains(&line), "{line}");
    }
    for option in
        ["PrivateTmp", "RuntimeDirectory", "DynamicUser", "RestrictNamespaces", "PrivateDevices", "KillSignal"]
    {
        assert!(!lines.iter().any(|line| line.starts_with(option)), "{option}");
    }
    let start =
        lines.iter().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/gitea-dynamic-runner ")).unwrap();
    let words: Vec<_> = start.split(' ').filter(|word| word.starts_with("--")).collect();
    let help = text(&run(&["standalone", "--help"], &[]).stdout);
    assert!(words.len() == 2 && words.iter().all(|flag| help.contains(flag)), "{words:?}");
}

/// Where systemd is installed, it understands every line of the unit.
#[test]
fn systemd_understands_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("gitea-dynamic-runner.service");
    let ours = UNIT.replace("/usr/local/bin/gitea-dynamic-runner", env!("CARGO_BIN_EXE_gitea-dynamic-runner"));
    std::fs::write(&unit, ours).unwrap();
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).stdin(Stdio::null()).output();
    // A machine without systemd has nobody to ask.
    let Ok(verify) = verify else { return };
    let (out, said) = (text(&verify.stdout), text(&verify.stderr));
    assert!(verify.status.success() && !said.contains("gitea-dynamic-runner.service:"), "{out}{said}");
}
