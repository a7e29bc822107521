//! The order of an end (NEW-16): no further fetch, the one in flight is awaited and what it brought is persisted; no
//! further launch, heartbeat, report and removal; running calls of executors are finished, and what they send or get
//! through us. Executors are left alone. Every step has its own limit and its line in the log.

use std::time::Duration;

use domain::lifecycle::{Event, Executor, Phase};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Rooms;
use crate::board::{Board, View};

/// How long each step may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// For the fetch in flight: Gitea's deadline and ours, and a publish.
    fetch: Duration,
    /// For telling Gitea of tasks that lie in no queue.
    reports: Duration,
    /// For calls that are being carried out.
    calls: Duration,
    /// For the rooms to end.
    rooms: Duration,
    /// The grace period: all steps together, and what the others leave of it is for proxied bodies (requirements §1.4).
    /// Less than `TimeoutStopSec` of our systemd unit, which kills.
    grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fetch: Duration::from_secs(70),
            reports: Duration::from_secs(15),
            calls: Duration::from_secs(10),
            rooms: Duration::from_secs(10),
            grace: Duration::from_secs(115),
        }
    }
}

/// What the rooms wait for.
#[derive(Default)]
pub(super) struct Shutdown {
    /// No further fetch.
    pub(super) fetch: CancellationToken,
    /// The fetch loop has ended.
    pub(super) fetched: CancellationToken,
    /// Everything else ends.
    pub(super) rooms: CancellationToken,
    /// The facade's connections have ended.
    pub(super) drained: CancellationToken,
    /// The ends that they brought are written down.
    pub(super) noted: CancellationToken,
    limits: Limits,
}

impl Shutdown {
    /// Ends everything in order.
    pub(super) async fn drain(&self, board: &Board, calls: &TaskTracker, rooms: &mut Rooms) {
        let (began, limits) = (Instant::now(), self.limits);
        self.fetch.cancel();
        step("the FetchTask under way", limits.fetch, self.fetched.cancelled()).await;
        step("reports of tasks that lie in no queue", limits.reports, told(board)).await;
        self.rooms.cancel();
        calls.close();
        step("calls under way", limits.calls, calls.wait()).await;
        step("loops", limits.rooms, self.all_but_the_last(rooms)).await;
        let left = limits.grace.saturating_sub(began.elapsed());
        step("transfers of jobs", left, self.noted.cancelled()).await;
    }

    /// The facade, and whoever writes down the ends that it still brings, go on.
    async fn all_but_the_last(&self, rooms: &mut Rooms) {
        while rooms.len() > [&self.drained, &self.noted].iter().filter(|last| !last.is_cancelled()).count() {
            rooms.join_next().await;
        }
    }
}

/// Waits for one step of the end, says so, and says when it was not over in time.
async fn step(what: &str, limit: Duration, over: impl Future<Output = ()>) {
    tracing::info!(component = "controller", "stopping: waiting for {what}, at most {limit:.0?}");
    if tokio::time::timeout(limit, over).await.is_err() {
        tracing::warn!(component = "controller", "stopping: {what}: not over after {limit:.0?}; going on without");
    }
}

/// Ends what is nowhere durable, and is ready when Gitea heard of it.
async fn told(board: &Board) {
    let mut changes = board.changes();
    let volatile: Vec<_> = board.views().into_iter().filter(is_volatile).collect();
    for view in &volatile {
        board.apply(view.id, Event::Stopping);
    }
    let open = || {
        volatile.iter().any(|view| board.view(view.id).is_some_and(|now| matches!(now.life.phase(), Phase::Ending(_))))
    };
    while open() {
        changes.next().await;
    }
}

/// Neither a message nor an executor would tell the next process of it.
fn is_volatile(view: &View) -> bool {
    let known = view.message.is_some() || view.life.executor() != Executor::Absent;
    matches!(view.life.phase(), Phase::Fetched | Phase::Ending(_)) && !known
}

/// SIGINT and SIGTERM mean the same.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on.
    ///
    /// # Errors
    /// The system refuses handlers.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next of either.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::app::rooms::ended;
    use crate::chronicle::Chronicle;
    use crate::clock::Clock;
    use crate::config::{Log, LogFormat, LogLevel};
    use crate::ops::metrics::Metrics;
    use crate::telemetry::lines::{Lines, hear};
    use crate::telemetry::{Colours, subscriber};

    /// A second is 10 ms long.
    fn hasty() -> Limits {
        let Limits { fetch, reports, calls, rooms, grace } = Limits::default();
        let [fetch, reports, calls, rooms, grace] = [fetch, reports, calls, rooms, grace].map(|limit| limit / 100);
        Limits { fetch, reports, calls, rooms, grace }
    }

    /// How long an end takes, and its lines for people. The fetch loop, another room, and the facade's connections end
    /// so long after they were asked to; what the connections brought is noted after that.
    async fn drained(limits: Limits, [fetch, another, connections]: [Duration; 3]) -> (Duration, Vec<String>) {
        let lines = Lines::default();
        let log = Log { format: LogFormat::Text, level: LogLevel::Info };
        let writer = lines.clone();
        let _guard = hear(subscriber(log, move || writer.clone(), Colours::Off));
        let instance: domain::id::InstanceId = "f66f031b".parse().unwrap();
        let chronicle = Chronicle::new(Metrics::new(&instance), instance);
        let board = Board::new(domain::lifecycle::Limits::default(), Clock::start(), chronicle);
        let (shutdown, mut rooms) = (Shutdown { limits, ..Shutdown::default() }, Rooms::new());
        for (asked, after, said) in [
            (&shutdown.fetch, fetch, Some(&shutdown.fetched)),
            (&shutdown.rooms, another, None),
            (&shutdown.rooms, connections, Some(&shutdown.drained)),
        ] {
            let (asked, said) = (asked.clone(), said.cloned().unwrap_or_default());
            rooms.spawn(async move {
                asked.cancelled().await;
                tokio::time::sleep(after).await;
                said.cancel();
                ended()
            });
        }
        let (connections, noted) = (shutdown.drained.clone(), shutdown.noted.clone());
        rooms.spawn(async move {
            connections.cancelled().await;
            noted.cancel();
            ended()
        });
        let began = Instant::now();
        shutdown.drain(&board, &TaskTracker::new(), &mut rooms).await;
        let text = lines.text();
        (began.elapsed(), text.lines().map(|line| line[9..].to_owned()).collect())
    }

    const AT_ONCE: Duration = Duration::ZERO;
    const NEVER: Duration = Duration::from_secs(3600);

    /// NEW-16, NEW-60: a line for every step, with its limit, and none for what did not happen.
    #[tokio::test]
    async fn every_step_has_its_line() {
        let (_, lines) = drained(Limits::default(), [AT_ONCE; 3]).await;
        let expected = [
            "stopping: waiting for the FetchTask under way, at most 70s",
            "stopping: waiting for reports of tasks that lie in no queue, at most 15s",
            "stopping: waiting for calls under way, at most 10s",
            "stopping: waiting for loops, at most 10s",
        ];
        assert_eq!(lines[..4], expected, "{lines:#?}");
        assert!(lines[4].starts_with("stopping: waiting for transfers of jobs, at most 11"), "{lines:#?}");
        assert_eq!(lines.len(), 5, "{lines:#?}");
    }

    /// SRV-1, F105: an upload has what the other steps leave of the grace period, and no more.
    #[tokio::test]
    async fn a_transfer_has_the_rest_of_the_grace_period() {
        let longer_than_any_other_step = Duration::from_secs(90) / 100;
        let (took, lines) = drained(hasty(), [AT_ONCE, AT_ONCE, longer_than_any_other_step]).await;
        assert!(took >= longer_than_any_other_step, "{took:?}");
        assert_eq!(lines.len(), 5, "{lines:#?}");
        let (took, lines) = drained(hasty(), [NEVER; 3]).await;
        assert!(took >= hasty().grace, "{took:?}");
        assert!(lines.last().unwrap().contains("stopping: transfers of jobs: not over after"), "{lines:#?}");
    }

    /// NEW-16, NEW-60: what overruns its own limit holds up nothing else, and is told.
    #[tokio::test]
    async fn a_step_that_overruns_is_told() {
        let (took, lines) = drained(hasty(), [NEVER, NEVER, AT_ONCE]).await;
        assert!(took >= hasty().fetch + hasty().rooms, "{took:?}");
        let over: Vec<_> = lines.iter().filter(|line| line.starts_with("warning: ")).collect();
        let expected = [
            "warning: stopping: the FetchTask under way: not over after 700ms; going on without",
            "warning: stopping: loops: not over after 100ms; going on without",
        ];
        assert_eq!(over, expected, "{lines:#?}");
    }
}
