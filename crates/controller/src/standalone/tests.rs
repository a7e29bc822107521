//! One-host mode against small servers on loopback: the good way, and bad input by its exact text, exit code and
//! untouched state folder.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::post;
use buffa::{Message as _, MessageField};
use runner_proto::ping::v1::PingResponse;
use runner_proto::runner::v1::{RegisterRequest, RegisterResponse, Runner};

use super::*;
use crate::args::SettingsArgs;

const UUID: &str = "11111111-2222-4333-8444-555555555555";
const TOKEN: &str = "0123456789abcdef0123456789abcdef01234567";
/// For cases in which no server is asked.
const NO_URL: &str = "http://127.0.0.1:1";
const REGISTRATION_TOKEN: &str = "registration-token-of-the-test";

/// How the far side answers Register.
#[derive(Clone, Copy)]
enum Register {
    /// As Gitea does.
    Good,
    /// With Gitea's words for a refusal.
    Refuse(&'static str),
    /// The runner row is made, the answer never comes.
    Lost,
    /// As a server that is no Gitea.
    Page,
}

/// A far side that answers Ping and Register, and counts the runner rows.
struct Gitea {
    url: String,
    rows: Arc<AtomicU32>,
    seen: Arc<Mutex<Vec<RegisterRequest>>>,
}

fn proto(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/proto")], body).into_response()
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

impl Gitea {
    async fn start(register: Register) -> Self {
        let (rows, seen) = (Arc::new(AtomicU32::new(0)), Arc::<Mutex<Vec<RegisterRequest>>>::default());
        let (counted, noted) = (Arc::clone(&rows), Arc::clone(&seen));
        let ping = || async { proto(PingResponse { data: "Hello".into(), ..Default::default() }.encode_to_vec()) };
        let answer = move |body: Bytes| async move {
            noted.lock().unwrap().push(RegisterRequest::decode_from_slice(&body).unwrap());
            match register {
                Register::Good => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let (uuid, token) = (UUID.to_owned(), TOKEN.to_owned());
                    let runner = Runner {
                        id: 12,
                        uuid,
                        token,
                        name: "gitea-dynamic-runner-ci@host".into(),
                        ..Default::default()
                    };
                    proto(RegisterResponse { runner: MessageField::some(runner), ..Default::default() }.encode_to_vec())
                }
                Register::Refuse(text) => {
                    let body = serde_json::json!({ "code": "unknown", "message": text }).to_string();
                    (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "application/json")], body)
                        .into_response()
                }
                Register::Lost => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    std::future::pending().await
                }
                Register::Page => Html("<html>Sign in</html>").into_response(),
            }
        };
        let router = Router::new()
            .route("/api/actions/ping.v1.PingService/Ping", post(ping))
            .route("/api/actions/runner.v1.RunnerService/Register", post(answer));
        Self { url: serve(router).await, rows, seen }
    }
}

/// A folder with a state folder to be, a token file, and programs that behave as runners or not.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(bench.path("token"), format!("{REGISTRATION_TOKEN}\n")).unwrap();
        bench.program("gitea-runner", "#!/bin/sh\necho --once; echo gitea-runner version v1.0.8\n", 0o755);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn program(&self, name: &str, text: &str, mode: u32) {
        std::fs::create_dir_all(self.path("bin")).unwrap();
        let path = self.path("bin").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn args(&self, gitea: &str) -> StandaloneArgs {
        StandaloneArgs {
            gitea: Some(gitea.to_owned()),
            registration_token_file: Some(self.path("token")),
            state: Some(self.path("state")),
            capacity: None,
            label: Vec::new(),
            isolation: None,
            ops_listen: None,
            trust_domain: None,
            settings: SettingsArgs::default(),
        }
    }

    fn here(&self) -> Surroundings {
        Surroundings {
            environment: vec![("PATH".into(), self.path("bin").display().to_string())],
            host: "host".into(),
            user: "ci".into(),
            root: false,
            terminal: false,
            gitea_patience: Duration::from_secs(5),
            runner_patience: Duration::from_secs(5),
        }
    }

    async fn start(&self, args: &StandaloneArgs, here: &Surroundings) -> Result<Prepared, StartError> {
        super::start(args, here).await.map(|(prepared, _lead)| prepared)
    }

    /// Every file of the state folder but the lock, with its content; none when the folder is not there.
    fn state(&self) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
        fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.file_name().is_some_and(|name| name != "lock") {
                    found.insert(path.clone(), std::fs::read(&path).unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        self.path("state").exists().then(|| walk(&self.path("state"), &mut found)).map(|()| found)
    }

    /// A start that fails: the problem, the remedy and the exit code as a person reads them, with what differs from run
    /// to run replaced. The state folder is as it was, or empty.
    #[track_caller]
    fn judge(
        &self,
        failed: Result<Prepared, StartError>,
        before: Option<&BTreeMap<PathBuf, Vec<u8>>>,
        url: &str,
        expect: &str,
    ) {
        let error = failed.err().unwrap();
        let text = format!("{error}\n{}\nexit {}", error.remedy(), error.exit_code());
        let text = text.replace(url, "URL").replace(&self.dir.path().display().to_string(), "DIR");
        assert_eq!(text, expect);
        let after = self.state().unwrap_or_default();
        assert_eq!(before.cloned().unwrap_or_default(), after, "the state folder changed");
        assert!(!text.contains(REGISTRATION_TOKEN) && !text.contains(TOKEN), "{text}");
    }
}

/// NEW-147: registers once, keeps what must be kept, and needs neither token file nor Gitea at the next start.
#[tokio::test]
async fn registers_once() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&format!("{}/", gitea.url));
    (args.capacity, args.label) = (Some("4".into()), vec!["fast".into(), "local".into()]);
    let first = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let config = &first.config;
    assert!(first.registered_now && first.runner.version == "1.0.8");
    assert_eq!((config.gitea.uuid.expose(), config.gitea.token.expose()), (UUID, TOKEN));
    assert_eq!(config.capacity.local.get(), 4);
    assert_eq!(config.labels.extra, [("fast".to_owned(), domain::id::Backend::Local)]);
    assert_eq!(config.labels.default_backend, Some(domain::id::Backend::Local));
    assert_eq!(config.facade.url.as_str(), format!("https://{}", config.facade.listen));
    assert_eq!(config.identity.trust_domain().to_string(), format!("{}.gdr.internal", config.instance));
    assert_eq!(config.facade.capability.current.expose().len(), 64);
    let request = gitea.seen.lock().unwrap()[0].clone();
    assert_eq!(request.labels, ["self-hosted", "local", "fast"]);
    assert_eq!(request.name, "gitea-dynamic-runner-ci@host");
    assert_eq!(request.version, format!("gitea-dynamic-runner/{}", env!("CARGO_PKG_VERSION")));
    assert_eq!((request.token.as_str(), request.ephemeral), (REGISTRATION_TOKEN, false));

    let before = bench.state().unwrap();
    for path in before.keys() {
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert!(mode == 0o600, "{} {mode:o}", path.display());
    }
    let folder = std::fs::metadata(bench.path("state")).unwrap().permissions().mode() & 0o777;
    assert_eq!(folder, 0o700);
    (args.registration_token_file, args.gitea) = (None, None);
    let second = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    assert!(!second.registered_now);
    assert_eq!(second.config.facade.listen, config.facade.listen);
    assert_eq!(second.config.identity.facade_id, config.identity.facade_id);
    assert_eq!(bench.state().unwrap(), before);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 1);
}

/// What a person on a terminal reads.
#[tokio::test]
async fn greets_a_person() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    args.label = vec!["fast".into()];
    let prepared = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let instance = prepared.config.instance.to_string();
    let text = words::greeting(&prepared, &bench.here()).replace(&gitea.url, "URL").replace(&instance, "INSTANCE");
    let text =
        text.replace(&bench.dir.path().display().to_string(), "DIR").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let expect = "\
gitea-dynamic-runner VERSION

  Gitea      URL, registered now as gitea-dynamic-runner-ci@host
  Jobs       one job at a time, each in a process of its own that is thrown away at its end
  Isolation  full: a job sees its own processes and files only, and the host's read-only
  Runner     DIR/bin/gitea-runner (version 1.0.8)
  Identity   spiffe://INSTANCE.gdr.internal/ci/<owner>/<repository>/<job>
  State      DIR/state

Write one of these into a workflow: self-hosted, local, fast

  jobs:
    build:
      runs-on: local

What it is doing:  gitea-dynamic-runner status --state DIR/state
To stop: Ctrl-C. Running jobs go on, and the next start takes them up again.
";
    assert_eq!(text, expect);
    let root = || Surroundings { root: true, ..bench.here() };
    assert!(!words::greeting(&prepared, &root()).contains("WARNING"), "isolated jobs are not root");
    let mut prepared = prepared;
    prepared.config.local.isolation = crate::config::IsolationKind::None;
    let as_root = words::greeting(&prepared, &root());
    assert!(as_root.contains("  Isolation  NONE: "), "{as_root}");
    assert!(as_root.contains("\n  WARNING    started as root, and so is every job: "), "{as_root}");
}

/// What a start with these flags would use can be seen before and after the first one, and nothing is asked or made.
#[tokio::test]
async fn the_settings_of_a_start() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    (args.capacity, args.label) = (Some("4".into()), vec!["fast".into()]);
    let of = |raw: &Raw, name| raw.get(name).map(|(text, source)| (text.to_owned(), source.to_string()));
    let told = |text: &str, source: &str| Some((text.to_owned(), source.to_owned()));

    let (before, _) = view(&args, &bench.here()).unwrap_or_else(|e| panic!("{e}"));
    assert!(!bench.path("state").exists() && gitea.rows.load(Ordering::SeqCst) == 0);
    assert_eq!(of(&before, "LOCAL_CAPACITY"), told("4", "flag"));
    assert_eq!(of(&before, "EXTRA_LABELS"), told("fast=local", "flag"));
    let file = StandaloneArgs { label: Vec::new(), ..args.clone() };
    let variables = vec![("EXTRA_LABELS".to_owned(), "slow=local".to_owned())];
    let (unsaid, _) =
        view(&file, &Surroundings { environment: variables, ..bench.here() }).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(of(&unsaid, "EXTRA_LABELS"), told("slow=local", "environment"));
    assert_eq!(of(&before, "QUEUE"), told("embedded", "standalone"));
    assert_eq!(of(&before, "TERMINAL_GRACE"), told("60s", "default"));
    assert_eq!(of(&before, "TRUST_DOMAIN"), None);

    let prepared = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let files = bench.state();
    args.gitea = None;
    let (after, judged) = view(&args, &bench.here()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(of(&after, "GITEA_INSTANCE_URL"), told(&gitea.url, "standalone"));
    assert_eq!(of(&after, "TRUST_DOMAIN"), told(&prepared.config.identity.trust_domain().to_string(), "standalone"));
    assert_eq!(of(&after, "RUNNER_FACADE_URL"), told(prepared.config.facade.url.as_str(), "standalone"));
    let registration = bench.path("state/registration.json").display().to_string();
    assert_eq!(of(&after, "GITEA_RUNNER_TOKEN_FILE"), told(&registration, "standalone"));
    assert!(!crate::config::effective::text(&after).contains(TOKEN));
    assert!(judged.is_ok_and(|()| bench.state() == files));
}

/// The instance id of the first start is the folder's, whatever the environment of a later one lacks.
#[tokio::test]
async fn the_instance_is_remembered() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    args.settings.set = vec![("INSTANCE_ID".into(), "mine".into())];
    bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let later = bench.start(&bench.args(&gitea.url), &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(later.config.instance.to_string(), "mine");
    assert_eq!(later.config.identity.trust_domain().to_string(), "mine.gdr.internal");
}

/// NEW-147: an instance id that makes the sockets' paths too long is refused before Gitea hears of us.
#[tokio::test]
async fn a_long_instance_in_a_deep_folder_is_not_registered() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    let fits = 107 - "/executors/gitea-task-9999999999-12345678-e99/api/id".len();
    let deep = "d".repeat(fits - bench.path("").as_os_str().len());
    args.state = Some(bench.path(&deep));
    assert!(check(&args, &bench.here()).await.is_ok());
    args.settings.set = vec![("INSTANCE_ID".into(), "123456789".into())];
    let error = bench.start(&args, &bench.here()).await.err().unwrap();
    assert!(error.to_string().contains("1 bytes too long for the sockets below it"), "{error}");
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
}

const GET_TOKEN: &str = "copy a registration token in Gitea (Site Administration → Actions → Runners → Create new \
                         Runner, or the same in the settings of an organisation or repository)";

/// A wrong and an outdated registration token.
#[tokio::test]
async fn refused_tokens() {
    for words in
        ["registration token not found", "runner registration token has been invalidated, please use the latest one"]
    {
        let (bench, gitea) = (Bench::new(), Gitea::start(Register::Refuse(words)).await);
        let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
        let expect = format!(
            "URL refused the registration token: {words}\n\
             tokens are replaced when a new one is made: {GET_TOKEN}\n\
             exit 1"
        );
        bench.judge(failed, None, &gitea.url, &expect);
    }
}

/// NEW-141: a server that repeats the token in its refusal does not get it into our text.
#[tokio::test]
async fn a_refusal_that_repeats_the_token() {
    let words = "rpc error: code = Internal desc = no owner for registration-token-of-the-test";
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Refuse(words)).await);
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let expect = "\
URL refused to register this runner: no owner for [redacted]
the words are Gitea's; its log says more
exit 1";
    bench.judge(failed, None, &gitea.url, expect);
}

/// The answer to Register is lost: the text says that a row may be left.
#[tokio::test]
async fn a_lost_answer() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Lost).await);
    let mut here = bench.here();
    here.gitea_patience = Duration::from_secs(1);
    let failed = bench.start(&bench.args(&gitea.url), &here).await;
    let expect = "\
URL did not answer the registration of gitea-dynamic-runner-ci@host: no answer within 1 s
start again; Gitea may now show an unused runner gitea-dynamic-runner-ci@host that is never online: delete it there (Site \
Administration → Actions → Runners)
exit 1";
    bench.judge(failed, None, &gitea.url, expect);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 1);
}

const ANOTHER_ADDRESS: &str = "give --gitea the address as in the browser's start page, with its path if it has one; a \
                               login page or a proxy in front must let /api/actions pass";

/// Something answers, and it is no Gitea with Actions.
#[tokio::test]
async fn not_a_gitea() {
    let page = || async { Html("<html>Sign in</html>") };
    let to_login = || async { Redirect::to("https://login.example.org/start?token=hunter2") };
    let login = Router::new().fallback(page);
    let redirect = Router::new().fallback(to_login);
    let text = Router::new().fallback(|| async { "hello" });
    for (router, seen) in [
        (Router::new(), "there is no /api/actions below this address (HTTP 404)"),
        (login, "a web page came instead of an API's answer"),
        (redirect, "it sends us on to https://login.example.org/start"),
        (text, "HTTP 200 with text/plain"),
    ] {
        let (bench, url) = (Bench::new(), serve(router).await);
        let failed = bench.start(&bench.args(&url), &bench.here()).await;
        let expect = format!("URL answers, but not as a Gitea with Actions: {seen}\n{ANOTHER_ADDRESS}\nexit 1");
        bench.judge(failed, None, &url, &expect);
        assert!(!bench.path("state").exists());
    }
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Page).await);
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let expect = format!(
        "URL answers, but not as a Gitea with Actions: a web page came instead of an API's answer\n{ANOTHER_ADDRESS}\nexit 1"
    );
    bench.judge(failed, None, &gitea.url, &expect);
}

/// Nothing listens; something listens and never answers.
#[tokio::test]
async fn unreachable() {
    let bench = Bench::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    let mut here = bench.here();
    here.gitea_patience = Duration::from_secs(1);
    for cause in ["no answer within 1 s", "connection refused"] {
        let failed = bench.start(&bench.args(&url), &here).await;
        let expect = format!(
            "URL cannot be reached: {cause}\ncheck the address, and that this host reaches it: open it with curl\nexit 1"
        );
        bench.judge(failed, None, &url, &expect);
        assert!(!bench.path("state").exists());
        // The second time nothing listens any more.
        if cause.starts_with("no answer") {
            rustix::net::shutdown(&free, rustix::net::Shutdown::Both).unwrap();
        }
    }
}

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

/// A state folder belongs to one Gitea and one trust domain; a damaged registration is not made anew.
#[tokio::test]
async fn another_world() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let mut args = bench.args(&gitea.url);
    args.trust_domain = Some("ci.example.org".into());
    let first = bench.start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(first.config.identity.trust_domain().to_string(), "ci.example.org");
    let before = bench.state();

    args.gitea = Some("http://127.0.0.1:1/other".into());
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
state folder DIR/state is registered with URL, not with http://127.0.0.1:1/other
use --gitea URL, or give the other Gitea a folder of its own with --state DIR
exit 2";
    bench.judge(failed, before.as_ref(), &gitea.url, expect);

    args = bench.args(&gitea.url);
    args.trust_domain = Some("other.example.org".into());
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
state folder DIR/state was made for trust domain ci.example.org, not for other.example.org
use --trust-domain ci.example.org (or leave it out), or begin anew in another folder with --state DIR
exit 2";
    bench.judge(failed, before.as_ref(), &gitea.url, expect);

    args = bench.args(&gitea.url);
    args.settings.set = vec![("INSTANCE_ID".into(), "other".into())];
    let failed = bench.start(&args, &bench.here()).await;
    let made = first.config.instance.to_string();
    let expect = format!(
        "state folder DIR/state was made for instance {made}, not for other\n\
         leave INSTANCE_ID out or set it to {made}, or begin anew in another folder with --state DIR\n\
         exit 2"
    );
    bench.judge(failed, before.as_ref(), &gitea.url, &expect);

    std::fs::write(bench.path("state/registration.json"), "{\"uuid\": 1").unwrap();
    let before = bench.state();
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let expect = "\
the registration DIR/state/registration.json cannot be read: no registration at line 1, column 10
put it back from a backup, or delete it and start with a new --registration-token-file; tasks of the old registration \
end by Gitea's own time-outs
exit 1";
    bench.judge(failed, before.as_ref(), &gitea.url, expect);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 1);
}

/// NEW-59: a second process on the same state folder, before and after the registration.
#[tokio::test]
async fn a_second_process() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let args = bench.args(&gitea.url);
    let expect = |since: &str| {
        format!(
            "state folder DIR/state is in use by process {}, started {since}; two controllers must not share one registration\n\
             stop that one first, or name another folder with --state DIR; what it does: gitea-dynamic-runner status --state \
             DIR/state\n\
             exit 1",
            std::process::id()
        )
    };
    let since = || {
        let lock = std::fs::read_to_string(bench.path("state/lock")).unwrap();
        serde_json::from_str::<serde_json::Value>(&lock).unwrap()["since"].as_str().unwrap().to_owned()
    };
    let early = lead(&bench.path("state")).await.unwrap_or_else(|e| panic!("{e}"));
    let failed = bench.start(&args, &bench.here()).await;
    bench.judge(failed, None, &gitea.url, &expect(&since()));
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
    drop(early);

    let (_first, _lead) = super::start(&args, &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let before = bench.state();
    let failed = bench.start(&args, &bench.here()).await;
    bench.judge(failed, before.as_ref(), &gitea.url, &expect(&since()));
}

/// The facade's port is taken: the text names the port and who holds it.
#[tokio::test]
async fn port_taken() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let first = bench.start(&bench.args(&gitea.url), &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    let listen = first.config.facade.listen;
    let _holder = std::net::TcpListener::bind(listen).unwrap();
    let before = bench.state();
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    let expect = format!(
        "port {} of 127.0.0.1, where running jobs reach this controller, is in use by {} (process {})\n\
         end that process; or, when no job of this state folder is running, delete DIR/state/facade.port and start again\n\
         exit 1",
        listen.port(),
        comm.trim(),
        std::process::id()
    );
    bench.judge(failed, before.as_ref(), &gitea.url, &expect);
}

/// What stands in `facade.port` is no port: the text says where the right one stands.
#[tokio::test]
async fn a_damaged_port_file() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    bench.start(&bench.args(&gitea.url), &bench.here()).await.unwrap_or_else(|e| panic!("{e}"));
    for (content, cause) in [
        ("", "it is empty"),
        ("0\n", "it must hold one number from 1 to 65535"),
        ("port 1", "it must hold one number from 1 to 65535"),
        ("65536", "it must hold one number from 1 to 65535"),
    ] {
        std::fs::write(bench.path("state/facade.port"), content).unwrap();
        let before = bench.state();
        let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
        let expect = format!(
            "DIR/state/facade.port holds no port: {cause}\n\
             running jobs know the port from CI_RUNNER_FACADE_URL: write that number into the file; or, when no job of this \
             state folder is running, delete the file and start again\n\
             exit 1"
        );
        bench.judge(failed, before.as_ref(), &gitea.url, &expect);
    }
}

/// The address of `--ops-listen` is taken: known before Gitea makes a runner of us.
#[tokio::test]
async fn ops_address_taken() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut args = bench.args(&gitea.url);
    args.ops_listen = Some(address.clone());
    let failed = bench.start(&args, &bench.here()).await;
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    let expect = format!(
        "--ops-listen {address} cannot be listened on: it is in use by {} (process {})\n\
         name another address, or port 0 to let the kernel choose\n\
         exit 1",
        comm.trim(),
        std::process::id()
    );
    bench.judge(failed, None, &gitea.url, &expect);
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
}

/// `--state` names a file, or the folder of another user: nothing is asked, made or changed.
#[tokio::test]
async fn a_state_folder_that_is_not_ours() {
    let bench = Bench::new();
    let mut args = bench.args(NO_URL);
    args.state = Some(bench.path("token"));
    let failed = bench.start(&args, &bench.here()).await;
    let expect = "\
the state folder DIR/token cannot be used: it is a file, not a folder
name a folder on a local disk that this user can write to with --state DIR, and see that the disk has space
exit 1";
    bench.judge(failed, None, NO_URL, expect);

    // Root gives a folder away; everybody else meets one that is root's.
    let us = rustix::process::geteuid();
    let (folder, owner) = if us.is_root() {
        std::fs::create_dir(bench.path("theirs")).unwrap();
        std::os::unix::fs::chown(bench.path("theirs"), Some(65_534), None).unwrap();
        (bench.path("theirs"), 65_534)
    } else {
        (PathBuf::from("/"), 0)
    };
    args.state = Some(folder.clone());
    let failed = bench.start(&args, &bench.here()).await;
    let error = failed.err().unwrap();
    let expect = format!(
        "the state folder {} belongs to user id {owner}, and this program runs as user id {}\n\
         start it as user id {owner}, whose jobs and keys these are, or name another folder with --state DIR\n\
         exit 1",
        folder.display(),
        us.as_raw()
    );
    assert_eq!(format!("{error}\n{}\nexit {}", error.remedy(), error.exit_code()), expect);
    assert!(lead(&folder).await.is_err_and(|error| matches!(error, StartError::OtherUser { .. })));
    assert!(!folder.join("lock").exists() && !bench.path("state").exists());
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

/// A state folder that cannot be written: Gitea is not asked to register, so no row is wasted.
#[tokio::test]
async fn a_state_folder_that_cannot_be_written() {
    let (bench, gitea) = (Bench::new(), Gitea::start(Register::Good).await);
    std::fs::create_dir(bench.path("state")).unwrap();
    std::fs::create_dir(bench.path("state/registration.json.tmp")).unwrap();
    let failed = bench.start(&bench.args(&gitea.url), &bench.here()).await;
    let error = failed.err().unwrap();
    assert!(matches!(&error, StartError::State { cause, .. } if cause == "is a directory"), "{error}");
    assert_eq!(gitea.rows.load(Ordering::SeqCst), 0);
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

/// Two users of one host are two runners by their names in Gitea as well.
#[test]
fn names_in_gitea() {
    let name = |user: &str, root| Surroundings { user: user.into(), root, ..Bench::new().here() }.runner_name();
    assert_eq!(name("root", true), "gitea-dynamic-runner@host");
    assert_eq!(
        [name("ann", false), name("1000", false)].map(|name| name.replace("gitea-dynamic-runner", "")),
        ["-ann@host", "-1000@host"]
    );
}

/// Where the state goes when nobody says.
#[test]
fn state_folders() {
    let bench = Bench::new();
    let folder = |variables: &[(&str, &str)], root| {
        let environment = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let here = Surroundings { environment, root, ..bench.here() };
        here.state_folder().map(|path| path.display().to_string()).map_err(|e| e.exit_code())
    };
    let home = ("HOME", "/home/me");
    assert_eq!(folder(&[home], false).as_deref(), Ok("/home/me/.local/state/gitea-dynamic-runner"));
    assert_eq!(folder(&[home, ("XDG_STATE_HOME", "/x")], false).as_deref(), Ok("/x/gitea-dynamic-runner"));
    let relative = folder(&[home, ("XDG_STATE_HOME", "x")], false);
    assert_eq!(relative.as_deref(), Ok("/home/me/.local/state/gitea-dynamic-runner"));
    assert_eq!(folder(&[home], true).as_deref(), Ok("/var/lib/gitea-dynamic-runner"));
    assert_eq!(folder(&[], false), Err(2));
}
