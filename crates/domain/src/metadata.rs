//! What is written on an executor's object: the only place that knows label, annotation and metadata key names
//! (invariant 4; requirements §1.2, §4.5; ENV-8).

pub mod chunks;
pub mod entry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::id::{AssignmentId, Backend, Epoch, InstanceId, PayloadDigest, TaskId};
use crate::identity::{IdentityRules, JobKey, Repository, SpiffeId};

/// What every key of ours begins with.
pub const PREFIX: &str = "ci.ddupan.top/";
const RUNNER: &str = "runner";
const ASSIGNMENT_ID: &str = "assignment-id";
const TASK_ID: &str = "task-id";
const BACKEND: &str = "backend";
const TERMINAL: &str = "terminal";
const INSTANCE: &str = "instance";
const EPOCH: &str = "epoch";
const PAYLOAD_DIGEST: &str = "payload-digest";
const CLAIMED: &str = "claimed";
const REPOSITORY: &str = "repository";
const JOB_KEY: &str = "job-key";
const SPIFFE_ID: &str = "spiffe-id";
const FETCHED_AT: &str = "fetched-at";
const DEADLINE: &str = "deadline";
const CLAIMED_AT: &str = "claimed-at";
const LOG_SHIFT: &str = "log-shift";
const STEPS: &str = "steps";
const INTERRUPTED_AT: &str = "interrupted-at";
const YES: &str = "true";

/// Keys and values of an object.
pub type Map = BTreeMap<String, String>;

/// What an executor's object says: enough to authorise and to report, never to run the task again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorRecord {
    /// Whose executor it is.
    pub id: AssignmentId,
    /// Whose assignment it is.
    pub instance: InstanceId,
    /// Where it runs.
    pub backend: Backend,
    /// Which life.
    pub epoch: Epoch,
    /// Which task of that number.
    pub digest: PayloadDigest,
    /// The repository.
    pub repository: Repository,
    /// The job.
    pub job_key: JobKey,
    /// Its identity.
    pub spiffe_id: SpiffeId,
    /// When Gitea handed the task out.
    pub fetched_at: Timestamp,
    /// The end of its run at the latest.
    pub deadline: Timestamp,
    /// It was answered with the task.
    pub claim: Option<Claim>,
    /// A signal was announced.
    pub interrupted_at: Option<Timestamp>,
    /// The last steps seen, in the text of `lifecycle`.
    pub steps: Option<String>,
    /// Gitea accepted a final state.
    pub terminal: bool,
}

/// The claim of NEW-53.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// When it was written.
    pub at: Timestamp,
    /// K of NEW-28: our rows before the runner's first.
    pub log_shift: u64,
}

/// What is added to an object later; nothing is ever taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Before FetchTask is answered.
    Claimed(Claim),
    /// Before the announcement is answered.
    Interrupted(Timestamp),
    /// While the job runs.
    Steps(String),
    /// After Gitea accepted a final state.
    Terminal,
}

/// An object that is ours and cannot be read (NEW-56).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct Unreadable {
    /// The key that is missing or wrong.
    pub key: String,
    /// What is wrong.
    pub problem: String,
}

fn put(map: &mut Map, key: &str, value: impl ToString) {
    map.insert(format!("{PREFIX}{key}"), value.to_string());
}

impl Mark {
    /// The labels it adds.
    #[must_use]
    pub fn labels(&self) -> Map {
        let mut map = Map::new();
        match self {
            Self::Claimed(_) => put(&mut map, CLAIMED, YES),
            Self::Terminal => put(&mut map, TERMINAL, YES),
            Self::Interrupted(_) | Self::Steps(_) => {}
        }
        map
    }

    /// The annotations it adds or replaces.
    #[must_use]
    pub fn annotations(&self) -> Map {
        let mut map = Map::new();
        match self {
            Self::Claimed(claim) => {
                put(&mut map, CLAIMED_AT, claim.at);
                put(&mut map, LOG_SHIFT, claim.log_shift);
            }
            Self::Interrupted(at) => put(&mut map, INTERRUPTED_AT, at),
            Self::Steps(text) => put(&mut map, STEPS, text),
            Self::Terminal => {}
        }
        map
    }
}

impl ExecutorRecord {
    /// The labels of the object.
    #[must_use]
    pub fn labels(&self) -> Map {
        let mut map = Map::new();
        put(&mut map, RUNNER, YES);
        put(&mut map, ASSIGNMENT_ID, self.id);
        put(&mut map, TASK_ID, self.id.task());
        put(&mut map, BACKEND, self.backend);
        put(&mut map, INSTANCE, &self.instance);
        put(&mut map, EPOCH, self.epoch);
        put(&mut map, PAYLOAD_DIGEST, &self.digest);
        for mark in self.marks() {
            map.extend(mark.labels());
        }
        map
    }

    /// The annotations of the object.
    #[must_use]
    pub fn annotations(&self) -> Map {
        let mut map = Map::new();
        put(&mut map, REPOSITORY, &self.repository);
        put(&mut map, JOB_KEY, &self.job_key);
        put(&mut map, SPIFFE_ID, &self.spiffe_id);
        put(&mut map, FETCHED_AT, self.fetched_at);
        put(&mut map, DEADLINE, self.deadline);
        for mark in self.marks() {
            map.extend(mark.annotations());
        }
        map
    }

    fn marks(&self) -> impl Iterator<Item = Mark> {
        let claimed = self.claim.clone().map(Mark::Claimed);
        let interrupted = self.interrupted_at.map(Mark::Interrupted);
        let steps = self.steps.clone().map(Mark::Steps);
        let terminal = self.terminal.then_some(Mark::Terminal);
        [claimed, interrupted, steps, terminal].into_iter().flatten()
    }

    /// The same record with a mark added.
    pub fn apply(&mut self, mark: &Mark) {
        match mark {
            Mark::Claimed(claim) => self.claim = Some(claim.clone()),
            Mark::Interrupted(at) => self.interrupted_at = Some(*at),
            Mark::Steps(text) => self.steps = Some(text.clone()),
            Mark::Terminal => self.terminal = true,
        }
    }

    /// The labels that every executor of this instance carries, and no object of anybody else.
    #[must_use]
    pub fn selector(instance: &InstanceId) -> Map {
        let mut map = Map::new();
        put(&mut map, RUNNER, YES);
        put(&mut map, INSTANCE, instance);
        map
    }

    /// Whether these labels say that the object is an executor of any instance.
    #[must_use]
    pub fn is_executor(labels: &Map) -> bool {
        labels.get(&format!("{PREFIX}{RUNNER}")).is_some_and(|value| value == YES)
    }

    /// Reads an object, of whatever instance: whose it is, is for the caller to compare. The identity is checked against
    /// repository and job key; trust domain and prefix may be those of an earlier configuration (ENV-9).
    ///
    /// # Errors
    ///
    /// [`Unreadable`] names the first key that is missing, malformed, or contradicts another.
    pub fn parse(labels: &Map, annotations: &Map) -> Result<Self, Unreadable> {
        let labels = Reader(labels);
        let annotations = Reader(annotations);
        if !Self::is_executor(labels.0) {
            return Err(unreadable(RUNNER, "is not true"));
        }
        let record = Self {
            id: labels.get(ASSIGNMENT_ID)?,
            instance: labels.get(INSTANCE)?,
            backend: labels.get(BACKEND)?,
            epoch: labels.get(EPOCH)?,
            digest: labels.text(PAYLOAD_DIGEST)?.try_into().map_err(|e| unreadable(PAYLOAD_DIGEST, e))?,
            repository: annotations.get(REPOSITORY)?,
            job_key: annotations.get(JOB_KEY)?,
            spiffe_id: annotations.get(SPIFFE_ID)?,
            fetched_at: annotations.get(FETCHED_AT)?,
            deadline: annotations.get(DEADLINE)?,
            claim: claim(&labels, &annotations)?,
            interrupted_at: annotations.optional(INTERRUPTED_AT)?,
            steps: annotations.text(STEPS).ok(),
            terminal: labels.flag(TERMINAL)?,
        };
        let number: i64 = labels.get(TASK_ID)?;
        if TaskId::try_from(number) != Ok(record.id.task()) {
            return Err(unreadable(TASK_ID, "is not the assignment's"));
        }
        if !IdentityRules::some_rules_give(&record.spiffe_id, &record.repository, &record.job_key) {
            return Err(unreadable(SPIFFE_ID, "is not that of repository and job key"));
        }
        Ok(record)
    }
}

/// Label and annotations are written together: one without the other is damage, and must not pass for "never claimed".
fn claim(labels: &Reader<'_>, annotations: &Reader<'_>) -> Result<Option<Claim>, Unreadable> {
    if !labels.flag(CLAIMED)? {
        let left = [CLAIMED_AT, LOG_SHIFT].into_iter().find(|key| annotations.text(key).is_ok());
        return left.map_or(Ok(None), |key| Err(unreadable(key, "is there, but the object is not claimed")));
    }
    Ok(Some(Claim { at: annotations.get(CLAIMED_AT)?, log_shift: annotations.get(LOG_SHIFT)? }))
}

fn unreadable(key: &str, problem: impl ToString) -> Unreadable {
    Unreadable { key: format!("{PREFIX}{key}"), problem: problem.to_string() }
}

struct Reader<'a>(&'a Map);

impl Reader<'_> {
    fn text(&self, key: &str) -> Result<String, Unreadable> {
        self.0.get(&format!("{PREFIX}{key}")).cloned().ok_or_else(|| unreadable(key, "is missing"))
    }

    fn get<T: std::str::FromStr<Err: std::fmt::Display>>(&self, key: &str) -> Result<T, Unreadable> {
        self.text(key)?.parse().map_err(|error: T::Err| unreadable(key, error))
    }

    fn optional<T: std::str::FromStr<Err: std::fmt::Display>>(&self, key: &str) -> Result<Option<T>, Unreadable> {
        if self.0.contains_key(&format!("{PREFIX}{key}")) { self.get(key).map(Some) } else { Ok(None) }
    }

    /// Add-only: there and true, or not there.
    fn flag(&self, key: &str) -> Result<bool, Unreadable> {
        match self.text(key).as_deref() {
            Ok(YES) => Ok(true),
            Ok(_) => Err(unreadable(key, "is not true")),
            Err(_) => Ok(false),
        }
    }
}
