//! One-host mode against small servers on loopback: the good way, and bad input by its exact text, exit code and
//! untouched state folder.
#![expect(clippy::unwrap_used, reason = "tests")]

mod folders;
mod input;
mod refusals;
mod starts;

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

const GET_TOKEN: &str = "copy a registration token in Gitea (Site Administration → Actions → Runners → Create new \
                         Runner, or the same in the settings of an organisation or repository)";

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
