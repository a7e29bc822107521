//! What we make of a task: where it runs, who it is, until when (requirements ENV, SCH-7).

use buffa::Message as _;
use buffa_types::google::protobuf::{Struct, value::Kind};
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1::Task;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::id::{AssignmentId, Backend, InstanceId, PayloadDigest, TaskId};
use crate::identity::{IdentityRules, JobKey, Repository, SpiffeId, TrustClass};
use crate::policy::{LabelMap, TrustPolicy};
use crate::reason::{Reason, Refusal};
use crate::wire;
use crate::workflow::{self, Job};

/// Field number of `workflow_payload` in `runner.v1.Task`.
const WORKFLOW_PAYLOAD: u32 = 2;

/// A job is ended this long before Gitea's endless limit would end it.
const ENDLESS_MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// What derivation depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our name.
    pub instance: InstanceId,
    /// Label → backend.
    pub labels: LabelMap,
    /// Backend of a job whose labels name none.
    pub default_backend: Option<Backend>,
    /// How identities are made.
    pub identity: IdentityRules,
    /// Which events are trusted.
    pub trust: TrustPolicy,
    /// Our own limit of a run, from the fetch.
    pub run_limit: Option<SignedDuration>,
    /// Gitea's limit of a run, from the fetch.
    pub endless_limit: SignedDuration,
}

/// A task with its identity and backend. It holds no payload and no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Its name.
    pub id: AssignmentId,
    /// Whose it is.
    pub instance: InstanceId,
    /// Where it runs.
    pub backend: Backend,
    /// The repository it belongs to.
    pub repository: Repository,
    /// The key of its job.
    pub job_key: JobKey,
    /// Its identity.
    pub spiffe_id: SpiffeId,
    /// How far that is trusted.
    pub class: TrustClass,
    /// Tells it from other lives of its number.
    pub digest: PayloadDigest,
    /// The labels its runner declares; never empty.
    pub runs_on: Vec<String>,
    /// The job came without labels: `runs_on` are ours, and the served payload carries them (NEW-161).
    pub unlabelled: bool,
    /// Its steps.
    pub steps: Vec<workflow::Step>,
    /// When Gitea handed it out.
    pub fetched_at: Timestamp,
    /// The end of its run at the latest.
    pub deadline: Timestamp,
    /// What its identity was derived with (ENV-9).
    pub identity_rules: IdentityRules,
}

/// The number of a task; none when the bytes are no task or the number is not positive.
#[must_use]
pub fn task_id(task: &[u8]) -> Option<TaskId> {
    Task::decode_from_slice(task).ok().and_then(|task| TaskId::try_from(task.id).ok())
}

/// How many steps a task's job has, as far as it can be read: for closing them when the task is refused.
#[must_use]
pub fn step_count(task: &[u8]) -> usize {
    let payload = Task::decode_from_slice(task).ok().and_then(|task| task.workflow_payload);
    payload.and_then(|payload| Job::parse(&payload).ok()).map_or(0, |job| job.steps.len())
}

impl Assignment {
    /// Derives everything from the task's very bytes.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] when it can never run here.
    pub fn from_task(task: &[u8], rules: &Rules, fetched_at: Timestamp) -> Result<Self, Refusal> {
        let digest = PayloadDigest::of(task);
        let task = Task::decode_from_slice(task).map_err(|_| invalid("Gitea's task is no message".to_owned()))?;
        let id = TaskId::try_from(task.id).map_err(|error| invalid(error.to_string()))?;
        let payload =
            task.workflow_payload.as_deref().ok_or_else(|| invalid("the task has no workflow payload".to_owned()))?;
        let job = Job::parse(payload)?;
        let backend = rules.labels.backend_for(&job.runs_on, rules.default_backend)?;
        let job_key = key_of(&job)?;
        let repository = repository_of(task.context.as_option())?;
        let class = rules.trust.class_of(text_of(task.context.as_option(), "event_name").as_deref());
        let spiffe_id = rules.identity.identity(class, &repository, &job_key)?;
        let unlabelled = job.runs_on.is_empty();
        Ok(Self {
            id: AssignmentId::of(id),
            instance: rules.instance.clone(),
            backend,
            repository,
            job_key,
            spiffe_id,
            class,
            digest,
            runs_on: if unlabelled { rules.labels.labels_of(backend) } else { job.runs_on },
            unlabelled,
            steps: job.steps,
            fetched_at,
            deadline: deadline(rules, fetched_at),
            identity_rules: rules.identity.clone(),
        })
    }

    /// The identity is the one that its own stored rules derive: a changed configuration invalidates nothing that waits
    /// (ENV-9).
    #[must_use]
    pub fn derives_its_identity(&self) -> bool {
        self.identity_rules.identity(self.class, &self.repository, &self.job_key).is_ok_and(|id| id == self.spiffe_id)
    }

    /// The bytes the runner gets: Gitea's very bytes, or with `runs-on` set where the job has none. Everything else,
    /// unknown fields and their order included, stays.
    ///
    /// # Errors
    ///
    /// See [`workflow::with_runs_on`].
    pub fn served_task(&self, task: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        if !self.unlabelled {
            return Ok(Zeroizing::new(task.to_vec()));
        }
        let fields = wire::fields(task).map_err(|_| invalid("Gitea's task is no message".to_owned()))?;
        let mut served = Zeroizing::new(Vec::with_capacity(task.len() + 64));
        for field in fields {
            match field.content {
                Some(content) if field.number == WORKFLOW_PAYLOAD => {
                    let payload = Zeroizing::new(workflow::with_runs_on(&task[content], &self.runs_on)?);
                    wire::put_bytes(&mut served, WORKFLOW_PAYLOAD, &payload);
                }
                _ => served.extend_from_slice(&task[field.whole]),
            }
        }
        Ok(served)
    }
}

fn deadline(rules: &Rules, fetched_at: Timestamp) -> Timestamp {
    let gitea = rules.endless_limit.saturating_sub(ENDLESS_MARGIN);
    let limit = rules.run_limit.map_or(gitea, |own| own.min(gitea));
    fetched_at.saturating_add(limit).unwrap_or(Timestamp::MAX)
}

fn key_of(job: &Job) -> Result<JobKey, Refusal> {
    job.key.parse().map_err(|error| Refusal {
        reason: Reason::InvalidJobKey,
        cause: format!("{error}"),
        remedy: "Rename the job's key in the workflow; its `name:` may stay as it is.".to_owned(),
    })
}

fn repository_of(context: Option<&Struct>) -> Result<Repository, Refusal> {
    let text = text_of(context, "repository").unwrap_or_default();
    text.parse().map_err(|error| Refusal {
        reason: Reason::InvalidRepository,
        cause: format!("{error}"),
        remedy: "Give the repository and its owner names of letters, digits, '.', '-' and '_'.".to_owned(),
    })
}

fn text_of(context: Option<&Struct>, key: &str) -> Option<String> {
    match context?.fields.get(key)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text.clone()),
        _ => None,
    }
}

fn invalid(cause: String) -> Refusal {
    let remedy = "Ask the operator of this runner.".to_owned();
    Refusal { reason: Reason::InvalidWorkflow, cause, remedy }
}
