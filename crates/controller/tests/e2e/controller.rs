//! The same way with the settings of the specification instead of `standalone`.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use testkit::real::{Cache, Program, workplace};
use testkit::runner_client::RunnerClient;

use crate::world::{JOB, SOON, server};

const WORKFLOW: &str = "
on: push
jobs:
  set-by-settings:
    runs-on: controller-settings
    steps:
      - run: echo \"I am $CI_SPIFFE_ID\"
";

/// Ends with the test.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn start(dir: &Path, url: &str, uuid: &str, token: &str) -> Controller {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"));
    command.env_clear().stdout(Stdio::null()).stderr(std::fs::File::create(dir.join("log")).unwrap());
    for name in ["PATH", "HOME"] {
        command.env(name, std::env::var_os(name).unwrap_or_default());
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    command
        .env("COMPONENTS", "scheduler,local-worker")
        .env("QUEUE", "embedded")
        .env("IDENTITY_ISSUER", "built-in")
        .env("GITEA_INSTANCE_URL", url)
        .env("GITEA_RUNNER_UUID_FILE", file("uuid", uuid))
        .env("GITEA_RUNNER_TOKEN_FILE", file("token", &format!("{token}\n")))
        .env("TRUST_DOMAIN", "example.org")
        .env("RUNNER_FACADE_LISTEN", format!("127.0.0.1:{port}"))
        .env("RUNNER_FACADE_URL", format!("https://127.0.0.1:{port}"))
        .env("RUNNER_FACADE_SPIFFE_ID", "spiffe://example.org/controller")
        .env("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability.key", &"c".repeat(64)))
        .env("ENVELOPE_KEY_FILE", file("envelope.key", &"e".repeat(64)))
        .env("STATE_DIR", dir.join("s"))
        .env("OPS_LISTEN", "127.0.0.1:0")
        .env("EXTRA_LABELS", "controller-settings=local")
        .env("IDENTITY_PREFIX", "team")
        .env("GITEA_RUNNER_BINARY", Cache::locate().unwrap().program(Program::Runner).unwrap());
    std::fs::create_dir(dir.join("s")).unwrap();
    Controller(command.spawn().unwrap())
}

/// CMP-9, CFG-1, CFG-4, IDN-1, requirements §2.1: `controller` with the names of the specification runs a job, and the
/// identity has the configured trust domain and prefix.
#[tokio::test]
async fn the_settings_of_the_specification_run_a_job() {
    let gitea = server().await.client();
    let dir = workplace(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let url = server().await.url();
    let token = gitea.registration_token().await.unwrap();
    let registered = RunnerClient::anonymous(url).register("by settings", &token, &[]).await.unwrap();
    let registered = registered.credentials().unwrap();
    let _controller = start(dir.path(), url.trim_end_matches('/'), &registered.uuid, &registered.token);
    let repository = "settings/app";
    gitea.create_repository(repository).await.unwrap();
    let commit = gitea.push_files(repository, &[(".gitea/workflows/ci.yml", WORKFLOW)]).await.unwrap();
    let run = gitea.runs_of_commit(repository, &commit, 1, SOON).await.unwrap().remove(0);
    let ended = gitea.wait_run(repository, run.id, JOB, |_| {}).await.unwrap();
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
    assert_eq!(ended.conclusion.as_deref(), Some("success"), "{log}");
    let job = gitea.jobs(repository, run.id).await.unwrap().remove(0);
    let log = gitea.log(repository, job.id).await.unwrap().unwrap();
    assert!(log.contains("I am spiffe://example.org/team/ci/settings/app/set-by-settings"), "{log}");
}
