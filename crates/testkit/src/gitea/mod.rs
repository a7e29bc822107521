//! A stateful double of Gitea on the wire: its RunnerService, its timeouts, its faults.
//!
//! The law is `docs/contracts/gitea-runner-service.md`; `§` in this module's comments means its sections. Each rule is
//! a switch in [`Rules`], and each switch is contradicted by a recorded trace or by a conformance question.

mod area;
mod calls;
mod clock;
mod codec;
mod ending;
mod fault;
mod fetch;
mod job;
mod log;
mod refusal;
pub mod replay;
mod rules;
mod runs;
mod server;
mod service;
mod settings;
mod shared;
mod task;
mod update;
mod view;
mod webhook;
mod wire;
mod yaml;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use connectrpc::ErrorCode;
use jiff::Timestamp;
use runner_proto::runner::v1::RegisterRequest;
use tokio::net::TcpListener;

pub use crate::waiting::NotInTime;
pub use area::Seen;
pub use calls::{Call, CallEnd, Counters, Method, Request};
pub use ending::Sweep;
pub use fault::{Away, FaultSpec, Latency, Moment};
pub use job::{JobId, JobSpec, Others, StepSpec};
pub use rules::Rules;
pub use server::{Scope, Status};
pub use settings::Settings;
pub use view::{JobState, LogLine, Page, StepView};
pub use webhook::{Action, Event, Webhook};
pub use yaml::workflow;

use clock::{Clock, between};
use server::Server;
use shared::{Shared, World};

use crate::runner_client::Credentials;
use crate::waiting;

/// A runner as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerView {
    /// Its uuid.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// The version it declared last.
    pub version: String,
    /// The labels it declared last.
    pub labels: Vec<String>,
    /// The capabilities it declared last.
    pub capabilities: Vec<String>,
    /// Whether it was taken out of service.
    pub disabled: bool,
    /// Its last authenticated call.
    pub last_online: Timestamp,
}

/// The running double; it ends when this is dropped. All methods but `start` and `wait_for` return at once.
pub struct Gitea {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Gitea {
    /// Gitea 1.26.0 with its default timeouts, on a loopback port of the kernel's choice.
    pub async fn start() -> Self {
        Self::start_with(Rules::default(), Settings::default()).await
    }

    /// With other rules and settings.
    ///
    /// # Panics
    ///
    /// If the loopback interface gives no port.
    pub async fn start_with(rules: Rules, settings: Settings) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        #[expect(clippy::expect_used, reason = "a test cannot go on without a port")]
        let (listener, address) = listener.expect("a port on the loopback interface");
        let clock = Clock::new(settings.clock_rate);
        let server = Server::new(rules, settings, format!("http://{address}"));
        let shared = Arc::new(Shared::new(World::new(clock, server)));
        tokio::spawn(wire::serve(listener, shared.clone()));
        let sweeper = shared.clone();
        tokio::spawn(async move { sweeper.sweep().await });
        Self { shared, address }
    }

    /// The instance URL, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The global registration token.
    #[must_use]
    pub fn registration_token(&self) -> String {
        self.registration_token_for(&Scope::Global)
    }

    /// The registration token of a scope.
    #[must_use]
    pub fn registration_token_for(&self, scope: &Scope) -> String {
        self.shared.change(|world| world.server.registration_token(scope))
    }

    /// Replaces the registration token of a scope; the old one is refused from now on.
    pub fn replace_registration_token(&self, scope: &Scope) -> String {
        self.shared.change(|world| world.server.replace_registration_token(scope))
    }

    /// Registers a runner without a call; not counted.
    ///
    /// # Panics
    ///
    /// If `name` is empty.
    #[must_use]
    pub fn register<L: Into<String>>(&self, name: &str, labels: impl IntoIterator<Item = L>) -> Credentials {
        let labels = labels.into_iter().map(Into::into).collect();
        let runner = self.shared.change(|world| {
            let token = world.server.registration_token(&Scope::Global);
            let request = RegisterRequest { name: name.into(), token, labels, ..Default::default() };
            world.server.register(&request, world.clock.now())
        });
        #[expect(clippy::expect_used, reason = "name and token are there")]
        let runner = runner.expect("a registration with name and token");
        Credentials::new(runner.uuid, runner.token)
    }

    /// All runners.
    #[must_use]
    pub fn runners(&self) -> Vec<RunnerView> {
        self.shared.look(|world| {
            let view = |row: &server::RunnerRow| RunnerView {
                uuid: row.uuid.clone(),
                name: row.name.clone(),
                version: row.version.clone(),
                labels: row.labels.clone(),
                capabilities: row.capabilities.clone(),
                disabled: row.disabled,
                last_online: row.last_online,
            };
            world.server.runners.values().map(view).collect()
        })
    }

    /// Takes a runner out of service; what it holds runs on.
    pub fn disable_runner(&self, uuid: &str) {
        self.shared.change(|world| world.server.set_disabled(uuid, true));
    }

    /// Puts it back.
    pub fn enable_runner(&self, uuid: &str) {
        self.shared.change(|world| world.server.set_disabled(uuid, false));
    }

    /// Deletes a runner; its tasks stay Running (§3.2).
    pub fn delete_runner(&self, uuid: &str) {
        self.shared.change(|world| world.server.delete_runner(uuid, world.clock.now()));
    }

    /// Renames a repository within its owner; what is fetched later names the new name (§11.2).
    pub fn rename_repository(&self, repository: &str, name: &str) {
        self.shared.change(|world| world.server.rename_repository(repository, name));
    }

    /// Deletes a repository with its runs, jobs, tasks and runners (§3.2).
    pub fn delete_repository(&self, repository: &str) {
        self.shared.change(|world| world.server.delete_repository(repository));
    }

    /// Starts runs with these jobs, one run per repository, with one bump of the tasks version.
    pub fn push(&self, jobs: Vec<JobSpec>) -> Vec<JobId> {
        self.shared.change(|world| {
            let now = world.clock.now();
            world.server.push(jobs, now).into_iter().map(JobId).collect()
        })
    }

    /// Starts one run with one job.
    ///
    /// # Panics
    ///
    /// Never: a pushed job has an id.
    pub fn push_one(&self, job: JobSpec) -> JobId {
        let ids = self.push(vec![job]);
        ids[0]
    }

    /// A user cancels the run of a job; there is no other cancel (§8).
    pub fn cancel(&self, job: JobId) {
        self.shared.change(|world| world.server.cancel_run(job.0, world.clock.now()));
    }

    /// A user runs an ended job again.
    pub fn rerun(&self, job: JobId) {
        self.shared.change(|world| world.server.rerun(job.0, world.clock.now()));
    }

    /// A user deletes the run of a job, with all its jobs and tasks.
    pub fn delete_run(&self, job: JobId) {
        self.shared.change(|world| {
            if let Some(run) = world.server.jobs.get(&job.0).map(|job| job.run) {
                world.server.delete_run(run);
            }
        });
    }

    /// Is restored from a backup that is older than this task: it and all later ones are forgotten, with what was
    /// known of their jobs, and tasks are counted from it again.
    pub fn restore_before(&self, task: i64) {
        self.shared.change(|world| world.server.restore_before(task));
    }

    /// One job that cannot be parsed spoils every pick, with this cause, until it is `None` again (§4.4).
    pub fn break_picks(&self, cause: Option<&str>) {
        self.shared.change(|world| world.server.broken_job = cause.map(Into::into));
    }

    /// A job.
    ///
    /// # Panics
    ///
    /// If there is no such job (any more); see [`Self::find`].
    #[must_use]
    #[track_caller]
    pub fn state(&self, job: JobId) -> JobState {
        match self.find(job) {
            Some(state) => state,
            None => panic!("Gitea has no job {job}"),
        }
    }

    /// A job, if it exists.
    #[must_use]
    pub fn find(&self, job: JobId) -> Option<JobState> {
        self.shared.look(|world| world.server.view(job.0))
    }

    /// All jobs, oldest first.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobId> {
        self.shared.look(|world| world.server.jobs.keys().copied().map(JobId).collect())
    }

    /// How many jobs have this status.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.shared.look(|world| world.server.jobs.values().filter(|job| job.status == status).count())
    }

    /// The job of a task.
    #[must_use]
    pub fn job_of(&self, task: i64) -> Option<JobId> {
        self.shared.look(|world| world.server.tasks.get(&task).map(|task| JobId(task.job)))
    }

    /// The tasks that were fetched and have not ended.
    #[must_use]
    pub fn held(&self) -> Vec<i64> {
        let open = |task: &&server::TaskRow| !task.status.is_end();
        self.shared.look(|world| world.server.tasks.values().filter(open).map(|task| task.id).collect())
    }

    /// The message that was handed out as this task.
    #[must_use]
    pub fn handed_out(&self, task: i64) -> Option<runner_proto::runner::v1::Task> {
        self.shared.look(|world| world.server.tasks.get(&task).map(|task| task.message.clone()))
    }

    /// The tasks version of a scope; 0 while it has none.
    #[must_use]
    pub fn tasks_version(&self, scope: &Scope) -> i64 {
        self.shared.look(|world| world.server.versions.get(scope).copied().unwrap_or_default())
    }

    /// Orders a fault for the next calls of one method; faults queue up.
    pub fn fail_next(&self, method: Method, fault: FaultSpec) {
        self.shared.change(|world| world.faults.order(method, fault));
    }

    /// Orders a fault for the next calls of every method.
    pub fn fail_all(&self, fault: &FaultSpec) {
        for method in Method::ALL {
            self.fail_next(method, fault.clone());
        }
    }

    /// Forgets all ordered faults.
    pub fn clear_faults(&self) {
        self.shared.change(|world| world.faults.clear());
    }

    /// Takes the whole server away, or brings it back.
    pub fn set_away(&self, away: Away) {
        self.shared.change(|world| world.away = away);
    }

    /// Delays every call before it takes effect.
    pub fn set_latency(&self, latency: Latency) {
        self.shared.change(|world| world.latency = latency);
    }

    /// Changes settings while it runs.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        self.shared.change(|world| change(&mut world.server.settings));
    }

    /// Gitea's time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.look(|world| world.clock.now())
    }

    /// Moves Gitea's time forward; sweeps that become due run before this returns.
    pub fn advance(&self, by: Duration) {
        self.shared.change(|world| {
            world.clock.advance(by);
            world.run_due_sweeps();
        });
    }

    /// From now on one real second is `rate` seconds of Gitea.
    pub fn set_clock_rate(&self, rate: f64) {
        self.shared.change(|world| world.clock.set_rate(rate));
    }

    /// Runs a sweep now, as a server start does.
    pub fn sweep(&self, sweep: Sweep) {
        self.shared.change(|world| world.server.sweep(sweep, world.clock.now()));
    }

    /// All RunnerService and Ping calls so far, in order of arrival.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.look(|world| world.book.calls.clone())
    }

    /// The calls about one task, its FetchTask first.
    #[must_use]
    pub fn calls_of(&self, task: i64) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.task == Some(task)).collect()
    }

    /// Counts over all calls.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.look(|world| {
            let after_end = world.server.tasks.values().map(|task| task.updates_after_end as usize).sum();
            Counters { updates_after_end: after_end, ..world.book.counters }
        })
    }

    /// The longest time between two reports of a task, in Gitea's time: from the fetch over each accepted UpdateTask
    /// to its end, or to now if it has not ended.
    #[must_use]
    pub fn largest_gap(&self, task: i64) -> Option<Duration> {
        self.largest_gaps().remove(&task)
    }

    /// [`Self::largest_gap`] of every task.
    #[must_use]
    pub fn largest_gaps(&self) -> BTreeMap<i64, Duration> {
        self.shared.look(|world| {
            let now = world.clock.now();
            let gap = |task: &server::TaskRow| {
                let last = (!task.status.is_end()).then_some(now);
                let moments: Vec<_> = task.reports.iter().copied().chain(last).collect();
                let gap = moments.windows(2).map(|pair| between(pair[0], pair[1])).max();
                (task.id, gap.unwrap_or_default())
            };
            world.server.tasks.values().map(gap).collect()
        })
    }

    /// Requests outside RunnerService: git, REST, artifacts.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.look(|world| world.seen.clone())
    }

    /// The connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.look(|world| world.connections)
    }

    /// The webhooks that were sent.
    #[must_use]
    pub fn webhooks(&self) -> Vec<Webhook> {
        self.shared.look(|world| world.server.webhooks.clone())
    }

    /// Waits until a condition holds; looks again after every change. `what` completes "it is not so that …".
    ///
    /// # Errors
    ///
    /// When `deadline` (real time) passes first.
    pub async fn wait_for(
        &self,
        what: &str,
        condition: impl Fn(&Self) -> bool,
        deadline: Duration,
    ) -> Result<(), NotInTime> {
        waiting::until(self.shared.changes(), what, || condition(self), deadline).await
    }
}

impl Drop for Gitea {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// A call as it goes over the wire, decoded; none for what is no call.
pub(crate) fn read(head: &http::request::Parts, body: &bytes::Bytes) -> Option<(Method, Request)> {
    let method = Method::from_path(head.uri.path().strip_prefix(wire::PREFIX)?)?;
    let content_type = head.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let json = content_type.starts_with("application/json");
    let format = if json { connectrpc::CodecFormat::Json } else { connectrpc::CodecFormat::Proto };
    let body = codec::unzip(&head.headers, body.clone()).ok()?;
    Some((method, codec::decode(method, format, &body)))
}

/// The code and text in Gitea's `rpc error: code = <Name> desc = <text>` (§3.2).
#[must_use]
pub fn grpc_error(message: &str) -> Option<(ErrorCode, &str)> {
    let (name, text) = message.strip_prefix("rpc error: code = ")?.split_once(" desc = ")?;
    (1..=16)
        .filter_map(ErrorCode::from_grpc_code)
        .find(|code| refusal::grpc_name(*code) == name)
        .map(|code| (code, text))
}
