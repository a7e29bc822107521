//! UpdateTask: heartbeats, step states, outputs and the end of a task (§6, §7).

use jiff::Timestamp;
use runner_proto::runner::v1::{Result as TaskResult, StepState, TaskState, UpdateTaskRequest, UpdateTaskResponse};

use super::clock::{from_wire, whole_seconds};
use super::refusal::Refusal;
use super::rules::Rules;
use super::server::{Server, Status, StepRow, TaskRow, Wording};
use super::webhook::Action;

const OUTPUT_KEY_LIMIT: usize = 255;
const OUTPUT_VALUE_LIMIT: usize = 1024 * 1024;

impl Server {
    /// UpdateTask.
    pub(crate) fn update_task(
        &mut self,
        runner: i64,
        request: &UpdateTaskRequest,
        now: Timestamp,
    ) -> Result<UpdateTaskResponse, Refusal> {
        let state = match request.state.as_option() {
            Some(state) => state.clone(),
            None if self.rules.missing_state_panics => return Err(Refusal::Panic),
            None => TaskState::default(),
        };
        if !self.rules.unknown_task_refused && !self.tasks.contains_key(&state.id) {
            return Ok(UpdateTaskResponse::default());
        }
        let rules = self.rules.clone();
        if !rules.disabled_reports_on && self.runners.get(&runner).is_some_and(|row| row.disabled) {
            return Err(Refusal::unregistered());
        }
        let task = self.owned_task(runner, state.id, Wording::UpdateTask)?;
        let job = task.job;
        let ended_before = task.status.is_end();
        let terminal = Status::of(known(state.result));
        task.reports.push(now);
        if ended_before {
            task.updates_after_end += 1;
        }
        let frozen = ended_before && (rules.first_terminal_wins || terminal.is_none());
        let thawed = task.status == Status::Cancelled && !(rules.cancel_wins && rules.cancelled_freezes_steps);
        if !frozen || thawed {
            apply(task, &state, &rules, now);
        }
        store_outputs(task, request, &rules);
        let reply = reply(task, request, &rules);
        if !ended_before && task.status.is_end() {
            let (status, stopped) = (task.status, task.stopped);
            self.job_ended(job, status, stopped.unwrap_or(now), now);
        } else if ended_before && rules.ended_sends_webhooks_again {
            self.announce(job, now, Action::Completed);
            if terminal.is_some() {
                self.announce_run_end(job, now);
            }
        }
        Ok(reply)
    }
}

/// What a request changes in a task that has not ended.
fn apply(task: &mut TaskRow, state: &TaskState, rules: &Rules, now: Timestamp) {
    task.first_update.get_or_insert(now);
    let was_cancelled = task.status == Status::Cancelled;
    let was_open = task.status != Status::Cancelling;
    if let Some(end) = Status::of(known(state.result)) {
        let asked = task.status == Status::Cancelling && rules.cancelling_ends_cancelled;
        let cancelled = asked || (was_cancelled && rules.cancel_wins);
        task.status = if cancelled { Status::Cancelled } else { end };
        let told = state.stopped_at.as_option().and_then(from_wire);
        let stopped = if rules.stopped_at_kept { told.unwrap_or(Timestamp::UNIX_EPOCH) } else { now };
        task.stopped = Some(whole_seconds(stopped));
    } else if rules.heartbeat_keeps_alive {
        task.updated = now;
    }
    if rules.steps_stored && (was_open || rules.cancelling_takes_steps) {
        store_steps(task, &state.steps, rules);
    }
    if task.status.is_end() && !rules.terminal_leaves_steps_open {
        close_steps(task, Status::Failure, now);
    }
}

fn store_steps(task: &mut TaskRow, states: &[StepState], rules: &Rules) {
    for (index, row) in task.steps.iter_mut().enumerate() {
        match states.iter().rev().find(|state| usize::try_from(state.id) == Ok(index)) {
            Some(state) => store_step(row, state, rules),
            None if row.started.is_some() && rules.absent_steps_reset => row.status = Status::Running,
            None => {}
        }
    }
    let unknown = states.iter().filter(|state| usize::try_from(state.id).map_or(true, |id| id >= task.steps.len()));
    if !rules.unknown_steps_ignored && unknown.count() > 0 {
        task.steps.push(StepRow { status: Status::Waiting, started: None, stopped: None, log_index: 0, log_length: 0 });
    }
}

fn store_step(row: &mut StepRow, state: &StepState, rules: &Rules) {
    let started = state.started_at.as_option().and_then(from_wire).map(whole_seconds);
    let stopped = state.stopped_at.as_option().and_then(from_wire).map(whole_seconds);
    if rules.zeroes_not_written {
        row.started = started.or(row.started);
        row.stopped = stopped.or(row.stopped);
        row.log_index = if state.log_index == 0 { row.log_index } else { state.log_index };
        row.log_length = if state.log_length == 0 { row.log_length } else { state.log_length };
    } else {
        (row.started, row.stopped) = (started, stopped);
        (row.log_index, row.log_length) = (state.log_index, state.log_length);
    }
    match Status::of(known(state.result)) {
        Some(status) => row.status = status,
        None if row.started.is_some() => row.status = Status::Running,
        None => {}
    }
}

/// Ends every step that has not ended; one that never started gets its start here (§6).
pub(crate) fn close_steps(task: &mut TaskRow, status: Status, now: Timestamp) {
    for step in task.steps.iter_mut().filter(|step| !step.status.is_end()) {
        step.status = status;
        step.started.get_or_insert(whole_seconds(now));
        step.stopped = Some(whole_seconds(now));
    }
}

fn store_outputs(task: &mut TaskRow, request: &UpdateTaskRequest, rules: &Rules) {
    for (key, value) in &request.outputs {
        let large = key.len() > OUTPUT_KEY_LIMIT || value.len() > OUTPUT_VALUE_LIMIT;
        if large && rules.large_outputs_skipped {
            continue;
        }
        let stored = task.outputs.entry(key.clone()).or_insert_with(|| value.clone());
        if !rules.outputs_insert_if_absent {
            stored.clone_from(value);
        }
    }
}

fn reply(task: &TaskRow, request: &UpdateTaskRequest, rules: &Rules) -> UpdateTaskResponse {
    let result = match task.status {
        Status::Cancelled | Status::Cancelling if rules.cancelled_in_reply => TaskResult::Cancelled,
        Status::Running if !rules.running_has_no_result => TaskResult::Success,
        Status::Cancelled => TaskResult::Unspecified,
        status => status.result(),
    };
    let state = TaskState { id: task.id, result: result.into(), ..Default::default() };
    let listed = |key: &&String| rules.sent_outputs_lists_all || request.outputs.contains_key(*key);
    let sent_outputs = task.outputs.keys().filter(listed).cloned().collect();
    UpdateTaskResponse { state: Some(state).into(), sent_outputs, ..Default::default() }
}

fn known(result: buffa::EnumValue<TaskResult>) -> TaskResult {
    result.as_known().unwrap_or_default()
}
