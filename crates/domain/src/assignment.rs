//! What we make of a task: where it runs, who it is, until when (requirements ENV, SCH-7).

use buffa::MessageView as _;
use buffa_types::google::protobuf::__buffa::view::oneof::value::Kind;
use buffa_types::google::protobuf::StructView;
use jiff::{SignedDuration, Timestamp};
use runner_proto::runner::v1::TaskView;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::id::{AssignmentId, Backend, InstanceId, PayloadDigest, TaskId};
use crate::identity::{IdentityRules, JobKey, Repository, SpiffeId, TrustClass};
use crate::policy::{Ids, LabelMap, Origin, TrustPolicy};
use crate::reason::{Reason, Refusal};
use crate::wire;
use crate::workflow::{self, Job};

/// Field numbers of `runner.v1.Task` (Gitea contract §2).
const ID: u32 = 1;
const WORKFLOW_PAYLOAD: u32 = 2;

/// The fields of `runner.v1.Task` by number; what has none of these is unknown.
const PARTS: [&str; 8] = ["unknown fields", "id", "workflow", "context", "secrets", "machine", "needs", "vars"];

/// A job is ended this long before Gitea's endless limit would end it.
const ENDLESS_MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// What derivation depends on; stored with what was derived (ENV-9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The numbers behind its repository's name; none when the event does not tell both (NEW-122).
    pub pin: Option<RepositoryPin>,
    /// What it was derived with (ENV-9).
    pub rules: Rules,
}

/// Which repository stands behind a name: renames change the name, never these (NEW-122).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RepositoryPin {
    /// `event.repository.id`, greater than 0.
    pub repository: i64,
    /// `event.repository.owner.id`, greater than 0.
    pub owner: i64,
}

/// What a task says of where it comes from, as far as it can be read. Each text is cut at 200 characters: its author
/// chose it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// `context.repository`.
    pub repository: Option<String>,
    /// `event.repository.id`.
    pub repository_id: Option<i64>,
    /// `context.ref`.
    pub git_ref: Option<String>,
    /// `context.event_name`.
    pub event: Option<String>,
    /// The rule that gave the class; empty where none was asked.
    pub rule: &'static str,
}

/// The evidence of a task that became no assignment.
#[must_use]
pub fn evidence_of(task: &[u8]) -> Evidence {
    let task = TaskView::decode_view(task).ok();
    evidence(task.as_ref().and_then(|task| task.context.as_option()))
}

fn evidence(context: Option<&StructView<'_>>) -> Evidence {
    let text = |key| context.and_then(|context| text_of(context, key)).map(|text| text.chars().take(200).collect());
    Evidence {
        repository: text("repository"),
        repository_id: context.and_then(pin_of).map(|pin| pin.repository),
        git_ref: text("ref"),
        event: text("event_name"),
        rule: "",
    }
}

/// The number of a task; none when it is not positive or the bytes do not tell. Found even in a task that is damaged
/// behind it, so that Gitea can be told.
#[must_use]
pub fn task_id(task: &[u8]) -> Option<TaskId> {
    let readable = wire::walk(task).map_while(Result::ok);
    let last = readable.filter(|field| field.number == ID).filter_map(|field| field.value).last()?;
    TaskId::try_from(last.cast_signed()).ok()
}

/// How many steps a task's job has, as far as it can be read: for closing them when the task is refused.
#[must_use]
pub fn step_count(task: &[u8]) -> usize {
    let payload = TaskView::decode_view(task).ok().and_then(|task| task.workflow_payload);
    payload.and_then(|payload| Job::parse(payload).ok()).map_or(0, |job| job.steps.len())
}

/// The largest part of a task and its size in bytes: what a refusal for size names (NEW-37).
#[must_use]
pub fn largest_part(task: &[u8]) -> (&'static str, usize) {
    let mut sizes = [0_usize; PARTS.len()];
    for field in wire::walk(task).map_while(Result::ok) {
        let at = usize::try_from(field.number).ok().filter(|at| (1..PARTS.len()).contains(at)).unwrap_or(0);
        sizes[at] = sizes[at].saturating_add(field.whole.len());
    }
    let largest = PARTS.into_iter().zip(sizes).max_by_key(|(_, size)| *size);
    largest.unwrap_or((PARTS[0], 0))
}

impl Assignment {
    /// Derives everything from the task's very bytes. Nothing of the task is copied but what the assignment shows.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] when it can never run here.
    pub fn from_task(task: &[u8], rules: &Rules, fetched_at: Timestamp) -> Result<Self, Refusal> {
        let id = task_id(task).ok_or_else(|| invalid("the task's id is not greater than 0"))?;
        let digest = PayloadDigest::of(task);
        let task = TaskView::decode_view(task).map_err(|_| invalid("Gitea's task is no readable message"))?;
        let payload = task.workflow_payload.ok_or_else(|| invalid("the task has no workflow payload"))?;
        let job = Job::parse(payload)?;
        let backend = rules.labels.backend_for(&job.runs_on, rules.default_backend)?;
        let job_key = key_of(&job)?;
        let context = task.context.as_option();
        let repository = repository_of(context)?;
        let pin = context.and_then(pin_of);
        let judgement = rules.trust.judge(&origin_of(context, &repository, &job_key, pin));
        rules.trust.permit(judgement, backend)?;
        let (class, _rule) = judgement;
        let spiffe_id = rules.identity.identity(class, &repository, &job_key)?;
        let unlabelled = job.runs_on.is_empty();
        let runs_on = if unlabelled { rules.labels.labels_of(backend) } else { job.runs_on };
        declarable(&runs_on)?;
        if unlabelled {
            // Proves now what `served_task` will do, so that a job that cannot be served never waits.
            workflow::with_runs_on(payload, &runs_on)?;
        }
        Ok(Self {
            id: AssignmentId::of(id),
            instance: rules.instance.clone(),
            backend,
            repository,
            job_key,
            spiffe_id,
            class,
            digest,
            runs_on,
            unlabelled,
            steps: job.steps,
            fetched_at,
            deadline: deadline(rules, fetched_at),
            pin,
            rules: rules.clone(),
        })
    }

    /// Where it comes from and by which rule it has its class: what the identity audit tells (NEW-127).
    #[must_use]
    pub fn evidence(&self, task: &[u8]) -> Evidence {
        let task = TaskView::decode_view(task).ok();
        let context = task.as_ref().and_then(|task| task.context.as_option());
        let (_, rule) = self.rules.trust.judge(&origin_of(context, &self.repository, &self.job_key, self.pin));
        Evidence { rule, ..evidence(context) }
    }

    /// The same derivation, from these bytes and the stored rules: a changed configuration invalidates nothing that
    /// waits (ENV-9), and nothing that was stored is taken on trust (ENV-6).
    #[must_use]
    pub fn follows_from(&self, task: &[u8]) -> bool {
        Self::from_task(task, &self.rules, self.fetched_at).is_ok_and(|derived| derived == *self)
    }

    /// The bytes the runner gets: Gitea's very bytes, or with `runs-on` set where the job has none. Everything else,
    /// unknown fields and their order included, stays.
    ///
    /// # Errors
    ///
    /// See [`workflow::with_runs_on`]; none for the task that this assignment was made of.
    pub fn served_task(&self, task: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        if !self.unlabelled {
            return Ok(Zeroizing::new(task.to_vec()));
        }
        let fields = wire::fields(task).map_err(|_| invalid("Gitea's task is no readable message"))?;
        // Room for the labels and a longer length, so that no copy of the secrets stays behind a reallocation.
        let room = self.runs_on.iter().map(|label| 6 * label.len() + 4).sum::<usize>() + 64;
        let mut served = Zeroizing::new(Vec::with_capacity(task.len() + room));
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

/// Labels travel in a comma list and become `label:host` in `.runner` (Gitea contract §5): neither may be ambiguous.
fn declarable(labels: &[String]) -> Result<(), Refusal> {
    let ambiguous = |label: &&String| label.contains([',', ':']) || label.contains(char::is_control);
    labels.iter().find(ambiguous).map_or(Ok(()), |label| {
        Err(Refusal {
            reason: Reason::UnsupportedLabels,
            cause: format!("the label {label:?} holds a comma, a colon or a control character"),
            remedy: "Name labels in `runs-on` that this runner declares.".to_owned(),
        })
    })
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

fn repository_of(context: Option<&StructView<'_>>) -> Result<Repository, Refusal> {
    let text = context.and_then(|context| text_of(context, "repository")).unwrap_or_default();
    text.parse().map_err(|error| Refusal {
        reason: Reason::InvalidRepository,
        cause: format!("{error}"),
        remedy: "Give the repository and its owner names of letters, digits, '.', '-' and '_'.".to_owned(),
    })
}

fn text_of<'a>(context: &StructView<'a>, key: &str) -> Option<&'a str> {
    match context.fields.get(key)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

fn origin_of<'a>(
    context: Option<&'a StructView<'_>>,
    repository: &'a Repository,
    job_key: &'a JobKey,
    pin: Option<RepositoryPin>,
) -> Origin<'a> {
    let text = |key| context.and_then(|context| text_of(context, key));
    let event_repository = context.and_then(|context| below(below(context, "event")?, "repository"));
    Origin {
        repository,
        job_key,
        event: text("event_name"),
        git_ref: text("ref"),
        default_branch: event_repository.and_then(|repository| text_of(repository, "default_branch")),
        workflow: text("workflow"),
        ids: if pin.is_some() { Ids::Told } else { Ids::Missing },
    }
}

fn pin_of(context: &StructView<'_>) -> Option<RepositoryPin> {
    let repository = below(below(context, "event")?, "repository")?;
    Some(RepositoryPin { repository: number_of(repository)?, owner: number_of(below(repository, "owner")?)? })
}

fn below<'s, 'a>(parent: &'s StructView<'a>, key: &str) -> Option<&'s StructView<'a>> {
    match parent.fields.get(key)?.kind.as_ref()? {
        Kind::StructValue(child) => Some(child),
        _ => None,
    }
}

/// `id`: a whole number that a double holds exactly.
fn number_of(object: &StructView<'_>) -> Option<i64> {
    const LAST_EXACT: f64 = 9_007_199_254_740_992.0;
    match object.fields.get("id")?.kind.as_ref()? {
        Kind::NumberValue(n) if (1.0..=LAST_EXACT).contains(n) && n.fract() == 0.0 => Some(*n as i64),
        _ => None,
    }
}

fn invalid(cause: &str) -> Refusal {
    let remedy = "Ask the operator of this runner.".to_owned();
    Refusal { reason: Reason::InvalidWorkflow, cause: cause.to_owned(), remedy }
}

#[cfg(test)]
mod tests;
