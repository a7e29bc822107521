//! The executor as it is started for a job: the sub-command, an identity of the built-in issuer, mutual TLS to a facade,
//! and the official runner (`cargo xtask provision`).
#![expect(clippy::unwrap_used, reason = "tests")]

mod facade;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use controller::identity::{BuiltInIssuer, ServedIdentity};
use domain::executor_api::{ExecutorExit, Report};
use domain::id::Backend;
use domain::identity::SpiffeId;
use domain::launch_env::LaunchEnv;
use executor::{BoxStream, Limits, Link, Orphans, Settings, Starter, identity};
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tempfile::TempDir;
use testkit::real::{Cache, Program};
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use facade::{ASSIGNMENT, CAPABILITY, Facade, SECRET};

const FACADE: &str = "spiffe://example.org/gitea-dynamic-runner";
const JOB: &str = "spiffe://example.org/ci/lab/once/j";
/// A job of one step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Several looks for an identity; at most a second lies between two.
const SOON: Duration = Duration::from_secs(30);

/// A facade and the identity of the only job.
struct World {
    facade: Facade,
    job: ServedIdentity,
    dir: TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let issuer = BuiltInIssuer::open(&dir.path().join("keys"), &"example.org".parse().unwrap()).unwrap();
        let job = issuer.serve(dir.path().join("job.sock"), id(JOB)).await.unwrap();
        let own = issuer.serve(dir.path().join("own.sock"), id(FACADE)).await.unwrap();
        Self { facade: Facade::start(own, id(FACADE)).await, job, dir }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

fn id(text: &str) -> SpiffeId {
    text.parse().unwrap()
}

fn deadline() -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(300)
}

/// The official runner behind a script that keeps a copy of its registration.
fn runner(script: &Path, copy: &Path) {
    let real = Cache::locate().unwrap().program(Program::Runner).unwrap();
    let text = format!("#!/bin/sh\ncp .runner '{}'\nexec '{}' \"$@\"\n", copy.display(), real.display());
    std::fs::write(script, text).unwrap();
    std::fs::set_permissions(script, PermissionsExt::from_mode(0o755)).unwrap();
}

/// The environment of the only job's executor.
fn launch(world: &World, workload_socket: String, capability: &Path, runner: &Path) -> LaunchEnv {
    LaunchEnv {
        id: ASSIGNMENT.parse().unwrap(),
        facade_url: world.facade.url(),
        facade_spiffe_id: id(FACADE),
        spiffe_id: id(JOB),
        backend: Backend::Local,
        workload_socket,
        capability_file: Some(capability.to_owned()),
        labels: vec!["local".to_owned()],
        deadline: deadline(),
        runner_binary: Some(runner.display().to_string()),
        runner_config: None,
    }
}

async fn run(world: &World, env: &LaunchEnv) -> Output {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_gitea-dynamic-runner"))
        .arg("executor")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", world.dir.path())
        .env("TMPDIR", world.dir.path())
        // Nobody listens there (NEW-104).
        .envs(
            ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"]
                .map(|name| (name, "http://127.0.0.1:1")),
        )
        .envs(env.to_env())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(PATIENCE, output).await.unwrap().unwrap()
}

/// T68, EXE-1, EXE-3, EXE-4, EXE-5, NEW-72, NEW-111, NEW-104, F114: from the launch environment to exit 0, every call
/// made as the job itself. Invariant 10: neither capability nor loopback token nor anything of the task is in the log.
#[tokio::test]
async fn a_job_over_mutual_tls() {
    let world = World::new().await;
    let (script, registration, capability) =
        (world.path("runner"), world.path("registration"), world.path("capability"));
    runner(&script, &registration);
    std::fs::write(&capability, CAPABILITY).unwrap();
    let env = launch(&world, world.job.endpoint(), &capability, &script);
    let output = run(&world, &env).await;
    let log = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(!capability.exists());

    let seen = world.facade.seen();
    assert!(seen.peers.iter().all(|peer| *peer == id(JOB)), "{:?}", seen.peers);
    assert!(seen.rows.iter().any(|row| row == "hello over TLS"), "{:?}", seen.rows);
    assert!(seen.ended);
    let goodbye = Report::Goodbye { runner_exit: Some(0), interrupted: false, delivered: true, never_started: None };
    assert_eq!(seen.reports.last(), Some(&goodbye));

    let registration: Value = serde_json::from_slice(&std::fs::read(registration).unwrap()).unwrap();
    let token = registration.get("token").and_then(Value::as_str).unwrap();
    assert!(token.len() >= 32 && token != CAPABILITY);
    assert!(log.contains("the executor ends"), "{log}");
    for secret in [CAPABILITY, token, SECRET] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
}

/// EXE-3, EXE-4, §1.5: whoever listens there without being the facade hears nothing of us, and that ends with exit 11.
#[tokio::test]
async fn a_facade_of_another_name() {
    let world = World::new().await;
    let own = identity::exact(&world.job.endpoint(), &id(JOB), PATIENCE).await.unwrap();
    let connector = own.connector(&id("spiffe://example.org/somebody-else")).unwrap();
    let url: http::Uri = world.facade.url().parse().unwrap();
    let authority = url.authority().cloned().unwrap();
    let link = Link::new(move || {
        let (connector, url) = (connector.clone(), url.clone());
        async move {
            let stream = connector.dial(&url).await.map_err(std::io::Error::other)?;
            Ok(Box::new(stream) as BoxStream)
        }
        .boxed()
    });
    let settings = Settings {
        assignment: ASSIGNMENT.to_owned(),
        capability: CAPABILITY.to_owned().into(),
        capability_file: None,
        authority,
        spiffe_id: JOB.to_owned(),
        workload_socket: world.job.endpoint(),
        backend: "local".to_owned(),
        labels: vec!["local".to_owned()],
        deadline: deadline(),
        runner_binary: "no-runner-is-started".into(),
        runner_config: None,
        starter: Starter::Direct,
        orphans: Orphans::NotOurs,
        limits: Limits { ready: Duration::from_secs(1), ..Limits::default() },
    };
    let (_nobody, signals) = tokio::sync::mpsc::unbounded_channel();
    assert_eq!(executor::run_over(&settings, link, signals).await, ExecutorExit::NoFacade.code());
    assert!(world.facade.seen().peers.is_empty());
}

/// The way to a Workload API that may not be there yet.
struct Relay {
    /// How often somebody has come so far.
    looks: watch::Receiver<usize>,
    keeper: JoinHandle<()>,
}

impl Relay {
    fn new(socket: &Path, inner: PathBuf) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (counted, looks) = watch::channel(0);
        let keeper = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                counted.send_modify(|looks| *looks += 1);
                let inner = inner.clone();
                tokio::spawn(async move {
                    let Ok(mut far) = UnixStream::connect(inner).await else { return };
                    let _ended = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self { looks, keeper }
    }

    /// Waits until somebody has looked so often from now on.
    async fn looked(&mut self, more: usize) {
        let enough = *self.looks.borrow_and_update() + more;
        let seen = tokio::time::timeout(SOON, self.looks.wait_for(|looks| *looks >= enough));
        assert!(seen.await.is_ok_and(|seen| seen.is_ok()), "nobody looks any more");
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// EXE-7, T17, NEW-111, F64: the Workload API offers nothing, then another identity, then the right one: nothing is said to
/// the facade and no runner is started before, and every call is made as the job.
#[tokio::test]
async fn a_runner_waits_for_the_exact_identity() {
    let world = World::new().await;
    let (script, capability, socket) = (world.path("runner"), world.path("capability"), world.path("late.sock"));
    let started = world.path("registration");
    runner(&script, &started);
    std::fs::write(&capability, CAPABILITY).unwrap();
    let env = launch(&world, format!("unix://{}", socket.display()), &capability, &script);
    let issuer = BuiltInIssuer::open(&world.path("keys"), &"example.org".parse().unwrap()).unwrap();
    let inner = world.path("inner.sock");
    let mut relay = Relay::new(&socket, inner.clone());
    let identities = async {
        let nobody_began = |while_offered: &str| {
            assert!(!started.exists() && world.facade.seen().peers.is_empty(), "with {while_offered}");
        };
        // Who looks again has found nothing that would do. The first of two looks may have come before the change.
        relay.looked(2).await;
        nobody_began("no identity");
        let other = issuer.serve(inner.clone(), id("spiffe://example.org/ci/lab/once/another")).await.unwrap();
        relay.looked(3).await;
        nobody_began("another identity");
        other.stop().await;
        issuer.serve(inner.clone(), id(JOB)).await.unwrap()
    };
    let (output, _served) = tokio::join!(run(&world, &env), identities);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
    let seen = world.facade.seen();
    assert!(seen.ended && !seen.peers.is_empty() && seen.peers.iter().all(|peer| *peer == id(JOB)), "{:?}", seen.peers);
}
