//! The record of calls: what came when, what overlapped, how often.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use runner_proto::ping::v1::PingRequest;
use runner_proto::runner::v1::{
    DeclareRequest, FetchTaskRequest, RegisterRequest, Result as TaskResult, UpdateLogRequest, UpdateTaskRequest,
};

/// The methods that runners call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named as in the protocol")]
pub enum Method {
    Ping,
    Register,
    Declare,
    FetchTask,
    UpdateTask,
    UpdateLog,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Ping, Self::Register, Self::Declare, Self::FetchTask, Self::UpdateTask, Self::UpdateLog];

    /// `service/method`, the end of its URL.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Ping => "ping.v1.PingService/Ping",
            Self::Register => "runner.v1.RunnerService/Register",
            Self::Declare => "runner.v1.RunnerService/Declare",
            Self::FetchTask => "runner.v1.RunnerService/FetchTask",
            Self::UpdateTask => "runner.v1.RunnerService/UpdateTask",
            Self::UpdateLog => "runner.v1.RunnerService/UpdateLog",
        }
    }

    /// The method's own name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.path().rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.path() == path)
    }
}

/// A request, decoded.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "named as in the protocol")]
pub enum Request {
    Ping(PingRequest),
    Register(RegisterRequest),
    Declare(DeclareRequest),
    FetchTask(FetchTaskRequest),
    UpdateTask(UpdateTaskRequest),
    UpdateLog(UpdateLogRequest),
    /// A body that is no message of this method.
    Unreadable,
}

impl Request {
    /// The task it speaks of.
    #[must_use]
    pub fn task(&self) -> Option<i64> {
        match self {
            Self::UpdateTask(request) => request.state.as_option().map(|state| state.id),
            Self::UpdateLog(request) => Some(request.task_id),
            _ => None,
        }
    }

    /// A few words for a person.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::Ping(_) => "ping".into(),
            Self::Register(request) => format!("{} {:?}", request.name, request.labels),
            Self::Declare(request) => format!("{:?} {:?}", request.labels, request.capabilities),
            Self::FetchTask(request) => format!("version {}", request.tasks_version),
            Self::UpdateTask(request) => update_summary(request),
            Self::UpdateLog(request) => {
                let end = if request.no_more { ", no more" } else { "" };
                format!("{} rows at {}{end}", request.rows.len(), request.index)
            }
            Self::Unreadable => "unreadable".into(),
        }
    }
}

fn update_summary(request: &UpdateTaskRequest) -> String {
    let Some(state) = request.state.as_option() else { return "no state".into() };
    let started = state.steps.iter().filter(|step| step.started_at.is_set()).count();
    let steps = format!("{started} of {} steps started", state.steps.len());
    match state.result.as_known() {
        Some(TaskResult::Unspecified) | None if state.steps.is_empty() => "heartbeat".into(),
        Some(TaskResult::Unspecified) | None => steps,
        Some(result) => format!("{result:?}, {steps}"),
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    /// It has not; a watch may stay so for long.
    Pending,
    /// Answered with this HTTP status; the text is the error's message, empty if there is none.
    Answered {
        /// HTTP status.
        status: u16,
        /// The message of an error.
        message: String,
    },
    /// The connection was cut by an ordered fault.
    Cut,
    /// The client went away first.
    Left,
}

/// One call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number, from 0, in order of arrival.
    pub number: usize,
    /// When it arrived, on Gitea's clock.
    pub at: Timestamp,
    /// When it arrived, on the machine's clock.
    pub instant: Instant,
    /// How long it took in real time, once it has ended.
    pub took: Option<Duration>,
    /// The method.
    pub method: Method,
    /// The `x-runner-uuid` it carried.
    pub runner: Option<String>,
    /// The task it speaks of; for FetchTask the task it was given, even if the answer never arrived.
    pub task: Option<i64>,
    /// A few words about it.
    pub summary: String,
    /// The request.
    pub request: Request,
    /// Another UpdateTask or UpdateLog of the same task was not done yet when it arrived (§9, fault F162).
    pub overlapping: bool,
    /// `Connect-Timeout-Ms`.
    pub timeout: Option<Duration>,
    /// The result that the reply to an UpdateTask carries, sent or not; `None` where nothing was carried out.
    pub result: Option<TaskResult>,
    /// The request's headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// How it ended.
    pub end: CallEnd,
}

impl Call {
    /// The result that an UpdateTask told, if it was carried out.
    #[must_use]
    pub fn told(&self) -> Option<TaskResult> {
        let Request::UpdateTask(request) = &self.request else { return None };
        let result = request.state.as_option()?.result.as_known()?;
        (result != TaskResult::Unspecified && self.result.is_some()).then_some(result)
    }
}

/// Counts over all calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Register calls.
    pub registers: usize,
    /// Declare calls.
    pub declares: usize,
    /// FetchTask calls.
    pub fetches: usize,
    /// FetchTask calls with version 0.
    pub zero_fetches: usize,
    /// UpdateTask calls.
    pub update_tasks: usize,
    /// UpdateLog calls.
    pub update_logs: usize,
    /// The most FetchTask calls at one time.
    pub max_concurrent_fetches: usize,
    /// UpdateTask calls on ended tasks; each repeats webhooks (§7).
    pub updates_after_end: usize,
    /// UpdateLog calls without a row for tasks of whose end an UpdateTask had been answered: they only ask (NEW-163).
    pub questions_after_end: usize,
    /// UpdateLog calls that met another UpdateLog of their task (§9).
    pub overlapping_logs: usize,
    /// UpdateTask or UpdateLog calls that met another call of their task.
    pub overlapping_calls: usize,
}

/// All calls so far, and those not done.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) calls: Vec<Call>,
    open: Vec<(usize, Method, Option<i64>)>,
    /// The tasks of whose end their runner was told.
    ends_told: BTreeSet<i64>,
    pub(crate) counters: Counters,
}

impl Book {
    /// Enters a call that has just arrived.
    pub(crate) fn enter(&mut self, mut call: Call) -> usize {
        call.number = self.calls.len();
        let of_task = |open: &&(usize, Method, Option<i64>)| open.2.is_some() && open.2 == call.task;
        call.overlapping = self.open.iter().any(|open| of_task(&open));
        let log = |open: &&(usize, Method, Option<i64>)| of_task(open) && open.1 == Method::UpdateLog;
        let overlapping_log = call.method == Method::UpdateLog && self.open.iter().any(|open| log(&open));
        self.open.push((call.number, call.method, call.task));
        let counters = &mut self.counters;
        counters.overlapping_calls += usize::from(call.overlapping);
        counters.overlapping_logs += usize::from(overlapping_log);
        match &call.request {
            Request::Register(_) => counters.registers += 1,
            Request::Declare(_) => counters.declares += 1,
            Request::FetchTask(request) => {
                counters.fetches += 1;
                counters.zero_fetches += usize::from(request.tasks_version == 0);
                let open = self.open.iter().filter(|open| open.1 == Method::FetchTask).count();
                counters.max_concurrent_fetches = counters.max_concurrent_fetches.max(open);
            }
            Request::UpdateTask(_) => counters.update_tasks += 1,
            Request::UpdateLog(request) => {
                counters.update_logs += 1;
                let asks = request.rows.is_empty() && self.ends_told.contains(&request.task_id);
                counters.questions_after_end += usize::from(asks);
            }
            Request::Ping(_) | Request::Unreadable => {}
        }
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// An answer that says how this task ended is on its way.
    pub(crate) fn end_told(&mut self, task: i64) {
        self.ends_told.insert(task);
    }

    /// The server works on it no more.
    pub(crate) fn leave(&mut self, number: usize) {
        self.open.retain(|open| open.0 != number);
    }

    /// The server did what a call asked for, whether its answer arrives or not.
    pub(crate) fn carried_out(&mut self, number: usize, note: impl FnOnce(&mut Call)) {
        self.calls.get_mut(number).map(note);
    }

    /// The answer is out, or never will be.
    pub(crate) fn end(&mut self, number: usize, end: CallEnd) {
        self.leave(number);
        if let Some(call) = self.calls.get_mut(number).filter(|call| call.end == CallEnd::Pending) {
            call.took = Some(call.instant.elapsed());
            call.end = end;
        }
    }
}
