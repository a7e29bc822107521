//! Kubernetes events on executors' Pods, and those that warn on the Lease too (NEW-143).

use std::sync::Arc;

use domain::metadata::{ExecutorRecord, Mark, Unreadable};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use super::Shared;
use super::seen::{Container, Seen};
use crate::backend::{ExecutorState, Failure};
use crate::kubernetes::events::{Said, object, went_wrong};
use crate::kubernetes::{self, Refusal};
use crate::telemetry::events::{Subject, executor_log};

const WARNING: &str = "Warning";

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
            Self::Rejected | Self::Lost | Self::Quarantined => WARNING,
        }
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
    let warned = (word.kind() == WARNING).then(|| (pod.clone(), more.to_owned()));
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let Ok(_permit) = shared.calls.acquire().await else { return };
        let mut told = shared.cluster.within(shared.events.create(&PostParams::default(), &event)).await.map(drop);
        if let Some((pod, more)) = warned {
            told = told.and(tell_at_lease(&shared, &pod, word, &more).await);
        }
        if let Err(refusal) = told {
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
    let about = object("v1", "Pod", namespace, &pod.name, Some(pod.uid.clone()));
    let said = Said { reason: word.reason(), kind: word.kind(), message: &message(word, more) };
    kubernetes::events::event(about, &said, now)
}

fn message(word: Word, more: &str) -> String {
    if more.is_empty() { word.message().to_owned() } else { format!("{}: {more}", word.message()) }
}

/// What went wrong with an executor stands at the Lease as well, which outlives the Pod and is where one looks for all of
/// them. Asked for its UID each time: that is rare, and somebody may have made it anew.
async fn tell_at_lease(shared: &Shared, pod: &Seen, word: Word, more: &str) -> Result<(), Refusal> {
    let Some(lease) = &shared.lease else { return Ok(()) };
    let namespace = shared.cluster.namespace();
    let leases: Api<Lease> = Api::namespaced(shared.cluster.client(), namespace);
    let uid = shared.cluster.within(leases.get_metadata(lease)).await?.metadata.uid;
    let about = object("coordination.k8s.io/v1", "Lease", namespace, lease, uid);
    let message = format!("{}: {}", pod.name, message(word, more));
    let said = Said { reason: word.reason(), kind: word.kind(), message: &message };
    let event = kubernetes::events::event(about, &said, Timestamp::now());
    shared.cluster.within(shared.events.create(&PostParams::default(), &event)).await.map(drop)
}
