//! Rows and states of the running job, and how they reach the server (contract §13.3).
//!
//! One call at a time, rows before states; a call that fails is made again with what has come since. Every UpdateTask
//! carries all steps, and there is none before the first step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use buffa_types::google::protobuf::Timestamp as WireTime;
use jiff::Timestamp;
use runner_proto::runner::v1::{
    LogRow, Result as TaskResult, StepState, TaskState, UpdateLogRequest, UpdateTaskRequest,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::calls::Calls;
use super::desk::Desk;

/// The official runner's are 5 s.
const INTERVAL: Duration = Duration::from_millis(250);

/// What is reported.
pub(super) struct Reporter<'a> {
    calls: &'a Calls,
    desk: &'a Desk,
    task: i64,
    report: Mutex<Report>,
    changed: Notify,
    /// The server answered CANCELLED.
    pub(super) cancelled: CancellationToken,
    /// CANCELLED means nothing to it.
    pub(super) ignores: AtomicBool,
}

struct Report {
    waiting: Vec<LogRow>,
    /// Rows that the server has.
    acknowledged: i64,
    /// Rows so far.
    count: i64,
    /// Rows that the desk was told of.
    told: i64,
    started: WireTime,
    stopped: Option<WireTime>,
    steps: Vec<StepState>,
    current: Option<usize>,
    outputs: BTreeMap<String, String>,
    sent: BTreeSet<String>,
    result: TaskResult,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(calls: &'a Calls, desk: &'a Desk, task: i64, steps: usize) -> Self {
        let steps = (0..steps).map(|id| StepState { id: i64::try_from(id).unwrap_or_default(), ..Default::default() });
        let report = Report {
            waiting: Vec::new(),
            acknowledged: 0,
            count: 0,
            told: 0,
            started: now(),
            stopped: None,
            steps: steps.collect(),
            current: None,
            outputs: BTreeMap::new(),
            sent: BTreeSet::new(),
            result: TaskResult::Unspecified,
        };
        let (changed, cancelled) = (Notify::new(), CancellationToken::new());
        let ignores = AtomicBool::new(false);
        Self { calls, desk, task, report: Mutex::new(report), changed, cancelled, ignores }
    }

    /// One row, of the current step if there is one.
    pub(super) fn row(&self, content: impl Into<String>) {
        let mut report = self.report();
        report.waiting.push(LogRow { time: Some(now()).into(), content: content.into(), ..Default::default() });
        report.count += 1;
        if let Some(step) = report.current.and_then(|at| report.steps.get_mut(at)) {
            step.log_length += 1;
        }
    }

    pub(super) fn output(&self, key: &str, value: &str) {
        self.report().outputs.insert(key.to_owned(), value.to_owned());
    }

    pub(super) fn step_starts(&self, at: usize) {
        let mut report = self.report();
        report.current = Some(at);
        let first = report.count;
        let step = &mut report.steps[at];
        (step.started_at, step.log_index) = (Some(now()).into(), first);
        drop(report);
        self.changed.notify_one();
    }

    pub(super) fn step_ends(&self, at: usize, result: TaskResult) {
        let mut report = self.report();
        report.current = None;
        let step = &mut report.steps[at];
        (step.stopped_at, step.result) = (Some(now()).into(), result.into());
        drop(report);
        self.changed.notify_one();
    }

    /// Steps that were not run. SKIPPED ones have times, CANCELLED ones have none.
    pub(super) fn not_run(&self, result: TaskResult) {
        let mut report = self.report();
        let count = report.count;
        for step in report.steps.iter_mut().filter(|step| step.result.to_i32() == 0) {
            step.result = result.into();
            if result == TaskResult::Skipped {
                (step.started_at, step.stopped_at, step.log_index) = (Some(now()).into(), Some(now()).into(), count);
            }
        }
    }

    /// All steps as if they had succeeded.
    pub(super) fn all_succeeded(&self) -> Vec<StepState> {
        let mut steps = self.report().steps.clone();
        for step in &mut steps {
            step.result = TaskResult::Success.into();
            (step.started_at, step.stopped_at) = (Some(now()).into(), Some(now()).into());
        }
        steps
    }

    /// Reports until the job is done or cancelled.
    pub(super) async fn keep_reporting(&self, done: &CancellationToken) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = self.cancelled.cancelled() => return,
                () = done.cancelled() => return,
                () = self.changed.notified() => {}
                _ = ticks.tick() => {}
            }
            self.flush().await;
        }
    }

    /// Rows, then the state.
    pub(super) async fn flush(&self) {
        let waits = !self.report().waiting.is_empty();
        if waits {
            self.send_rows(None).await;
        }
        if self.report().steps.iter().any(|step| step.started_at.is_set()) {
            self.send_state().await;
        }
    }

    /// The end: what is left of the log with `no_more`, then the result; each is tried for `patience`.
    pub(super) async fn close(&self, result: TaskResult, patience: Duration) {
        let nothing_left = self.report().waiting.is_empty();
        if nothing_left {
            self.row("");
        }
        {
            let mut report = self.report();
            (report.result, report.stopped) = (result, Some(now()));
        }
        let log = with_patience(patience, || self.send_rows(Some(()))).await;
        let state = with_patience(patience, || self.send_state()).await;
        let word = if log && state { "final" } else { "final-lost" };
        self.desk.say(self.task, word, name(result)).await;
    }

    /// The desk hears of every row before the server can.
    async fn tell_rows(&self) {
        let rows: Vec<String> = {
            let mut report = self.report();
            let known = usize::try_from(report.told - report.acknowledged).unwrap_or_default();
            report.told = report.count;
            report.waiting.iter().skip(known).map(|row| row.content.clone()).collect()
        };
        if !rows.is_empty() {
            self.desk.say(self.task, "rows", &serde_json::json!(rows).to_string()).await;
        }
    }

    async fn send_rows(&self, last: Option<()>) -> bool {
        self.tell_rows().await;
        let (request, end) = {
            let report = self.report();
            let rows = report.waiting.clone();
            let end = report.acknowledged + i64::try_from(rows.len()).unwrap_or_default();
            let (task_id, index, no_more) = (self.task, report.acknowledged, last.is_some());
            (UpdateLogRequest { task_id, index, rows, no_more, ..Default::default() }, end)
        };
        let Ok(ack) = self.calls.update_log(&request).await else { return false };
        if ack < request.index {
            self.desk.say(self.task, "rows-lost", &format!("ack {ack} below {}", request.index)).await;
            return false;
        }
        // An ack above what was sent is clamped.
        let ack = ack.min(end);
        if last.is_none() {
            self.desk.say(self.task, "acked", &ack.to_string()).await;
        }
        let mut report = self.report();
        report.waiting.drain(..usize::try_from(ack - request.index).unwrap_or_default());
        report.acknowledged = ack;
        ack == end
    }

    async fn send_state(&self) -> bool {
        let request = {
            let report = self.report();
            let outputs = report.outputs.iter().filter(|(key, _)| !report.sent.contains(*key));
            let state = TaskState {
                id: self.task,
                result: report.result.into(),
                started_at: Some(report.started.clone()).into(),
                stopped_at: report.stopped.clone().into(),
                steps: report.steps.clone(),
                ..Default::default()
            };
            let outputs = outputs.map(|(key, value)| (key.clone(), value.clone())).collect();
            UpdateTaskRequest { state: Some(state).into(), outputs, ..Default::default() }
        };
        let Ok(response) = self.calls.update_task(&request).await else { return false };
        self.report().sent.extend(response.sent_outputs);
        if response.state.result == TaskResult::Cancelled && !self.ignores.load(Ordering::Relaxed) {
            self.desk.say(self.task, "told", "CANCELLED").await;
            self.cancelled.cancel();
        }
        true
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn with_patience(patience: Duration, mut attempt: impl AsyncFnMut() -> bool) -> bool {
    let tries = async {
        let mut pause = Duration::from_millis(100);
        while !attempt().await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    };
    tokio::time::timeout(patience, tries).await.is_ok()
}

/// As desk and tests spell it.
pub(crate) fn name(result: TaskResult) -> &'static str {
    match result {
        TaskResult::Unspecified => "NONE",
        TaskResult::Success => "SUCCESS",
        TaskResult::Failure => "FAILURE",
        TaskResult::Cancelled => "CANCELLED",
        TaskResult::Skipped => "SKIPPED",
    }
}

pub(super) fn now() -> WireTime {
    let now = Timestamp::now();
    WireTime { seconds: now.as_second(), nanos: now.subsec_nanosecond(), ..Default::default() }
}
