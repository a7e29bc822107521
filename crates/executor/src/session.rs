//! From a ready identity to the exit code: readiness, hello, proxy, runner, spool, goodbye.
//!
//! The order is the invariant: the runner starts only when the facade has found us right (EXE-4, EXE-7), and the
//! executor ends only when nothing is owed any more or the spool has given up (EXE-6).

mod watch;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use domain::executor_api::{NeverStarted, Report};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::answer::Outcome;
use crate::backoff::backoff;
use crate::deliver::{self, Outbox};
use crate::exit::{Delivered, Exit, RunnerEnd};
use crate::facade::{Credentials, Facade};
use crate::link::Link;
use crate::proxy::{self, Proxy};
use crate::runner::environment::{Told, of_runner};
use crate::runner::files::{self, Files, Registration};
use crate::runner::launch::NOT_STARTED;
use crate::runner::process::{Ended, Process};
use crate::settings::Settings;
use crate::signals::Signals;
use crate::spool::shelf::Shelf;
use crate::token::LoopbackToken;
use watch::Watch;

/// How an executor ended, with what people want to read about it.
pub(crate) struct End {
    /// The exit code and its reason.
    pub(crate) exit: Exit,
    /// More about it; may be empty.
    pub(crate) detail: String,
    /// How the runner ended; none when it never started.
    pub(crate) runner: Option<Ended>,
    /// An interruption happened while the runner lived.
    pub(crate) interrupted: bool,
}

impl End {
    /// The runner was never started.
    pub(crate) fn early(exit: Exit, detail: impl Into<String>) -> Self {
        Self { exit, detail: detail.into(), runner: None, interrupted: false }
    }
}

/// Runs one assignment to its end.
pub(crate) async fn run(settings: &Settings, link: Link, signals: &mut Signals) -> End {
    let Some(credentials) = Credentials::new(&settings.assignment, &settings.capability) else {
        return End::early(Exit::Usage, "the capability cannot stand in a header");
    };
    let facade = Arc::new(Facade::new(link.clone(), settings.authority.clone(), credentials.clone()));
    let ready = tokio::select! {
        ready = ready_and_greeted(&facade, settings) => ready,
        Some(signal) = signals.recv() => Err(End::early(Exit::Interrupted { signal }, "")),
    };
    let mut end = match ready {
        Ok(()) => with_runner(settings, link, credentials, Arc::clone(&facade), signals).await,
        Err(end) if end.exit == Exit::NoFacade => return end,
        Err(end) => end,
    };
    end.interrupted |= matches!(end.exit, Exit::Interrupted { .. });
    goodbye(&facade, &end, settings.limits.goodbye).await;
    end
}

/// Waits until the facade finds assignment, capability and identity right, and greets it.
async fn ready_and_greeted(facade: &Facade, settings: &Settings) -> Result<(), End> {
    let limits = settings.limits;
    let end = Instant::now() + limits.ready;
    loop {
        let problem = match facade.ready(limits.ready_try).await {
            Ok(()) => match facade.report(&Report::Hello, limits.report).await {
                (_, Some(reply)) if reply.go_on => return Ok(()),
                (_, Some(_)) => return Err(End::early(Exit::NothingToDo, "the facade has ended this assignment")),
                (outcome, None) => format!("the hello was not accepted: {outcome:?}"),
            },
            Err(problem) => problem,
        };
        if Instant::now() + limits.ready_interval >= end {
            let detail = format!("the facade at {} in {:?}: {problem}", settings.authority, limits.ready);
            return Err(End::early(Exit::NoFacade, detail));
        }
        tokio::time::sleep(limits.ready_interval).await;
    }
}

/// Proxy, runner, spool.
async fn with_runner(
    settings: &Settings,
    link: Link,
    credentials: Credentials,
    facade: Arc<Facade>,
    signals: &mut Signals,
) -> End {
    let not_started = |problem: String| End::early(Exit::NotStarted, problem);
    let token = match LoopbackToken::random() {
        Ok(token) => Arc::new(token),
        Err(error) => return not_started(format!("no randomness: {error}")),
    };
    let dir = match tempfile::Builder::new().prefix("gitea-task-runner-").tempdir() {
        Ok(dir) => dir,
        Err(error) => return not_started(format!("make a directory in {}: {error}", std::env::temp_dir().display())),
    };
    let shelf = match (&settings.capability_file, settings.assignment.parse()) {
        (Some(file), Ok(assignment)) => Shelf::beside(file, &settings.capability, assignment),
        _ => Shelf::none(),
    };
    let outbox = Arc::new(Outbox::new(settings.limits.patience, shelf));
    let (notices, notices_seen) = mpsc::unbounded_channel();
    let parts = proxy::Parts {
        facade: Arc::clone(&facade),
        outbox: Arc::clone(&outbox),
        link,
        authority: settings.authority.clone(),
        credentials,
        assignment: settings.assignment.clone(),
        token: Arc::clone(&token),
        notices,
        limits: settings.limits,
    };
    let proxy = match Proxy::bind(parts).await {
        Ok(proxy) => proxy,
        Err(error) => return not_started(format!("listen on loopback: {error}")),
    };
    let declare_failed = proxy.declare_failed();
    let (mut command, files) = match prepare(settings, &proxy, &token, dir.path()) {
        Ok(prepared) => prepared,
        Err(problem) => return not_started(problem),
    };

    let mut background = JoinSet::new();
    background.spawn(proxy.serve());
    let mut deliverer = JoinSet::new();
    deliverer.spawn(deliver::deliver(Arc::clone(&outbox), Arc::clone(&facade), settings.limits.report));
    let process = match Process::start(&mut command, settings.orphans) {
        Ok(process) => process,
        Err(error) => return not_started(format!("start {}: {error}", settings.runner_binary.display())),
    };
    let mut watch = Watch::new(process, Arc::clone(&outbox), facade, settings.limits, files.registration);
    let ended = watch.until_ended(signals, notices_seen).await;
    settings.orphans.end().await;
    deliver::until_delivered(&outbox, &mut deliverer).await;
    outbox.store();
    let sent_home = watch.had_nothing_to_do().then_some(Exit::NothingToDo);
    let not_let_in = declare_failed.load(Ordering::Relaxed).then_some(Exit::NoFacade);
    let mut end = judged(&outbox, ended, sent_home.or(not_let_in));
    if end.exit == Exit::NotStarted {
        end.detail = format!("{} cannot be executed", settings.runner_binary.display());
    }
    background.shutdown().await;
    if let Err(error) = dir.close() {
        tracing::warn!(%error, "the runner's directory was not removed");
    }
    end
}

/// Writes the runner's files and makes its command.
fn prepare(settings: &Settings, proxy: &Proxy, token: &LoopbackToken, dir: &Path) -> Result<(Command, Files), String> {
    let registration = Registration {
        assignment: &settings.assignment,
        proxy: proxy.address().map_err(|error| format!("the proxy's address: {error}"))?,
        token,
        labels: &settings.labels,
    };
    let remaining = Duration::try_from(settings.deadline.duration_since(Timestamp::now())).unwrap_or_default();
    let files = files::write(dir, &registration, remaining, settings.runner_config.as_deref())
        .map_err(|error| error.to_string())?;
    let told =
        Told { workload_socket: &settings.workload_socket, spiffe_id: &settings.spiffe_id, backend: &settings.backend };
    let environment = of_runner(std::env::vars_os(), &told);
    let mut command = settings.starter.command(&settings.runner_binary, &files.config, environment);
    command.current_dir(dir);
    Ok((command, files))
}

/// `without_a_job`: why the runner never had one. What is still owed is not delivered by anybody.
fn judged(outbox: &Outbox, ended: Ended, without_a_job: Option<Exit>) -> End {
    let (lost, interrupted) = outbox.with(|spool| (spool.lost() || spool.owes(), spool.interrupted()));
    let exit = if let Some(exit) = without_a_job {
        exit
    } else if ended.code == Some(i32::from(NOT_STARTED)) {
        Exit::NotStarted
    } else {
        let delivered = if lost { Delivered::NotAll } else { Delivered::All };
        Exit::Runner(RunnerEnd { code: ended.code, signal: ended.signal, delivered })
    };
    let runner = (exit != Exit::NotStarted).then_some(ended);
    End { exit, detail: String::new(), runner, interrupted }
}

/// The last word; tried for a short while only, since nothing depends on it.
async fn goodbye(facade: &Facade, end: &End, patience: Duration) {
    let delivered = !matches!(end.exit, Exit::Runner(RunnerEnd { delivered: Delivered::NotAll, .. }));
    let never_started = NeverStarted { reason: end.exit.reason().to_owned(), detail: end.detail.clone() };
    let report = Report::Goodbye {
        runner_exit: end.runner.and_then(|ended| ended.code),
        interrupted: end.interrupted,
        delivered,
        never_started: end.runner.is_none().then_some(never_started),
    };
    let mut pauses = backoff(Duration::from_millis(250), Duration::from_secs(2));
    let until = Instant::now() + patience;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let (outcome, _) = facade.report(&report, left.min(Duration::from_secs(5))).await;
        if matches!(outcome, Outcome::Accepted | Outcome::Refused | Outcome::Unauthenticated) {
            return;
        }
        tokio::time::sleep(pauses.pause()).await;
    }
    tracing::warn!("the goodbye was not heard");
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;
    use crate::spool::Patience;

    /// NEW-112, NEW-119: when the deliverer has died nobody waits for it for ever; the exit code says that the final
    /// report is to be looked for in its file.
    #[tokio::test]
    async fn a_deliverer_that_died_is_not_waited_for() {
        let outbox = Outbox::new(Patience::default(), Shelf::none());
        outbox.interrupt("a signal");
        let mut deliverer = JoinSet::new();
        deliverer.spawn(async { panic!("as the deliverer would") });
        let noticed = deliver::until_delivered(&outbox, &mut deliverer);
        tokio::time::timeout(Duration::from_secs(30), noticed).await.unwrap();
        let end = judged(&outbox, Ended { code: Some(0), signal: None }, None);
        assert_eq!(end.exit.code(), 14);
    }
}
