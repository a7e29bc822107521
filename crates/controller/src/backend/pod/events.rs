//! Kubernetes events on executors' Pods (NEW-143): for whoever looks at the Pod. Best effort: one that cannot be written
//! is not missed.

use std::sync::Arc;

use domain::metadata::{ExecutorRecord, Mark, Unreadable};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;

use super::Shared;
use super::seen::{Container, Seen};
use crate::backend::{ExecutorState, Failure};
use crate::kubernetes::{Refusal, RefusalKind};
use crate::telemetry::events::{Subject, executor_log};

const COMPONENT: &str = "gitea-dynamic-runner";

/// What happened to an executor, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Created,
    Bound,
    Rejected,
    Claimed,
    Lost,
    Reported,
    Quarantined,
}

impl Word {
    fn reason(self) -> &'static str {
        match self {
            Self::Created => "ExecutorCreated",
            Self::Bound => "IdentityBound",
            Self::Rejected => "IdentityRejected",
            Self::Claimed => "JobClaimed",
            Self::Lost => "ExecutorLost",
            Self::Reported => "JobReported",
            Self::Quarantined => "ExecutorQuarantined",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Created => "The executor of a job of Gitea was made",
            Self::Bound => "Its identity entry is there",
            Self::Rejected => "Its identity entry is refused",
            Self::Claimed => "It took its job",
            Self::Lost => "It ended without a final report, or cannot start",
            Self::Reported => "Gitea has the result of its job",
            Self::Quarantined => "It carries our labels and cannot be read; it is left alone and holds a slot",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Created | Self::Bound | Self::Claimed | Self::Reported => "Normal",
            Self::Rejected | Self::Lost | Self::Quarantined => "Warning",
        }
    }
}

/// A call about events went wrong. No job waits for it, so nobody but the log would ever tell of a missing right (T77).
pub(super) fn went_wrong(refusal: &Refusal, without: &'static str) {
    if refusal.kind == RefusalKind::Forbidden {
        tracing::warn!(component = "lifecycle", error = %refusal, "{without}");
    } else {
        tracing::debug!(component = "lifecycle", error = %refusal, "{without}");
    }
}

pub(super) fn created(shared: &Arc<Shared>, pod: &Seen) {
    tell(shared, pod, Word::Created, "");
}

/// The claim and the end are marks.
pub(super) fn marked(shared: &Arc<Shared>, name: &str, mark: &Mark) {
    let word = match mark {
        Mark::Claimed(_) => Word::Claimed,
        Mark::Terminal => Word::Reported,
        Mark::Interrupted(_) | Mark::Steps(_) => return,
    };
    let pod = shared.observatory.store().get(name);
    if let Some(pod) = pod {
        tell(shared, &pod, word, "");
    }
}

/// What a look at it says, with more about it.
pub(super) fn of_state(record: &Result<&ExecutorRecord, Unreadable>, state: &ExecutorState) -> Option<(Word, String)> {
    match (record, state) {
        (Err(problem), _) => Some((Word::Quarantined, problem.to_string())),
        (Ok(_), ExecutorState::Failed(Failure { reason, cause })) => Some((Word::Lost, format!("{reason}: {cause}"))),
        (Ok(record), ExecutorState::Ended(exit)) if !exit.is_orderly() && !record.terminal => {
            Some((Word::Lost, exit.to_string()))
        }
        _ => None,
    }
}

/// Says it once in the life of this process, with more about it.
pub(super) fn tell(shared: &Arc<Shared>, pod: &Seen, word: Word, more: &str) {
    if !shared.with_care(&pod.uid, |care| care.said.insert(word.reason())) {
        return;
    }
    if word == Word::Lost {
        last_words(pod, more);
    }
    let event = event(shared.cluster.namespace(), pod, word, more, Timestamp::now());
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let Ok(_permit) = shared.calls.acquire().await else { return };
        if let Err(refusal) = shared.cluster.within(shared.events.create(&PostParams::default(), &event)).await {
            went_wrong(&refusal, "events of executors are not written");
        }
    });
}

/// The termination message of its container; where it left none, the kubelet takes the end of its log.
fn last_words(pod: &Seen, how: &str) {
    let Container::Terminated(end) = &pod.executor else { return };
    let subject = pod.record.as_ref().ok().map(|record| Subject {
        backend: Some(record.backend),
        assignment: record.id,
        epoch: Some(record.epoch),
    });
    executor_log(subject.as_ref(), &pod.name, how, end.message.trim());
}

fn event(namespace: &str, pod: &Seen, word: Word, more: &str, now: Timestamp) -> Event {
    let message = if more.is_empty() { word.message().to_owned() } else { format!("{}: {more}", word.message()) };
    Event {
        metadata: ObjectMeta {
            // Names of events are made of the object's and the moment's, as client-go does.
            name: Some(format!("{}.{:x}", pod.name, now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        },
        reason: Some(word.reason().to_owned()),
        message: Some(message.chars().take(1000).collect()),
        type_: Some(word.kind().to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        ..Event::default()
    }
}
