//! The metrics (NEW-130): prefix `gdr_`, base units, labels from closed lists only.
//!
//! Every label value is a `&'static str` or a domain word, so that no repository, name or error text can become a
//! label. A gauge whose thing is gone falls to 0; it does not vanish.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::id::{Backend, InstanceId};
use domain::reason::Reason;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::config::IsolationKind;

type Label = (&'static str, &'static str);
type Counts<const N: usize> = Family<[Label; N], Counter>;
type Spans<const N: usize> = Family<[Label; N], Histogram, fn() -> Histogram>;

/// The metrics of one process. Clones share the values.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    tasks_fetched: Counter,
    fetch_duration: Histogram,
    fetch_errors: Counts<1>,
    last_successful_fetch: Gauge,
    held_tasks: Levels<2>,
    oldest_held_task_age: Gauge,
    queue_wait: Histogram,
    slots: Levels<2>,
    admission_blocked: Counts<1>,
    executors: Levels<2>,
    executor_start_phase: Spans<1>,
    executor_failures: Counts<1>,
    task_results: Counts<2>,
    relaunch: Counts<1>,
    heartbeat_lag: Gauge,
    cancel_latency: Histogram,
    orphans: Levels<1>,
    reaped: Counts<1>,
    quarantined: Levels<1>,
    unopened: Counts<1>,
    set_aside: Gauge,
    facade_requests: Counts<2>,
    facade_denied: Counts<1>,
    proxy_bytes: Counts<1>,
    nats_connected: Family<[Label; 1], Gauge>,
    leader: Gauge,
    local_jobs_isolated: Gauge,
    identity_issue: Histogram,
    svid_expiry: Gauge,
    secrets_unusable: Levels<1>,
}

/// Whether an end was Gitea's word, the executor's own report, or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The executor's final report.
    Job,
    /// We ended it, with this reason.
    Ours(Reason),
    /// Gitea had ended it already.
    Gitea,
}

impl Cause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Ours(reason) => reason.as_str(),
            Self::Gitea => "gitea",
        }
    }
}

/// Which way bytes went through the repository proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the executor.
    Up,
    /// To the executor.
    Down,
}

impl Metrics {
    /// Registers everything; gauges start at 0.
    #[must_use]
    pub fn new(instance: &InstanceId) -> Self {
        let mut registry = Registry::with_prefix("gdr");
        let r = &mut registry;
        let info: Family<[(&str, String); 2], Gauge> = added(r, "info", "Version and instance of this controller");
        let version = env!("CARGO_PKG_VERSION").to_owned();
        info.get_or_create(&[("version", version), ("instance", instance.as_str().to_owned())]).set(1);
        let mut metrics = Self {
            tasks_fetched: added(r, "tasks_fetched", "Tasks received from Gitea"),
            fetch_duration: timed(r, "fetch_duration_seconds", "Duration of a FetchTask call"),
            fetch_errors: added(r, "fetch_errors", "FetchTask calls that failed, by effective code"),
            last_successful_fetch: added(
                r,
                "last_successful_fetch_timestamp_seconds",
                "When Gitea last answered a fetch",
            ),
            held_tasks: Levels::added(r, "held_tasks", "Tasks fetched and not yet gone"),
            oldest_held_task_age: added(
                r,
                "oldest_held_task_age_seconds",
                "Age of the oldest task without an executor",
            ),
            queue_wait: timed(r, "queue_wait_seconds", "Time between fetch and a running executor"),
            slots: Levels::added(r, "slots", "Slots by kind: capacity, used, free"),
            admission_blocked: added(r, "admission_blocked", "Passes in which nothing could be started"),
            executors: Levels::added(r, "executors", "Executors that exist"),
            executor_start_phase: phases(
                r,
                "executor_start_phase_seconds",
                "Duration of each phase of an executor's start",
            ),
            executor_failures: added(r, "executor_failures", "Executors that failed, by reason"),
            task_results: added(r, "task_results", "Ends that Gitea accepted"),
            relaunch: added(r, "relaunch", "Further lives of an assignment's executor"),
            heartbeat_lag: added(r, "heartbeat_lag_seconds", "Longest silence towards Gitea about a held task"),
            cancel_latency: timed(r, "cancel_latency_seconds", "Time between a seen cancel and the end of the job"),
            orphans: Levels::added(r, "orphans", "Things that belong to nothing we hold"),
            reaped: added(r, "reaped", "Executors deleted, by reason"),
            quarantined: Levels::added(r, "quarantined", "Objects that cannot be read and are left alone"),
            unopened: added(r, "unopened_messages", "Messages of the queue that did not open, by class"),
            set_aside: added(r, "set_aside", "Messages that were set aside"),
            facade_requests: added(r, "facade_requests", "Calls of executors"),
            facade_denied: added(r, "facade_denied", "Calls that were denied"),
            proxy_bytes: added(r, "proxy_bytes", "Bytes through the repository proxy"),
            nats_connected: added(r, "nats_connected", "1 while a connection to NATS stands"),
            leader: added(r, "leader", "1 while this process leads"),
            local_jobs_isolated: added(r, "local_jobs_isolated", "1 where local jobs are isolated"),
            identity_issue: timed(r, "identity_issue_seconds", "Time until an executor had its identity"),
            svid_expiry: added(r, "svid_expiry_timestamp_seconds", "When our own identity ends"),
            secrets_unusable: Levels::added(
                r,
                "secrets_unusable",
                "1 while the new content of a secret file cannot be used and the old one stays in use, by setting",
            ),
            registry: Arc::default(),
        };
        for direction in ["up", "down"] {
            metrics.proxy_bytes.get_or_create(&[("dir", direction)]).inc_by(0);
        }
        metrics.registry = Arc::new(registry);
        metrics
    }

    /// The OpenMetrics text.
    ///
    /// # Errors
    /// Only when the text cannot be written into memory.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// A FetchTask call was answered after `took`, with a task or without.
    pub fn fetched(&self, took: Duration, now: Timestamp, tasks: u64) {
        self.fetch_duration.observe(took.as_secs_f64());
        self.last_successful_fetch.set(now.as_second());
        self.tasks_fetched.inc_by(tasks);
    }

    /// A FetchTask call failed with this effective code.
    pub fn fetch_failed(&self, code: &'static str) {
        self.fetch_errors.get_or_create(&[("code", code)]).inc();
    }

    /// The tasks that are held, by backend and state, and the age of the oldest without an executor.
    pub fn held(&self, counts: impl IntoIterator<Item = (Backend, &'static str, i64)>, oldest: Duration) {
        self.held_tasks.set(counts.into_iter().map(|(b, state, n)| ([("backend", b.as_str()), ("state", state)], n)));
        self.oldest_held_task_age.set(whole(oldest));
    }

    /// A task waited so long for its executor.
    pub fn waited(&self, wait: Duration) {
        self.queue_wait.observe(wait.as_secs_f64());
    }

    /// Slots per backend: (backend, capacity, used).
    pub fn slots(&self, slots: impl IntoIterator<Item = (Backend, u32, u32)>) {
        self.slots.set(slots.into_iter().flat_map(|(backend, capacity, used)| {
            [("capacity", capacity), ("used", used), ("free", capacity.saturating_sub(used))]
                .map(|(kind, n)| ([("backend", backend.as_str()), ("kind", kind)], i64::from(n)))
        }));
    }

    /// Nothing could be started, for this reason.
    pub fn admission_blocked(&self, reason: &'static str) {
        self.admission_blocked.get_or_create(&[("reason", reason)]).inc();
    }

    /// The executors that exist, by backend and phase.
    pub fn executors(&self, counts: impl IntoIterator<Item = (Backend, &'static str, i64)>) {
        self.executors.set(counts.into_iter().map(|(b, phase, n)| ([("backend", b.as_str()), ("phase", phase)], n)));
    }

    /// A phase of an executor's start took so long.
    pub fn start_phase(&self, phase: &'static str, took: Duration) {
        self.executor_start_phase.get_or_create(&[("phase", phase)]).observe(took.as_secs_f64());
    }

    /// An executor failed.
    pub fn executor_failed(&self, reason: Reason) {
        self.executor_failures.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// Gitea accepted an end; `result` is `success`, `failure`, `cancelled` or `skipped`.
    pub fn task_ended(&self, result: &'static str, cause: Cause) {
        self.task_results.get_or_create(&[("result", result), ("cause", cause.as_str())]).inc();
    }

    /// An assignment got a further epoch.
    pub fn relaunched(&self, reason: Reason) {
        self.relaunch.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// The longest silence towards Gitea about a task we hold.
    pub fn heartbeat_lag(&self, lag: Duration) {
        self.heartbeat_lag.set(whole(lag));
    }

    /// A cancelled job was gone after so long.
    pub fn cancelled_after(&self, latency: Duration) {
        self.cancel_latency.observe(latency.as_secs_f64());
    }

    /// Things that belong to nothing we hold, by kind.
    pub fn orphans(&self, counts: impl IntoIterator<Item = (&'static str, i64)>) {
        self.orphans.set(counts.into_iter().map(|(kind, n)| ([("kind", kind)], n)));
    }

    /// An executor was deleted.
    pub fn reaped(&self, reason: &'static str) {
        self.reaped.get_or_create(&[("reason", reason)]).inc();
    }

    /// Objects that cannot be read, by kind.
    pub fn quarantined(&self, counts: impl IntoIterator<Item = (&'static str, i64)>) {
        self.quarantined.set(counts.into_iter().map(|(kind, n)| ([("kind", kind)], n)));
    }

    /// A message did not open.
    pub fn unopened(&self, class: &'static str) {
        self.unopened.get_or_create(&[("class", class)]).inc();
    }

    /// So many messages are set aside.
    pub fn set_aside(&self, count: usize) {
        self.set_aside.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A call of an executor was answered; `method` is a procedure's name, `proxy` or `other`.
    pub fn facade_request(&self, method: &'static str, code: &'static str) {
        self.facade_requests.get_or_create(&[("method", method), ("code", code)]).inc();
    }

    /// A call was denied.
    pub fn facade_denied(&self, reason: &'static str) {
        self.facade_denied.get_or_create(&[("reason", reason)]).inc();
    }

    /// Bytes went through the repository proxy.
    pub fn proxied(&self, direction: Direction, bytes: u64) {
        let dir = if direction == Direction::Up { "up" } else { "down" };
        self.proxy_bytes.get_or_create(&[("dir", dir)]).inc_by(bytes);
    }

    /// Whether local jobs are isolated (NEW-172).
    pub fn isolation(&self, kind: IsolationKind) {
        self.local_jobs_isolated.set(i64::from(kind == IsolationKind::Full));
    }

    /// Whether a connection to NATS stands. With the embedded queue there is no such series.
    pub fn nats_connected(&self, role: crate::nats::Role, connected: bool) {
        self.nats_connected.get_or_create(&[("connection", role.as_str())]).set(i64::from(connected));
    }

    /// Whether this process leads.
    pub fn leader(&self, leader: super::readiness::Leader) {
        self.leader.set(i64::from(leader == super::readiness::Leader::Leading));
    }

    /// An executor had its identity after so long.
    pub fn identity_issued(&self, took: Duration) {
        self.identity_issue.observe(took.as_secs_f64());
    }

    /// Whether the present content of the file of each of these settings cannot be used (NEW-140).
    pub fn secrets(&self, unusable: impl IntoIterator<Item = (&'static str, bool)>) {
        let levels = unusable.into_iter().map(|(setting, unusable)| ([("setting", setting)], i64::from(unusable)));
        self.secrets_unusable.set(levels);
    }

    /// Our own identity ends then.
    pub fn svid_expires(&self, at: Timestamp) {
        self.svid_expiry.set(at.as_second());
    }
}

/// A gauge per label set that remembers which sets it has shown, so that they fall to 0 (NEW-130).
#[derive(Clone, Default)]
struct Levels<const N: usize> {
    family: Family<[Label; N], Gauge>,
    shown: Arc<Mutex<BTreeSet<[Label; N]>>>,
}

impl<const N: usize> Levels<N> {
    fn added(registry: &mut Registry, name: &str, help: &str) -> Self {
        Self { family: added(registry, name, help), shown: Arc::default() }
    }

    fn set(&self, levels: impl IntoIterator<Item = ([Label; N], i64)>) {
        let levels: BTreeMap<_, _> = levels.into_iter().collect();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.extend(levels.keys().copied());
        for labels in shown.iter() {
            self.family.get_or_create(labels).set(levels.get(labels).copied().unwrap_or(0));
        }
    }
}

fn added<M>(registry: &mut Registry, name: &str, help: &str) -> M
where
    M: prometheus_client::registry::Metric + Clone + Default,
{
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// 5 ms to about 80 s.
fn buckets() -> Histogram {
    Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(0.005, 2.0, 15))
}

fn timed(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let metric = buckets();
    registry.register(name, help, metric.clone());
    metric
}

fn phases(registry: &mut Registry, name: &str, help: &str) -> Spans<1> {
    let metric = Spans::new_with_constructor(buckets as fn() -> Histogram);
    registry.register(name, help, metric.clone());
    metric
}

fn whole(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(&"f66f031b".parse().unwrap())
    }

    #[track_caller]
    fn has(metrics: &Metrics, line: &str) {
        let text = metrics.encode().unwrap();
        assert!(text.lines().any(|l| l == line), "{line}\n---\n{text}");
    }

    /// NEW-130: gauges fall to 0 and do not vanish.
    #[test]
    fn gauges_fall_to_zero() {
        let m = metrics();
        m.held([(Backend::Local, "waiting", 3), (Backend::Local, "running", 1)], Duration::from_secs(70));
        has(&m, "gdr_held_tasks{backend=\"local\",state=\"waiting\"} 3");
        has(&m, "gdr_oldest_held_task_age_seconds 70");
        m.held([(Backend::Local, "running", 2)], Duration::ZERO);
        has(&m, "gdr_held_tasks{backend=\"local\",state=\"waiting\"} 0");
        has(&m, "gdr_held_tasks{backend=\"local\",state=\"running\"} 2");
        m.slots([(Backend::Local, 4, 1)]);
        has(&m, "gdr_slots{backend=\"local\",kind=\"free\"} 3");
    }

    /// NEW-130: the names, those without labels from the start on.
    #[test]
    fn names() {
        let m = metrics();
        has(&m, "gdr_tasks_fetched_total 0");
        has(&m, "gdr_leader 0");
        has(&m, "gdr_last_successful_fetch_timestamp_seconds 0");
        has(&m, &format!("gdr_info{{version=\"{}\",instance=\"f66f031b\"}} 1", env!("CARGO_PKG_VERSION")));
        m.task_ended("failure", Cause::Ours(Reason::QueueTimeout));
        has(&m, "gdr_task_results_total{result=\"failure\",cause=\"queue_timeout\"} 1");
        m.proxied(Direction::Up, 7);
        has(&m, "gdr_proxy_bytes_total{dir=\"up\"} 7");
        has(&m, "gdr_proxy_bytes_total{dir=\"down\"} 0");
        m.start_phase("spawn", Duration::from_millis(6));
        has(&m, "gdr_executor_start_phase_seconds_bucket{le=\"0.01\",phase=\"spawn\"} 1");
        m.fetch_failed("unavailable");
        m.admission_blocked("full");
        m.executors([(Backend::Local, "running", 1)]);
        m.executor_failed(Reason::ExecutorExited);
        m.relaunched(Reason::ClaimTimeout);
        m.orphans([("folder", 0)]);
        m.reaped("finished");
        m.quarantined([("folder", 0)]);
        m.facade_request("Declare", "ok");
        m.facade_denied("fenced");
        m.nats_connected(crate::nats::Role::Worker, true);
        has(&m, "gdr_nats_connected{connection=\"worker\"} 1");
        let known = [
            "fetch_duration_seconds",
            "fetch_errors",
            "queue_wait_seconds",
            "admission_blocked",
            "executors",
            "executor_failures",
            "relaunch",
            "heartbeat_lag_seconds",
            "cancel_latency_seconds",
            "orphans",
            "reaped",
            "quarantined",
            "facade_requests",
            "facade_denied",
            "identity_issue_seconds",
            "svid_expiry_timestamp_seconds",
        ];
        let text = m.encode().unwrap();
        for name in known {
            assert!(text.contains(&format!("# TYPE gdr_{name} ")), "{name}\n---\n{text}");
        }
    }
}
