//! The same way with the settings of the specification instead of `standalone`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::real::{Cache, Process, Program, Signal, of_folder, workplace};
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

/// Ends with the test, and everything of its state folder with it.
pub(crate) struct Controller {
    process: Child,
    dir: PathBuf,
}

impl Controller {
    /// Registers a runner and starts it, listening at `port`; `settings` go before what is set here.
    pub(crate) async fn start(dir: &Path, label: &str, port: u16, settings: &[(&str, String)]) -> Self {
        let gitea = server().await.client();
        let url = server().await.url();
        let token = gitea.registration_token().await.unwrap();
        let registered = RunnerClient::anonymous(url).register("by settings", &token, &[]).await.unwrap();
        let registered = registered.credentials().unwrap();
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
        command
            .env("COMPONENTS", "scheduler,local-worker")
            .env("QUEUE", "embedded")
            .env("IDENTITY_ISSUER", "built-in")
            .env("GITEA_INSTANCE_URL", url.trim_end_matches('/'))
            .env("GITEA_RUNNER_UUID_FILE", file("uuid", &registered.uuid))
            .env("GITEA_RUNNER_TOKEN_FILE", file("token", &format!("{}\n", registered.token)))
            .env("TRUST_DOMAIN", "example.org")
            .env("RUNNER_FACADE_LISTEN", format!("127.0.0.1:{port}"))
            .env("RUNNER_FACADE_URL", format!("https://127.0.0.1:{port}"))
            .env("RUNNER_FACADE_SPIFFE_ID", "spiffe://example.org/controller")
            .env("RUNNER_FACADE_CAPABILITY_KEY_FILE", file("capability.key", &"c".repeat(64)))
            .env("ENVELOPE_KEY_FILE", file("envelope.key", &"e".repeat(64)))
            .env("STATE_DIR", dir.join("s"))
            .env("OPS_LISTEN", "127.0.0.1:0")
            .env("EXTRA_LABELS", format!("{label}=local"))
            .env("GITEA_RUNNER_BINARY", Cache::locate().unwrap().program(Program::Runner).unwrap())
            .envs(settings.iter().map(|(name, value)| (name, value)));
        std::fs::create_dir(dir.join("s")).unwrap();
        Self { process: command.spawn().unwrap(), dir: dir.to_owned() }
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Everything of its state folder beside itself.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let own = self.process.id();
        of_folder(&self.dir.join("s")).into_iter().filter(|process| process.pid != own).collect()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _ended = self.process.wait();
        self.processes().iter().for_each(|process| process.signal(Signal::Kill));
    }
}

/// A port of loopback that nobody has.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// CMP-9, CFG-1, CFG-4, IDN-1, requirements §2.1: `controller` with the names of the specification runs a job, and the
/// identity has the configured trust domain and prefix.
#[tokio::test]
async fn the_settings_of_the_specification_run_a_job() {
    let gitea = server().await.client();
    let dir = workplace(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let team = [("IDENTITY_PREFIX", "team".to_owned())];
    let controller = Controller::start(dir.path(), "controller-settings", free_port(), &team).await;
    let repository = "settings/app";
    gitea.create_repository(repository).await.unwrap();
    let commit = gitea.push_files(repository, &[(".gitea/workflows/ci.yml", WORKFLOW)]).await.unwrap();
    let run = gitea.runs_of_commit(repository, &commit, 1, SOON).await.unwrap().remove(0);
    let ended = gitea.wait_run(repository, run.id, JOB, |_| {}).await.unwrap();
    assert_eq!(ended.conclusion.as_deref(), Some("success"), "{}", controller.log());
    let job = gitea.jobs(repository, run.id).await.unwrap().remove(0);
    let log = gitea.log(repository, job.id).await.unwrap().unwrap();
    assert!(log.contains("I am spiffe://example.org/team/ci/settings/app/set-by-settings"), "{log}");
}
