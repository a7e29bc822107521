//! A Pod as far as anybody here looks at it: what is kept of thousands of them.

use std::collections::BTreeMap;

use domain::metadata::{ExecutorRecord, Map, Unreadable};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::object::CONTAINER;
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
    pub(super) labels: Map,
    /// What it says, whoever made it.
    pub(super) record: Result<ExecutorRecord, Unreadable>,
    /// It is going, and this is when it was to be gone.
    pub(super) deleting: Option<Timestamp>,
    pub(super) finalizers: Vec<String>,
    pub(super) node: Option<String>,
    pub(super) phase: Phase,
    /// `status.reason` and `status.message`.
    pub(super) reason: Option<String>,
    pub(super) message: String,
    pub(super) conditions: BTreeMap<String, Condition>,
    pub(super) executor: Container,
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
    Waiting {
        reason: String,
        message: String,
    },
    Running,
    Terminated(Terminated),
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
        let (metadata, status) = (pod.metadata, pod.status.unwrap_or_default());
        let spec = pod.spec.unwrap_or_default();
        let container = spec.containers.into_iter().find(|container| container.name == CONTAINER);
        let limit = container.and_then(|container| container.resources?.limits?.remove("memory"));
        let (labels, annotations) = (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default());
        Some(Self {
            name: metadata.name?,
            uid: metadata.uid?,
            version: metadata.resource_version.unwrap_or_default(),
            record: ExecutorRecord::parse(&labels, &annotations),
            labels,
            deleting: metadata.deletion_timestamp.and_then(moment),
            finalizers: metadata.finalizers.unwrap_or_default(),
            node: spec.node_name.filter(|node| !node.is_empty()),
            phase: phase(&status),
            conditions: conditions(&status),
            executor: executor(&status),
            failed_init: failed_init(&status),
            reason: status.reason.filter(|reason| !reason.is_empty()),
            message: status.message.unwrap_or_default(),
            memory_limit: limit.map(|quantity| quantity.0),
        })
    }

    pub(super) fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.get(kind)
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

/// The library has a calendar of its own.
pub(super) fn moment(time: Time) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.0.as_nanosecond()).ok()
}

fn phase(status: &PodStatus) -> Phase {
    match status.phase.as_deref() {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        // `Unknown` has not been written by anybody for years.
        _ => Phase::Pending,
    }
}

fn conditions(status: &PodStatus) -> BTreeMap<String, Condition> {
    let known = status.conditions.iter().flatten().filter(|condition| CONDITIONS.contains(&condition.type_.as_str()));
    let read = |condition: &k8s_openapi::api::core::v1::PodCondition| {
        let seen = Condition {
            holds: condition.status == "True",
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
        };
        (condition.type_.clone(), seen)
    };
    known.map(read).collect()
}

fn executor(status: &PodStatus) -> Container {
    let found = status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER);
    let Some(state) = found.and_then(|container| container.state.clone()) else { return Container::Unknown };
    if let Some(ended) = state.terminated {
        return Container::Terminated(Terminated {
            code: ended.exit_code,
            reason: ended.reason.unwrap_or_default(),
            message: ended.message.unwrap_or_default(),
            at: ended.finished_at.and_then(moment),
        });
    }
    match (state.running, state.waiting) {
        (Some(_), _) => Container::Running,
        (None, Some(waiting)) => Container::Waiting {
            reason: waiting.reason.unwrap_or_default(),
            message: waiting.message.unwrap_or_default(),
        },
        (None, None) => Container::Unknown,
    }
}

fn failed_init(status: &PodStatus) -> Option<String> {
    let ended = |container: &ContainerStatus| {
        let ended = container.state.as_ref()?.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
        let (name, code) = (&container.name, ended.exit_code);
        Some(format!("its init container {name} ended with exit code {code}"))
    };
    status.init_container_statuses.iter().flatten().find_map(ended)
}
