//! Kubernetes events on executors' Pods, for whoever looks at the Pod, and those that warn on the Lease too (NEW-143). Best
//! effort: one that cannot be written is not missed.
//!
//! No job waits for one, so they never stand in the way of a call that a job does wait for: they are written one after the
//! other, at a kubelet's own pace, with the time at which each happened.

use std::sync::Arc;
use std::time::Duration;

use domain::metadata::{ExecutorRecord, Mark, Unreadable};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::Shared;
use super::seen::{Container, Seen};
use crate::backend::{ExecutorState, Failure};
use crate::identity::entry::PodKey;
use crate::kubernetes::Refusal;
use crate::kubernetes::events::{self as cluster_events, Said, went_wrong};
use crate::telemetry::events::{Subject, executor_log};

const WARNING: &str = "Warning";
/// So many wait to be written; what comes beyond them is left out.
const WAITING: usize = 2048;
/// Between two that are written: no more than 50 a second, as kubelets do by default (`eventRecordQPS`).
const PAUSE: Duration = Duration::from_millis(20);

/// An event that is to be written. Of its Pod no more than its name: thousands may wait while Pods change, and each would keep
/// a Pod as it was.
pub(super) struct Note {
    pod: PodKey,
    word: Word,
    more: String,
    at: Timestamp,
}

/// Where events are laid down, and from where they are written.
pub(super) fn desk() -> (Sender<Note>, Receiver<Note>) {
    mpsc::channel(WAITING)
}

/// Writes them for ever.
pub(super) async fn write(shared: &Shared, mut notes: Receiver<Note>) {
    while let Some(note) = notes.recv().await {
        let event = event(shared.cluster.namespace(), &note);
        let mut told = shared.cluster.within(shared.events.create(&PostParams::default(), &event)).await.map(drop);
        if note.word.kind() == WARNING {
            told = told.and(tell_at_lease(shared, &note).await);
        }
        if let Err(refusal) = told {
            went_wrong(&refusal, "events of executors are not written");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

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

pub(super) fn created(shared: &Shared, pod: &Arc<Seen>) {
    tell(shared, pod, Word::Created, "");
}

/// The claim and the end are marks.
pub(super) fn marked(shared: &Shared, name: &str, mark: &Mark) {
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
pub(super) fn of_state(
    record: &Result<&Arc<ExecutorRecord>, Unreadable>,
    state: &ExecutorState,
) -> Option<(Word, String)> {
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
pub(super) fn tell(shared: &Shared, pod: &Arc<Seen>, word: Word, more: &str) {
    if !shared.with_care(&pod.uid, |care| care.said.insert(word.reason())) {
        return;
    }
    if word == Word::Lost {
        last_words(pod, more);
    }
    let note = Note { pod: pod.key(), word, more: more.to_owned(), at: Timestamp::now() };
    if shared.notes.try_send(note).is_err() {
        tracing::debug!(component = "lifecycle", executor = %pod.name, "too many events wait; one is left out");
    }
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

fn event(namespace: &str, note: &Note) -> Event {
    let about = cluster_events::pod(namespace, &note.pod.name, note.pod.uid.clone());
    note.event(about, &note.message())
}

impl Note {
    fn message(&self) -> String {
        let word = self.word.message();
        if self.more.is_empty() { word.to_owned() } else { format!("{word}: {}", self.more) }
    }

    fn event(&self, about: ObjectReference, message: &str) -> Event {
        let said = Said { reason: self.word.reason(), kind: self.word.kind(), message };
        cluster_events::event(about, &said, self.at)
    }
}

/// What went wrong with an executor stands at the Lease as well, which outlives the Pod and is where one looks for all of
/// them. Asked for its UID each time: that is rare, and somebody may have made it anew.
async fn tell_at_lease(shared: &Shared, note: &Note) -> Result<(), Refusal> {
    let Some(lease) = &shared.lease else { return Ok(()) };
    let namespace = shared.cluster.namespace();
    let leases: Api<Lease> = Api::namespaced(shared.cluster.client(), namespace);
    let uid = shared.cluster.within(leases.get_metadata(lease)).await?.metadata.uid;
    let message = format!("{}: {}", note.pod.name, note.message());
    let event = note.event(cluster_events::lease(namespace, lease, uid), &message);
    shared.cluster.within(shared.events.create(&PostParams::default(), &event)).await.map(drop)
}
