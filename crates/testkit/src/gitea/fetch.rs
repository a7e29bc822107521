//! FetchTask: the version gate, label matching and the claim (§4, §5).

use std::collections::BTreeMap;

use jiff::Timestamp;
use runner_proto::runner::v1::{FetchTaskRequest, FetchTaskResponse, Task};

use super::refusal::Refusal;
use super::rules::Rules;
use super::server::{JobRow, RunnerRow, Server, Status, StepRow, TaskRow, pick_failed, random_token};
use super::task::{Attempt, Need, message, runtime_token};
use super::webhook::Action;

/// Signs the runtime tokens; nobody else has to know it.
const RUNTIME_KEY: &[u8] = b"the double's own key";

impl Server {
    /// FetchTask. A job that is handed out is claimed when this returns.
    pub(crate) fn fetch_task(
        &mut self,
        runner: i64,
        request: &FetchTaskRequest,
        now: Timestamp,
    ) -> Result<FetchTaskResponse, Refusal> {
        let row = self.runners.get(&runner).cloned().ok_or_else(Refusal::unregistered)?;
        let latest = self.latest_version(&row);
        let mut task = None;
        let disabled = row.disabled && self.rules.disabled_gets_nothing;
        if self.gate_opens(request.tasks_version, latest) && !disabled {
            if let Some(cause) = &self.broken_job {
                return Err(pick_failed(cause));
            }
            task = self.candidate(&row).map(|job| self.claim(job, runner, now));
        }
        let tasks_version = if self.rules.version_in_reply { latest } else { request.tasks_version };
        Ok(FetchTaskResponse { task: task.into(), tasks_version, ..Default::default() })
    }

    /// Whether a fetch of this runner would be given a job now.
    pub(crate) fn has_for(&self, uuid: &str, sent: i64) -> bool {
        self.runners.values().find(|row| row.uuid == uuid).is_some_and(|row| {
            let latest = self.versions.get(&row.scope).copied().unwrap_or(1);
            self.gate_opens(sent, latest) && self.candidate(row).is_some()
        })
    }

    fn latest_version(&mut self, runner: &RunnerRow) -> i64 {
        let version = self.versions.entry(runner.scope.clone()).or_insert(0);
        if *version == 0 {
            *version = 1;
        }
        *version
    }

    fn gate_opens(&self, sent: i64, latest: i64) -> bool {
        match (self.rules.version_gate, self.rules.gate_is_inequality) {
            (false, _) => true,
            (true, true) => sent != latest,
            (true, false) => sent < latest,
        }
    }

    /// The waiting job that this runner gets next.
    fn candidate(&self, runner: &RunnerRow) -> Option<i64> {
        let mut fitting: Vec<&JobRow> = self
            .jobs
            .values()
            .filter(|job| self.can_be_claimed(job.status) && self.sees(runner, job))
            .filter(|job| self.labels_fit(&job.spec.runs_on, &runner.labels))
            .collect();
        fitting.sort_by_key(|job| (job.updated, job.id));
        let chosen = if self.rules.oldest_first { fitting.first() } else { fitting.last() };
        chosen.map(|job| job.id)
    }

    fn sees(&self, runner: &RunnerRow, job: &JobRow) -> bool {
        !self.rules.scope_limits_jobs || runner.scope.sees(&job.spec)
    }

    fn can_be_claimed(&self, status: Status) -> bool {
        status == Status::Waiting || (status == Status::Running && !self.rules.claim_is_final)
    }

    fn labels_fit(&self, wanted: &[String], declared: &[String]) -> bool {
        let same = |one: &str, other: &str| {
            if self.rules.labels_case_sensitive { one == other } else { one.eq_ignore_ascii_case(other) }
        };
        let has = |label: &String| declared.iter().any(|each| same(each, label));
        match wanted {
            [] => self.rules.unlabelled_goes_anywhere,
            wanted if self.rules.every_label_needed => wanted.iter().all(has),
            wanted => wanted.iter().any(has),
        }
    }

    fn claim(&mut self, job: i64, runner: i64, now: Timestamp) -> Task {
        let id = self.next_task;
        self.next_task += 1;
        let needs = self.needs_of(job);
        let base_url = self.base_url.clone();
        let endless = i64::try_from(self.settings.endless_timeout.as_secs()).unwrap_or(i64::MAX);
        // The candidate was taken from this very map.
        let Some(row) = self.jobs.get_mut(&job) else { return Task::default() };
        row.attempts.push(id);
        let attempt = Attempt {
            task: id,
            run: row.run,
            run_number: row.run_number,
            attempt: row.attempts.len(),
            base_url,
            token: random_token(),
            runtime_token: runtime_token(RUNTIME_KEY, id, job, row.run, now, endless),
        };
        let mut message = message(&row.spec, &attempt, &needs);
        self.rules.break_message(&mut message);
        let step = StepRow { status: Status::Waiting, started: None, stopped: None, log_index: 0, log_length: 0 };
        let steps = vec![step; row.spec.steps.len()];
        row.status = Status::Running;
        row.updated = now;
        row.started = Some(now);
        row.stopped = None;
        let task = TaskRow {
            id,
            job,
            runner,
            status: Status::Running,
            started: now,
            stopped: None,
            updated: now,
            first_update: None,
            steps,
            log: Vec::new(),
            archived: false,
            outputs: BTreeMap::new(),
            token: attempt.token,
            runtime_token: attempt.runtime_token,
            message: message.clone(),
            updates_after_end: 0,
            reports: vec![now],
        };
        self.tasks.insert(id, task);
        if self.rules.start_is_announced {
            self.announce(job, now, Action::InProgress);
        }
        message
    }

    /// Results and outputs of the jobs that this one needs (§11.1).
    fn needs_of(&self, job: i64) -> BTreeMap<String, Need> {
        let Some(job) = self.jobs.get(&job) else { return BTreeMap::new() };
        let of_run = self.jobs.values().filter(|other| other.run == job.run);
        let needed = of_run.filter(|other| job.spec.needs.contains(&other.spec.key));
        let need = |other: &JobRow| {
            let task = other.attempts.last().and_then(|id| self.tasks.get(id));
            let told = task.filter(|_| self.rules.outputs_reach_dependents);
            let outputs = told.map(|task| task.outputs.clone()).unwrap_or_default();
            (other.spec.key.clone(), Need { result: other.status.result(), outputs })
        };
        needed.map(need).collect()
    }
}

impl Rules {
    /// What a mutant does to the message.
    fn break_message(&self, message: &mut Task) {
        if !self.tokens_in_secrets {
            message.secrets.retain(|name, _| !name.ends_with("_TOKEN"));
        }
        if let Some(payload) = message.workflow_payload.as_mut().filter(|_| !self.missing_runs_on_is_empty_list) {
            *payload = String::from_utf8_lossy(payload).replace("        runs-on: []\n", "").into_bytes();
        }
    }
}
