//! What a test wants to have run: jobs and steps, as the author of a workflow would write them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

/// A job's number in Gitea; the same for every attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One step of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepSpec {
    /// Keys and values in the order Gitea writes them.
    pub(crate) entries: Vec<(&'static str, Entry)>,
}

/// A value in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Text(String),
    Map(BTreeMap<String, String>),
}

impl StepSpec {
    /// A step that runs a script.
    #[must_use]
    pub fn run(script: impl Into<String>) -> Self {
        Self::default().text("run", script)
    }

    /// A step that uses an action.
    #[must_use]
    pub fn uses(action: impl Into<String>) -> Self {
        Self::default().text("uses", action)
    }

    /// Its name.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        self.text("name", name)
    }

    /// Its id, for outputs.
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        self.text("id", id)
    }

    /// Its condition.
    #[must_use]
    pub fn when(self, condition: impl Into<String>) -> Self {
        self.text("if", condition)
    }

    /// `continue-on-error`: `true`, `false` or an expression.
    #[must_use]
    pub fn continue_on_error(self, value: impl Into<String>) -> Self {
        self.text("continue-on-error", value)
    }

    /// An input of its action.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        match self.entries.iter_mut().find(|(name, _)| *name == "with") {
            Some((_, Entry::Map(map))) => {
                map.insert(key, value);
            }
            _ => self.put("with", Entry::Map(BTreeMap::from([(key, value)]))),
        }
        self
    }

    fn text(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.put(key, Entry::Text(value.into()));
        self
    }

    fn put(&mut self, key: &'static str, entry: Entry) {
        const ORDER: [&str; 7] = ["id", "if", "name", "uses", "run", "with", "continue-on-error"];
        let rank = |key: &str| ORDER.iter().position(|known| *known == key);
        self.entries.retain(|(name, _)| *name != key);
        self.entries.push((key, entry));
        self.entries.sort_by_key(|(name, _)| rank(name));
    }
}

/// A matrix with one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) axis: String,
    pub(crate) values: Vec<String>,
}

/// `concurrency` of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Concurrency {
    pub(crate) group: String,
    pub(crate) others: Others,
}

/// What becomes of the other runs of a concurrency group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// The new run waits for them.
    GoOn,
    /// They are cancelled: `cancel-in-progress`.
    AreCancelled,
}

/// One job, and the run around it. Jobs of one push and one repository share a run.
///
/// `JobSpec::new("build")` runs on `self-hosted` in `acme/app` for a push, with one step.
#[derive(Clone)]
pub struct JobSpec {
    pub(crate) key: String,
    pub(crate) runs_on: Vec<String>,
    pub(crate) steps: Vec<StepSpec>,
    pub(crate) repository: String,
    /// Of the repository and of its owner.
    pub(crate) ids: (i64, i64),
    pub(crate) event_name: String,
    pub(crate) event: Option<Value>,
    pub(crate) secrets: BTreeMap<String, String>,
    pub(crate) vars: BTreeMap<String, String>,
    pub(crate) context: BTreeMap<String, Value>,
    pub(crate) needs: Vec<String>,
    pub(crate) matrix: Option<Matrix>,
    pub(crate) concurrency: Option<Concurrency>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) workflow_name: Option<String>,
    pub(crate) workflow_file: String,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) unknown_fields: Vec<u8>,
}

impl JobSpec {
    /// A job with this key.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            runs_on: vec!["self-hosted".into()],
            steps: vec![StepSpec::run("echo hello")],
            repository: "acme/app".into(),
            ids: (4, 2),
            event_name: "push".into(),
            event: None,
            secrets: BTreeMap::new(),
            vars: BTreeMap::new(),
            context: BTreeMap::new(),
            needs: Vec::new(),
            matrix: None,
            concurrency: None,
            env: BTreeMap::new(),
            workflow_name: None,
            workflow_file: "ci.yml".into(),
            payload: None,
            unknown_fields: Vec::new(),
        }
    }

    /// The labels it asks for; none is a job without `runs-on`.
    #[must_use]
    pub fn runs_on<L: Into<String>>(mut self, labels: impl IntoIterator<Item = L>) -> Self {
        self.runs_on = labels.into_iter().map(Into::into).collect();
        self
    }

    /// Its steps, instead of the single default one.
    #[must_use]
    pub fn steps(mut self, steps: impl IntoIterator<Item = StepSpec>) -> Self {
        self.steps = steps.into_iter().collect();
        self
    }

    /// The repository, `owner/name`.
    #[must_use]
    pub fn repository(mut self, repository: impl Into<String>) -> Self {
        self.repository = repository.into();
        self
    }

    /// The numbers behind the names of the repository and of its owner, as the default event tells them.
    #[must_use]
    pub fn ids(mut self, repository: i64, owner: i64) -> Self {
        self.ids = (repository, owner);
        self
    }

    /// What started the run, for example `workflow_dispatch`.
    #[must_use]
    pub fn event(mut self, name: impl Into<String>) -> Self {
        self.event_name = name.into();
        self
    }

    /// The webhook payload that the job sees as `event`.
    #[must_use]
    pub fn event_payload(mut self, event: Value) -> Self {
        self.event = Some(event);
        self
    }

    /// A pull request whose head is in `head`, `owner/name`; a fork if that is another repository.
    #[must_use]
    pub fn pull_request_from(self, head: &str) -> Self {
        let base = json!({"full_name": self.repository, "fork": false});
        let fork = head != self.repository;
        let head = json!({"ref": "topic", "repo": {"full_name": head, "fork": fork}});
        let base = json!({"ref": "main", "repo": base});
        let event = json!({"action": "opened", "number": 1, "pull_request": {"head": head, "base": base}});
        self.event("pull_request").event_payload(event).context("head_ref", "topic").context("base_ref", "main")
    }

    /// A secret of the repository.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets.insert(name.into(), value.into());
        self
    }

    /// A variable of the repository.
    #[must_use]
    pub fn var(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    /// A key of the context, added or replaced.
    #[must_use]
    pub fn context(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context.insert(key.into(), value.into());
        self
    }

    /// Jobs of the same push and repository that must succeed before.
    #[must_use]
    pub fn needs<K: Into<String>>(mut self, keys: impl IntoIterator<Item = K>) -> Self {
        self.needs = keys.into_iter().map(Into::into).collect();
        self
    }

    /// A matrix with one axis: one job per value.
    #[must_use]
    pub fn matrix<V: Into<String>>(mut self, axis: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        self.matrix = Some(Matrix { axis: axis.into(), values: values.into_iter().map(Into::into).collect() });
        self
    }

    /// The concurrency group of its run, and what becomes of other runs of that group.
    #[must_use]
    pub fn concurrency(mut self, group: impl Into<String>, others: Others) -> Self {
        self.concurrency = Some(Concurrency { group: group.into(), others });
        self
    }

    /// An environment variable of the workflow.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// The `name` of the workflow and its file name.
    #[must_use]
    pub fn workflow(mut self, name: Option<&str>, file: impl Into<String>) -> Self {
        self.workflow_name = name.map(Into::into);
        self.workflow_file = file.into();
        self
    }

    /// The payload as it is, instead of one built from the rest. Its steps must be told by [`JobSpec::steps`] all the
    /// same: the double does not parse it.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// Bytes of the protobuf wire format that are appended to the task: fields of a later Gitea.
    #[must_use]
    pub fn unknown_fields(mut self, wire: impl Into<Vec<u8>>) -> Self {
        self.unknown_fields = wire.into();
        self
    }

    /// Its repository, `owner/name`.
    #[must_use]
    pub fn repository_name(&self) -> &str {
        &self.repository
    }

    /// The secrets of its repository, names and values.
    pub fn secret_values(&self) -> impl Iterator<Item = (&str, &str)> {
        self.secrets.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The variables of its repository, names and values.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.vars.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The name that is shown; a matrix adds its value.
    pub(crate) fn shown_name(&self) -> String {
        match &self.matrix {
            Some(Matrix { values, .. }) => format!("{} ({})", self.key, values.join(", ")),
            None => self.key.clone(),
        }
    }

    /// One job per combination of its matrix.
    pub(crate) fn split(self) -> Vec<Self> {
        let Some(Matrix { axis, values }) = self.matrix.clone() else { return vec![self] };
        values.into_iter().map(|value| self.clone().matrix(axis.clone(), [value])).collect()
    }

    pub(crate) fn owner(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }
}
