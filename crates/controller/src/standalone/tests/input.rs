//! What a person gives wrongly: token file, runner, flags.

use super::*;

/// The token file: missing, empty, not given; a newline at its end is fine (see [`registers_once`]).
#[tokio::test]
async fn token_files() {
    let bench = Bench::new();
    std::fs::write(bench.path("empty"), " \n").unwrap();
    assert!(std::process::Command::new("mkfifo").arg(bench.path("pipe")).status().unwrap().success());
    for (file, cause) in [
        ("none", "no such file or directory"),
        ("empty", "the file is empty"),
        ("bin", "not a regular file"),
        ("pipe", "it is a pipe; put the secret into a regular file"),
    ] {
        let mut args = bench.args("http://127.0.0.1:1");
        args.registration_token_file = Some(bench.path(file));
        let failed = bench.start(&args, &bench.here()).await;
        let expect = format!(
            "the registration token file DIR/{file} cannot be used: {cause}\n{GET_TOKEN} and write it into that file\nexit 2"
        );
        bench.judge(failed, None, NO_URL, &expect);
    }
    let mut args = bench.args("http://127.0.0.1:1");
    args.registration_token_file = None;
    let failed = bench.start(&args, &bench.here()).await;
    let expect = format!(
        "this state folder has no registration yet, and no --registration-token-file was given\n\
         {GET_TOKEN}, write it into a file, and add --registration-token-file FILE\n\
         exit 2"
    );
    bench.judge(failed, None, NO_URL, &expect);
    args.gitea = None;
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
this state folder has no registration yet, and no Gitea was named
the first start needs --gitea URL (the address as in the browser) and --registration-token-file FILE; another state \
folder is named with --state DIR
exit 2";
    bench.judge(failed, None, NO_URL, expect);
}

/// A token that is only out of reach is not to be made anew: that would end the good one.
#[test]
fn a_token_file_that_this_user_may_not_read() {
    let bench = Bench::new();
    std::fs::set_permissions(bench.path("token"), std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root reads it all the same.
    let error = match token_file(&bench.args(NO_URL)) {
        Err(error) => error,
        Ok(_) => StartError::TokenFile { path: bench.path("token"), cause: "permission denied".to_owned() },
    };
    let file = bench.path("token").display().to_string();
    assert_eq!(error.to_string(), format!("the registration token file {file} cannot be used: permission denied"));
    let user = rustix::process::geteuid().as_raw();
    let remedy = format!(
        "the token in it may be good: let this program's user (id {user}) read the file and pass the folders above it; whose \
         it is now: ls -l {file}"
    );
    assert_eq!(error.remedy(), remedy);
}

const GET_RUNNER: &str = "https://gitea.com/gitea/runner/releases, or build it with `go install \
                          gitea.com/gitea/runner@v1.0.8`, whose file is named runner and lies in $(go env GOPATH)/bin";

/// The official runner: missing, not executable, hanging, something else, too old.
#[tokio::test]
async fn runners() {
    let bench = Bench::new();
    let mut here = bench.here();
    here.environment[0].1 = bench.path("nowhere").display().to_string();
    let failed = bench.start(&bench.args("http://127.0.0.1:1"), &here).await;
    let expect = format!(
        "the official Gitea runner was not found: no gitea-runner or act_runner in PATH\n\
         get it: {GET_RUNNER}; then put it into PATH as gitea-runner, or set GITEA_RUNNER_BINARY\n\
         exit 1"
    );
    bench.judge(failed, None, NO_URL, &expect);

    bench.program("plain", "#!/bin/sh\necho 1.0.8\n", 0o644);
    bench.program("hangs", "#!/bin/sh\nsleep 600\n", 0o755);
    bench.program("fails", "#!/bin/sh\necho v1.0.8\nexit 3\n", 0o755);
    bench.program("other", "#!/bin/sh\necho hello\n", 0o755);
    here.runner_patience = Duration::from_secs(1);
    for (file, cause) in [
        ("bin/plain", "it is not executable for this user"),
        ("bin/hangs", "it did not answer --version within 1 s"),
        ("bin/fails", "--version ended with exit status: 3"),
        ("bin/other", "it does not answer --version with a version (exit status: 0)"),
        ("bin", "it is not a regular file"),
        ("none", "no such file or directory"),
    ] {
        let mut args = bench.args("http://127.0.0.1:1");
        args.settings.set = vec![("GITEA_RUNNER_BINARY".into(), bench.path(file).display().to_string())];
        let failed = bench.start(&args, &here).await;
        let expect = format!(
            "DIR/{file} cannot be used as the official Gitea runner: {cause}\n\
             set GITEA_RUNNER_BINARY to the executable file of the official runner; to get it: {GET_RUNNER}\n\
             exit 1"
        );
        bench.judge(failed, None, NO_URL, &expect);
    }

    bench.program("old", "#!/bin/sh\necho act_runner version v0.2.6\n", 0o755);
    let mut args = bench.args("http://127.0.0.1:1");
    args.settings.set = vec![("GITEA_RUNNER_BINARY".into(), bench.path("bin/old").display().to_string())];
    let failed = bench.start(&args, &here).await;
    let expect = format!(
        "DIR/bin/old (version 0.2.6) is too old: it does not know `daemon --once`\n\
         get a newer one: {GET_RUNNER}\n\
         exit 1"
    );
    bench.judge(failed, None, NO_URL, &expect);
}

/// A token file that others can read is used, and told about; a newline at its end is no part of it.
#[tokio::test]
async fn a_token_file_open_to_others() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    for (mode, told) in [(0o644, true), (0o600, false)] {
        let _ = std::fs::remove_dir_all(bench.path("state"));
        std::fs::set_permissions(bench.path("token"), std::fs::Permissions::from_mode(mode)).unwrap();
        let prepared = bench.start(&bench.args(&gitea.url), &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
        let warned = prepared.warnings.iter().any(|w| w.contains("token holds a secret and is open to other users"));
        assert_eq!(warned, told, "{mode:o}: {:?}", prepared.warnings);
    }
    assert!(gitea.seen.lock().unwrap().iter().all(|request| request.token == REGISTRATION_TOKEN));
}

/// NEW-139: of a flag with a name of its own and the same setting by `--set`, the first counts, and the other is told about.
#[tokio::test]
async fn one_setting_said_twice() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    args.capacity = Some("2".into());
    args.settings.set = vec![("LOCAL_CAPACITY".into(), "3".into())];
    let prepared = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(prepared.config.capacity.local.get(), 2);
    let told = "--set LOCAL_CAPACITY=\"3\" is ignored: its own flag says \"2\"";
    assert!(prepared.warnings.iter().any(|warning| warning == told), "{:?}", prepared.warnings);
}

/// CFG-2, CFG-9: wrong flags and settings come together, before anything is asked or made.
#[tokio::test]
async fn wrong_flags() {
    let bench = Bench::new();
    let mut args = bench.args("http://127.0.0.1:1");
    (args.capacity, args.label) = (Some("0".into()), vec!["ubuntu:host".into()]);
    args.settings.set = vec![("CLAIM_LIMIT".into(), "5".into())];
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
3 wrong settings
  --label: label \"ubuntu:host\" must be 1 to 255 printable ASCII characters without space : , = \"; write the plain name, \
as runs-on names it
  LOCAL_CAPACITY: \"0\" is not accepted; it must be an integer from 1 to 1024
  CLAIM_LIMIT: \"5\": it has no unit; it must be a duration with unit, 1s to 1d
correct them; `gitea-dynamic-runner config reference` lists every setting
exit 2";
    bench.judge(failed, None, NO_URL, expect);
    for (gitea, part) in [
        ("git.example.org", "GITEA_INSTANCE_URL: \"git.example.org\": it has no scheme"),
        (
            "http://git.example.org",
            "--gitea: http://git.example.org would carry tokens and secrets in clear text; use https",
        ),
    ] {
        let error = bench.start(&bench.args(gitea), &bench.here()).await.err().unwrap();
        assert!(error.exit_code() == 2 && error.to_string().contains(part), "{error}");
    }
}
