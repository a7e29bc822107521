//! From the launch environment to a session: settings, capability, identity, and nothing left for others to read.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use domain::launch_env::{CapabilitySource, LaunchEnv};
use futures::FutureExt as _;
use http::Uri;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use zeroize::Zeroizing;

use crate::exit::Exit;
use crate::identity::{self, Identity};
use crate::limits::Limits;
use crate::link::{BoxStream, Link};
use crate::runner::launch::{Starter, become_runner};
use crate::runner::orphans::Orphans;
use crate::session::{self, End};
use crate::settings::Settings;
use crate::signals::{self, Signals};
use crate::{telemetry, termination};

/// How long the exact SVID may take to come (requirements §1.4).
const IDENTITY: Duration = Duration::from_secs(5 * 60);

/// Longest capability that is read; the real ones have about 80 characters.
const CAPABILITY_LIMIT: u64 = 4096;

/// The whole executor: everything between the launch environment that `get` reads and the exit code of requirements
/// §1.5.
///
/// It makes its own runtime, so it must not be called inside one, and it must be the process's only work: signals and,
/// in the first process of a container, orphans are its own from here on.
pub fn run(get: impl Fn(&str) -> Option<String>) -> ExitCode {
    telemetry::start();
    if let Some(code) = become_runner() {
        return code;
    }
    let end = match prepared(get) {
        Ok((settings, launch)) => in_runtime(&settings, &launch),
        Err(end) => end,
    };
    say(&end);
    termination::write(&end);
    ExitCode::from(&end.exit)
}

fn say(end: &End) {
    let (code, reason, detail) = (end.exit.code(), end.exit.reason(), &end.detail);
    if end.exit.is_failure() {
        tracing::error!(exit = code, reason, %detail, "the executor failed");
    } else {
        tracing::info!(exit = code, reason, %detail, "the executor ends");
    }
}

/// What the session itself does not need.
struct Launch {
    env: LaunchEnv,
    facade: Uri,
    /// How long the identity may take.
    patience: Duration,
}

fn prepared(get: impl Fn(&str) -> Option<String>) -> Result<(Settings, Launch), End> {
    let (env, source) = LaunchEnv::parse(get)
        .map_err(|errors| usage(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")))?;
    let capability = match source {
        CapabilitySource::File(path) => capability_file(&path).map_err(usage)?,
        CapabilitySource::Inline(text) => text,
    };
    let starter = Starter::this_program();
    // From here on nobody of the same user reads our memory or our environment.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "a step may be able to read the executor's memory");
    }
    of_env(env, capability, starter, Orphans::adopt())
}

fn of_env(
    env: LaunchEnv,
    capability: Zeroizing<String>,
    starter: Starter,
    orphans: Orphans,
) -> Result<(Settings, Launch), End> {
    let facade: Uri = env.facade_url.parse().map_err(|error| usage(format!("CI_RUNNER_FACADE_URL: {error}")))?;
    let Some(authority) = facade.authority().cloned() else {
        return Err(usage("CI_RUNNER_FACADE_URL: it names no host".to_owned()));
    };
    let settings = Settings {
        assignment: env.id.to_string(),
        capability,
        capability_file: env.capability_file.clone(),
        authority,
        spiffe_id: env.spiffe_id.to_string(),
        workload_socket: env.workload_socket.clone(),
        backend: env.backend.to_string(),
        labels: env.labels.clone(),
        deadline: env.deadline,
        runner_binary: env.runner_binary.as_deref().unwrap_or("gitea-runner").into(),
        runner_config: env.runner_config.as_deref().map(PathBuf::from),
        starter,
        orphans,
        limits: Limits::default(),
    };
    Ok((settings, Launch { env, facade, patience: IDENTITY }))
}

fn usage(problem: String) -> End {
    End::early(Exit::Usage, problem)
}

/// Reads the capability and removes its file, so that no step finds it. A read-only mount keeps it; the capability is
/// then guarded by the SPIFFE ID and the epoch alone.
fn capability_file(path: &Path) -> Result<Zeroizing<String>, String> {
    let problem = |error: std::io::Error| format!("CI_RUNNER_CAPABILITY_FILE {}: {error}", path.display());
    let mut text = Zeroizing::new(String::new());
    let file = std::fs::File::open(path).map_err(problem)?;
    file.take(CAPABILITY_LIMIT).read_to_string(&mut text).map_err(problem)?;
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, "the capability's file stays");
    }
    let text = Zeroizing::new(text.trim().to_owned());
    if text.is_empty() { Err(format!("CI_RUNNER_CAPABILITY_FILE {}: empty", path.display())) } else { Ok(text) }
}

fn in_runtime(settings: &Settings, launch: &Launch) -> End {
    // One thread: it is the one that starts the runner, and the kernel counts a parent's death by thread.
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(signalled(settings, launch)),
        Err(error) => End::early(Exit::NotStarted, format!("start the runtime: {error}")),
    }
}

async fn signalled(settings: &Settings, launch: &Launch) -> End {
    match signals::of_this_process() {
        Ok(mut listening) => with_identity(settings, launch, &mut listening.signals).await,
        Err(error) => End::early(Exit::NotStarted, format!("listen to signals: {error}")),
    }
}

async fn with_identity(settings: &Settings, launch: &Launch, signals: &mut Signals) -> End {
    let identity = tokio::select! {
        identity = identity::exact(&launch.env.workload_socket, &launch.env.spiffe_id, launch.patience) => identity,
        Some(signal) = signals.recv() => return End::early(Exit::Interrupted { signal }, "no identity yet"),
    };
    match identity {
        Ok(identity) => {
            tracing::info!("the exact SVID is there");
            served(settings, launch, &identity, signals).await
        }
        Err(error) => End::early(Exit::NoIdentity, error.to_string()),
    }
}

async fn served(settings: &Settings, launch: &Launch, identity: &Identity, signals: &mut Signals) -> End {
    let connector = match identity.connector(&launch.env.facade_spiffe_id) {
        Ok(connector) => connector,
        Err(error) => return End::early(Exit::NoIdentity, error.to_string()),
    };
    let facade = launch.facade.clone();
    let link = Link::new(move || {
        let (connector, facade) = (connector.clone(), facade.clone());
        async move {
            let stream = connector.dial(&facade).await.map_err(std::io::Error::other)?;
            Ok(Box::new(stream) as BoxStream)
        }
        .boxed()
    });
    session::run(settings, link, signals).await
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// NEW-72, NEW-116: read once, without its line end, and gone.
    #[test]
    fn capability_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capability");
        std::fs::write(&path, "c2.text\n").unwrap();
        assert_eq!(capability_file(&path).unwrap().as_str(), "c2.text");
        assert!(capability_file(&path).unwrap_err().contains("CI_RUNNER_CAPABILITY_FILE"));
        std::fs::write(&path, " \n").unwrap();
        assert!(capability_file(&path).unwrap_err().contains("empty"));
    }

    /// NEW-111, NEW-119: an SVID that never comes is waited for in patience, and then it is exit 10 and the wanted ID is
    /// named. Nobody listens on the socket.
    #[tokio::test]
    async fn no_identity() {
        let dir = tempfile::tempdir().unwrap();
        let env = LaunchEnv {
            id: "gitea-task-7".parse().unwrap(),
            facade_url: "https://facade.invalid:8443".to_owned(),
            facade_spiffe_id: "spiffe://example.org/facade".parse().unwrap(),
            spiffe_id: "spiffe://example.org/ci/o/r/j".parse().unwrap(),
            backend: domain::id::Backend::Local,
            workload_socket: format!("unix://{}", dir.path().join("api.sock").display()),
            capability_file: None,
            labels: vec!["local".to_owned()],
            deadline: "2100-01-01T00:00:00Z".parse().unwrap(),
            runner_binary: None,
            runner_config: None,
        };
        let made = of_env(env, Zeroizing::new("c2.text".to_owned()), Starter::Direct, Orphans::NotOurs);
        let (settings, launch) = made.ok().unwrap();
        let launch = Launch { patience: Duration::from_millis(300), ..launch };
        let (_nobody, mut signals) = tokio::sync::mpsc::unbounded_channel();
        let begin = std::time::Instant::now();
        let end = with_identity(&settings, &launch, &mut signals).await;
        assert!(begin.elapsed() >= launch.patience);
        assert_eq!(end.exit.code(), 10);
        assert!(end.detail.contains("spiffe://example.org/ci/o/r/j"), "{}", end.detail);
    }
}
