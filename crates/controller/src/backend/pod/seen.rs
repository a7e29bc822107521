//! A Pod as far as anybody here looks at it: what is kept of thousands of them.

use std::sync::Arc;

use domain::metadata::{ExecutorRecord, Map, Unreadable};
use jiff::Timestamp;

use super::object::{CONTAINER, name_of};
use super::sent::{self, ContainerStatus, Pod, Status};
use crate::identity::entry::PodKey;

/// The conditions that say something about an executor.
const CONDITIONS: [&str; 3] = [SCHEDULED, READY, DISRUPTED];
pub(super) const SCHEDULED: &str = "PodScheduled";
pub(super) const READY: &str = "Ready";
pub(super) const DISRUPTED: &str = "DisruptionTarget";

/// One Pod.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) name: String,
    pub(super) uid: String,
    /// `resourceVersion`.
    pub(super) version: String,
    /// What it says, whoever made it.
    pub(super) record: Result<Arc<ExecutorRecord>, Unreadable>,
    /// It has the name of the executor that it says it is.
    pub(super) is_named: bool,
    /// Only of one that cannot be read: what is read says all that its labels do.
    pub(super) labels: Map,
    /// It is going, and this is when it was to be gone.
    pub(super) deleting: Option<Timestamp>,
    pub(super) finalizers: Vec<String>,
    pub(super) node: Option<String>,
    pub(super) phase: Phase,
    /// `status.reason` and `status.message`.
    pub(super) reason: Option<String>,
    pub(super) message: String,
    conditions: Vec<(&'static str, Condition)>,
    pub(super) executor: Container,
    /// Init containers that wait for something else than those before them, by their names.
    pub(super) waiting_inits: Vec<(String, Waiting)>,
    /// The first init container that ended badly, in words.
    pub(super) failed_init: Option<String>,
    pub(super) memory_limit: Option<String>,
}

/// `status.phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) holds: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The executor's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Container {
    /// No kubelet has said anything of it.
    Unknown,
    Waiting(Waiting),
    Running,
    Terminated(Terminated),
}

/// Why a container does not run yet, in the words of its kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) reason: String,
    pub(super) message: String,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terminated {
    pub(super) code: i32,
    pub(super) reason: String,
    /// What it left in its termination log, or what the runtime said.
    pub(super) message: String,
    pub(super) at: Option<Timestamp>,
}

impl Seen {
    /// Which Pod, for whoever keeps something beside it.
    pub(super) fn key(&self) -> PodKey {
        PodKey { name: self.name.clone(), uid: self.uid.clone() }
    }

    /// None for what has no name or UID, which no API server sends.
    pub(super) fn of(pod: Pod) -> Option<Self> {
        let (metadata, status) = (pod.metadata?, pod.status.unwrap_or_default());
        let spec = pod.spec.unwrap_or_default();
        let container = spec.containers.into_iter().flatten().find(|container| container.name == CONTAINER);
        let limit = container.and_then(|container| container.resources?.limits?.remove("memory"));
        let (labels, annotations) = (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default());
        let record = ExecutorRecord::parse(&labels, &annotations).map(Arc::new);
        let name = metadata.name?;
        Some(Self {
            is_named: record.as_ref().is_ok_and(|record| name_of(record) == name),
            labels: if record.is_ok() { Map::new() } else { labels },
            record,
            name,
            uid: metadata.uid?,
            version: metadata.resource_version.unwrap_or_default(),
            deleting: metadata.deletion_timestamp,
            finalizers: metadata.finalizers.unwrap_or_default(),
            node: spec.node_name.filter(|node| !node.is_empty()),
            phase: phase(&status),
            conditions: conditions(&status),
            executor: executor(&status),
            waiting_inits: waiting_inits(&status),
            failed_init: failed_init(&status),
            reason: status.reason.filter(|reason| !reason.is_empty()),
            message: status.message.unwrap_or_default(),
            memory_limit: limit,
        })
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|(known, _)| *known == kind).map(|(_, condition)| condition)
    }

    /// Its executor has started, whatever became of it since.
    pub(super) fn has_started(&self) -> bool {
        matches!(self.executor, Container::Running | Container::Terminated(_))
    }

    /// Nothing of it will run any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed) || matches!(self.executor, Container::Terminated(_))
    }
}

fn phase(status: &Status) -> Phase {
    match status.phase.as_deref() {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        // `Unknown` has not been written by anybody for years.
        _ => Phase::Pending,
    }
}

fn conditions(status: &Status) -> Vec<(&'static str, Condition)> {
    let read = |condition: &sent::Condition| {
        let kind = CONDITIONS.into_iter().find(|kind| *kind == condition.kind)?;
        let seen = Condition {
            holds: condition.status == "True",
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
        };
        Some((kind, seen))
    };
    status.conditions.iter().flatten().filter_map(read).collect()
}

fn executor(status: &Status) -> Container {
    let found = status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER);
    let Some(state) = found.and_then(|container| container.state.clone()) else { return Container::Unknown };
    if let Some(ended) = state.terminated {
        return Container::Terminated(Terminated {
            code: ended.exit_code,
            reason: ended.reason.unwrap_or_default(),
            message: ended.message.unwrap_or_default(),
            at: ended.finished_at,
        });
    }
    match (state.running, state.waiting) {
        (Some(_), _) => Container::Running,
        (None, Some(waiting)) => Container::Waiting(Waiting::of(&waiting)),
        (None, None) => Container::Unknown,
    }
}

impl Waiting {
    fn of(sent: &sent::Waiting) -> Self {
        Self { reason: sent.reason.clone().unwrap_or_default(), message: sent.message.clone().unwrap_or_default() }
    }
}

fn waiting_inits(status: &Status) -> Vec<(String, Waiting)> {
    let waiting = |container: &ContainerStatus| {
        let waiting = Waiting::of(container.state.as_ref()?.waiting.as_ref()?);
        (waiting.reason != "PodInitializing").then(|| (container.name.clone(), waiting))
    };
    status.init_container_statuses.iter().flatten().filter_map(waiting).collect()
}

fn failed_init(status: &Status) -> Option<String> {
    let ended = |container: &ContainerStatus| {
        let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        let (name, code) = (&container.name, ended.exit_code);
        Some(format!("its init container {name} ended with exit code {code}"))
    };
    status.init_container_statuses.iter().flatten().find_map(ended)
}
