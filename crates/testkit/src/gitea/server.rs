//! The server's memory: runners, runs, jobs, tasks, versions. Pure: every function takes the time.
//!
//! Invariant: a task belongs to one job and one runner for ever, and its status leaves an end state never.

use std::collections::{BTreeMap, BTreeSet};

use connectrpc::ErrorCode;
use jiff::Timestamp;
use runner_proto::runner::v1::{DeclareRequest, RegisterRequest, Result as TaskResult, Runner, Task};
use uuid::Uuid;

use super::job::JobSpec;
use super::refusal::Refusal;
use super::rules::Rules;
use super::settings::Settings;
use super::webhook::Webhook;

/// Where a runner is registered, and so which jobs it can see.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All repositories.
    Global,
    /// The repositories of one owner.
    Owner(String),
    /// One repository, `owner/name`.
    Repository(String),
}

impl Scope {
    /// Everywhere a job can be seen.
    pub(crate) fn of(job: &JobSpec) -> [Self; 3] {
        [Self::Global, Self::Owner(job.owner().to_owned()), Self::Repository(job.repository.clone())]
    }

    pub(crate) fn sees(&self, job: &JobSpec) -> bool {
        match self {
            Self::Global => true,
            Self::Owner(owner) => owner == job.owner(),
            Self::Repository(repository) => *repository == job.repository,
        }
    }
}

/// The status of a job or a step, as Gitea stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Needs another job first.
    Blocked,
    /// Waits for a runner, or, for a step, for its turn.
    Waiting,
    /// Handed to a runner.
    Running,
    /// A user cancelled it and the runner was asked to stop (1.27).
    Cancelling,
    /// Ended well.
    Success,
    /// Ended badly.
    Failure,
    /// Ended by a cancel.
    Cancelled,
    /// Was not run.
    Skipped,
}

impl Status {
    /// Whether it can change no more.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Cancelled | Self::Skipped)
    }

    /// The wire's word for it; unspecified while it runs.
    #[must_use]
    pub fn result(self) -> TaskResult {
        match self {
            Self::Success => TaskResult::Success,
            Self::Failure => TaskResult::Failure,
            Self::Cancelled => TaskResult::Cancelled,
            Self::Skipped => TaskResult::Skipped,
            Self::Blocked | Self::Waiting | Self::Running | Self::Cancelling => TaskResult::Unspecified,
        }
    }

    pub(crate) fn of(result: TaskResult) -> Option<Self> {
        match result {
            TaskResult::Unspecified => None,
            TaskResult::Success => Some(Self::Success),
            TaskResult::Failure => Some(Self::Failure),
            TaskResult::Cancelled => Some(Self::Cancelled),
            TaskResult::Skipped => Some(Self::Skipped),
        }
    }
}

/// A registered runner.
#[derive(Clone)]
pub(crate) struct RunnerRow {
    pub(crate) id: i64,
    pub(crate) uuid: String,
    pub(crate) token: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) labels: Vec<String>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) ephemeral: bool,
    pub(crate) scope: Scope,
    pub(crate) disabled: bool,
    pub(crate) last_online: Timestamp,
}

impl RunnerRow {
    /// The runner as a reply shows it, without its token.
    pub(crate) fn shown(&self) -> Runner {
        Runner {
            id: self.id,
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            version: self.version.clone(),
            labels: self.labels.clone(),
            ephemeral: self.ephemeral,
            ..Default::default()
        }
    }
}

/// A job of a run, with all its attempts.
#[derive(Clone)]
pub(crate) struct JobRow {
    pub(crate) id: i64,
    pub(crate) run: i64,
    pub(crate) run_number: i64,
    pub(crate) spec: JobSpec,
    pub(crate) status: Status,
    pub(crate) attempts: Vec<i64>,
    pub(crate) updated: Timestamp,
    pub(crate) started: Option<Timestamp>,
    pub(crate) stopped: Option<Timestamp>,
}

/// A step of a task.
#[derive(Debug, Clone)]
pub(crate) struct StepRow {
    pub(crate) status: Status,
    pub(crate) started: Option<Timestamp>,
    pub(crate) stopped: Option<Timestamp>,
    pub(crate) log_index: i64,
    pub(crate) log_length: i64,
}

/// One attempt of a job on a runner.
#[derive(Clone)]
pub(crate) struct TaskRow {
    pub(crate) id: i64,
    pub(crate) job: i64,
    pub(crate) runner: i64,
    pub(crate) status: Status,
    pub(crate) started: Timestamp,
    pub(crate) stopped: Option<Timestamp>,
    /// What the zombie sweep looks at.
    pub(crate) updated: Timestamp,
    pub(crate) first_update: Option<Timestamp>,
    pub(crate) steps: Vec<StepRow>,
    pub(crate) log: Vec<(Option<Timestamp>, String)>,
    pub(crate) archived: bool,
    pub(crate) outputs: BTreeMap<String, String>,
    pub(crate) token: String,
    pub(crate) runtime_token: String,
    pub(crate) message: Task,
    /// UpdateTask calls that came after the end.
    pub(crate) updates_after_end: u32,
    /// When UpdateTask calls were answered without a refusal, the fetch first.
    pub(crate) reports: Vec<Timestamp>,
}

/// Everything the server remembers.
pub(crate) struct Server {
    pub(crate) rules: Rules,
    pub(crate) settings: Settings,
    pub(crate) base_url: String,
    pub(crate) registration_tokens: Vec<(String, Scope, bool)>,
    pub(crate) runners: BTreeMap<i64, RunnerRow>,
    pub(crate) jobs: BTreeMap<i64, JobRow>,
    pub(crate) tasks: BTreeMap<i64, TaskRow>,
    pub(crate) versions: BTreeMap<Scope, i64>,
    pub(crate) webhooks: Vec<Webhook>,
    pub(crate) broken_job: Option<String>,
    pub(crate) next_runner: i64,
    pub(crate) next_job: i64,
    pub(crate) next_run: i64,
    pub(crate) next_task: i64,
    pub(crate) run_numbers: BTreeMap<String, i64>,
}

impl Server {
    pub(crate) fn new(rules: Rules, settings: Settings, base_url: String) -> Self {
        let versions = BTreeMap::from([(Scope::Global, settings.first_version)]);
        Self {
            next_runner: settings.first_runner,
            next_task: settings.first_task,
            next_job: 1,
            next_run: settings.first_run,
            versions,
            rules,
            settings,
            base_url,
            registration_tokens: vec![(random_token(), Scope::Global, true)],
            runners: BTreeMap::new(),
            jobs: BTreeMap::new(),
            tasks: BTreeMap::new(),
            webhooks: Vec::new(),
            broken_job: None,
            run_numbers: BTreeMap::new(),
        }
    }

    /// The valid registration token of a scope; made on demand, reused until it is replaced (§14.1).
    pub(crate) fn registration_token(&mut self, scope: &Scope) -> String {
        if let Some((token, ..)) = self.registration_tokens.iter().find(|(_, of, valid)| of == scope && *valid) {
            return token.clone();
        }
        let token = random_token();
        self.registration_tokens.push((token.clone(), scope.clone(), true));
        token
    }

    pub(crate) fn replace_registration_token(&mut self, scope: &Scope) -> String {
        for (_, of, valid) in &mut self.registration_tokens {
            *valid &= of != scope;
        }
        self.registration_token(scope)
    }

    /// Register (§14.2).
    pub(crate) fn register(&mut self, request: &RegisterRequest, now: Timestamp) -> Result<Runner, Refusal> {
        let plain = |text: &str| Err(Refusal::Plain(text.into()));
        if self.rules.name_checked && (request.name.is_empty() || request.token.is_empty()) {
            return plain("missing runner token, name");
        }
        let known = self.registration_tokens.iter().find(|(token, ..)| *token == request.token);
        let scope = match known {
            Some((_, scope, true)) => scope.clone(),
            _ if !self.rules.registration_token_checked => Scope::Global,
            Some(_) => {
                return plain("runner registration token has been invalidated, please use the latest one");
            }
            None => return plain("runner registration token not found"),
        };
        let id = self.next_runner;
        self.next_runner += 1;
        let row = RunnerRow {
            id,
            uuid: Uuid::new_v4().to_string(),
            token: random_token(),
            name: request.name.clone(),
            version: request.version.clone(),
            labels: request.labels.clone(),
            capabilities: request.capabilities.clone(),
            ephemeral: request.ephemeral,
            scope,
            disabled: false,
            last_online: now,
        };
        let shown = Runner { token: row.token.clone(), ..row.shown() };
        self.runners.insert(id, row);
        Ok(shown)
    }

    /// The runner that these credentials belong to (§1).
    pub(crate) fn authenticate(
        &mut self,
        uuid: Option<&str>,
        token: Option<&str>,
        now: Timestamp,
    ) -> Result<i64, Refusal> {
        let (Some(uuid), Some(token)) = (uuid, token) else { return Err(Refusal::unregistered()) };
        let runner = self.runners.values_mut().find(|row| row.uuid == uuid && row.token == token);
        let runner = runner.ok_or_else(Refusal::unregistered)?;
        runner.last_online = now;
        Ok(runner.id)
    }

    /// Declare (§5).
    pub(crate) fn declare(&mut self, runner: i64, request: &DeclareRequest) -> Result<Runner, Refusal> {
        let (hides_token, replaces) = (self.rules.declare_hides_token, self.rules.declare_replaces_labels);
        let row = self.runners.get_mut(&runner).ok_or_else(Refusal::unregistered)?;
        if replaces {
            row.labels.clear();
        }
        row.labels.extend(request.labels.iter().cloned());
        row.version.clone_from(&request.version);
        row.capabilities.clone_from(&request.capabilities);
        let token = if hides_token { String::new() } else { row.token.clone() };
        Ok(Runner { token, ..row.shown() })
    }

    /// What the Declare reply tells of the server (§5).
    pub(crate) fn told_capabilities(&self) -> Option<&'static str> {
        self.settings.capabilities_header.filter(|_| self.rules.capabilities_told)
    }

    /// Raises the version of each scope by one.
    pub(crate) fn bump(&mut self, scopes: impl IntoIterator<Item = Scope>) {
        let owners = self.rules.version_reaches_owner;
        for scope in scopes.into_iter().filter(|scope| owners || !matches!(scope, Scope::Owner(_))) {
            *self.versions.entry(scope).or_insert(0) += 1;
        }
    }

    /// Raises the version everywhere this job can be seen.
    pub(crate) fn bump_for(&mut self, job: i64) {
        if let Some(job) = self.jobs.get(&job) {
            self.bump(Scope::of(&job.spec));
        }
    }

    /// The task a runner's call speaks of.
    pub(crate) fn owned_task(&mut self, runner: i64, id: i64, wording: Wording) -> Result<&mut TaskRow, Refusal> {
        let foreign_task_refused = self.rules.foreign_task_refused;
        let task = self.tasks.get_mut(&id).ok_or_else(|| Refusal::internal(wording.unknown(id)))?;
        if task.runner != runner && foreign_task_refused {
            return Err(Refusal::internal(wording.foreign()));
        }
        Ok(task)
    }

    /// Takes a runner out of service or back; a change raises its scope's version (§4.2).
    pub(crate) fn set_disabled(&mut self, uuid: &str, disabled: bool) {
        let Some(row) = self.runners.values_mut().find(|row| row.uuid == uuid) else { return };
        if std::mem::replace(&mut row.disabled, disabled) != disabled && self.rules.disabling_bumps {
            let scope = row.scope.clone();
            self.bump(BTreeSet::from([Scope::Global, scope]));
        }
    }
}

/// UpdateTask and UpdateLog word the same refusals differently (§3.2).
#[derive(Clone, Copy)]
pub(crate) enum Wording {
    UpdateTask,
    UpdateLog,
}

impl Wording {
    fn unknown(self, id: i64) -> String {
        match self {
            Self::UpdateTask => "update task: resource does not exist".into(),
            Self::UpdateLog => format!("get task: task with id {id}: resource does not exist"),
        }
    }

    fn foreign(self) -> &'static str {
        match self {
            Self::UpdateTask => "update task: invalid runner for task",
            Self::UpdateLog => "invalid runner for task",
        }
    }
}

/// 40 hexadecimal digits, like Gitea's tokens.
pub(crate) fn random_token() -> String {
    let long = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    long.chars().take(40).collect()
}

/// One job that Gitea cannot parse spoils FetchTask for everybody who could see it (§4.4).
pub(crate) fn pick_failed(cause: &str) -> Refusal {
    Refusal::Status(ErrorCode::Internal, format!("pick task: {cause}"))
}
