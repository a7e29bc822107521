//! What a Pod's status means for its executor (NEW-66): pure. Waiting reasons never fail a Pod by themselves, and status
//! is no history: how long something stands still is for the caller to know, by its own clock.

mod waiting;

use std::time::Duration;

use domain::executor_api::ExecutorExit;
use domain::metadata::ExecutorRecord;
use domain::reason::Reason;
use jiff::Timestamp;

use self::waiting::trouble;
use super::seen::{Condition, Container, DISRUPTED, Phase, READY, SCHEDULED, Seen, Terminated};
use crate::backend::{ExecutorState, Exit, Failure};

/// Why a Pod never starts whose maker did not live to write its Secret.
pub(super) const WITHOUT_SECRET: &str =
    "the Secret of its Pod does not exist: whoever made the Pod was ended before the Secret was made";
/// Our own Secret follows its Pod within a second, unless whoever made the Pod did not live to write it.
const OUR_SECRET: Duration = Duration::from_secs(30);
/// A kubelet that was restarted is back within this time.
const NODE: Duration = Duration::from_secs(5 * 60);
/// The words of a kubelet that says `Ready=False` itself. The node controller says it for one that is silent, and leaves the
/// reason as it was: there is none at `Ready=True`.
const BY_KUBELET: [&str; 6] = [
    "ContainersNotReady",
    "ContainersNotInitialized",
    "ReadinessGatesNotReady",
    "UnknownContainerStatuses",
    "PodCompleted",
    "PodFailed",
];
/// The reason of a disruption by a taint.
const BY_TAINT: &str = "DeletionByTaintManager";
/// What the author of a workflow can do about an eviction.
const AGAIN: &str = "run the job again";
const PRIORITY: &str = "run the job again, or have its Pods given a higher priority (priorityClassName)";
const USE_LESS: &str = "let the job use less, or have its Pods request what it uses";
/// A kubelet tells the phase a second or two after the end of a container. Sidecars may hold it back for ever.
const FINAL_PHASE: Duration = Duration::from_secs(10);
/// What deletes a Pod may be late by so much before it counts as hanging.
const HANGING: Duration = Duration::from_secs(60);
/// An autoscaler brings a node within this time, or it does not.
const SCALE_UP: Duration = Duration::from_secs(15 * 60);

/// What keeps a Pod from going on, as far as there is a limit to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standstill {
    /// No node.
    Placing,
    /// Its image is being pulled in vain.
    Pulling,
    /// A container cannot be made.
    Configuring,
    /// It has a node, and its containers do not start.
    Preparing,
    /// Its node does not answer.
    NodeSilent,
    /// Its executor ended and the phase does not say so yet.
    Ending,
}

/// What is known beside the status.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// For how long it stands still in this way.
    pub(super) stands: Duration,
    /// Events of the Pod, the newest last.
    pub(super) events: &'a [Told],
    /// Its Secret was made, whatever events said before.
    pub(super) has_secret: bool,
    /// `POD_PENDING_LIMIT`.
    pub(super) pending: Duration,
    /// By our clock.
    pub(super) now: Timestamp,
}

/// An event of the Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) at: Option<Timestamp>,
}

/// What the Pod waits for, if there is a limit to it.
pub(super) fn standstill(pod: &Seen) -> Option<Standstill> {
    match (pod.phase, &pod.executor) {
        (Phase::Succeeded | Phase::Failed, _) => None,
        (_, Container::Terminated(_)) => Some(Standstill::Ending),
        (_, Container::Running) => is_left_alone(pod).then_some(Standstill::NodeSilent),
        _ => Some(trouble(pod).map_or_else(|| on_its_way(pod), |trouble| trouble.standstill())),
    }
}

fn on_its_way(pod: &Seen) -> Standstill {
    if pod.node.is_some() { Standstill::Preparing } else { Standstill::Placing }
}

/// Nobody but the node controller speaks for its node. A Pod whose sidecar ended or whose readiness gate is shut is not ready
/// either, and its executor works.
fn is_left_alone(pod: &Seen) -> bool {
    pod.condition(READY).is_some_and(|ready| !ready.holds && !BY_KUBELET.contains(&ready.reason.as_str()))
}

/// What became of the executor of a Pod that is gone; this is the last that was seen of it.
pub(super) fn farewell(pod: &Seen, now: Timestamp) -> ExecutorState {
    if pod.is_over() {
        return ended(pod, now);
    }
    match going(pod, None, now) {
        ExecutorState::Failed(failure) => failed(failure.reason, format!("{}, and is gone", failure.cause)),
        state => state,
    }
}

/// What its executor does.
pub(super) fn state(pod: &Seen, record: Option<&ExecutorRecord>, about: &Circumstances<'_>) -> ExecutorState {
    let final_phase = matches!(pod.phase, Phase::Succeeded | Phase::Failed);
    match &pod.executor {
        _ if final_phase => ended(pod, about.now),
        Container::Terminated(how) if how.code == 0 || about.stands >= FINAL_PHASE => ended(pod, about.now),
        // The phase is about to come, and with it the reason: an eviction or a deadline.
        Container::Terminated(_) => ExecutorState::Running,
        _ if pod.deleting.is_some() => going(pod, record, about.now),
        Container::Running => running(about.stands, pod),
        _ => pending(pod, about),
    }
}

fn running(stands: Duration, pod: &Seen) -> ExecutorState {
    if standstill(pod) != Some(Standstill::NodeSilent) || stands < NODE {
        return ExecutorState::Running;
    }
    let node = pod.node.as_deref().unwrap_or("unknown");
    failed(Reason::NodeLost, format!("its node {node} has not answered for {} s", stands.as_secs()))
}

/// NEW-73: nobody adopts it. One with a task keeps it until its executor has said what it has to say, or is overdue.
fn going(pod: &Seen, record: Option<&ExecutorRecord>, now: Timestamp) -> ExecutorState {
    let late = pod.deleting.map_or(0, |at| now.duration_since(at).as_secs());
    let has_task = record.is_some_and(|record| record.claim.is_some());
    let hangs = late >= i64::try_from(HANGING.as_secs()).unwrap_or(i64::MAX);
    // A taint takes Pods off a node that is silent and off one that is to be empty: there the kubelet ends them as in any drain.
    if let Some(taint) = tainted(pod).filter(|_| hangs || is_left_alone(pod)) {
        let node = pod.node.as_deref().unwrap_or("unknown");
        return failed(Reason::NodeLost, words(&format!("its node {node} is lost"), &taint.message));
    }
    match pod.executor {
        Container::Running if has_task && !hangs => ExecutorState::Running,
        Container::Running if has_task => {
            failed(Reason::ExecutorDeleted, format!("{}, and has not ended {late} s after its time", deleted(pod)))
        }
        _ => failed(Reason::ExecutorDeleted, deleted(pod)),
    }
}

/// A taint of its node deletes it.
fn tainted(pod: &Seen) -> Option<&Condition> {
    pod.condition(DISRUPTED).filter(|condition| condition.holds && condition.reason == BY_TAINT)
}

/// Who deletes it, as far as it is known.
fn deleted(pod: &Seen) -> String {
    let by = pod.condition(DISRUPTED).filter(|condition| condition.holds);
    let by = by.map(|condition| words(&condition.reason, &condition.message));
    by.map_or_else(|| "its Pod was deleted by somebody else".to_owned(), |by| format!("its Pod was deleted ({by})"))
}

fn pending(pod: &Seen, about: &Circumstances<'_>) -> ExecutorState {
    if let Some(trouble) = trouble(pod) {
        return trouble.state(about.stands);
    }
    let late = about.stands >= about.pending;
    let seconds = about.stands.as_secs();
    match &pod.node {
        None => match unschedulable(pod) {
            Some(unschedulable) => placing(unschedulable, about),
            None if late => {
                failed(Reason::Unschedulable, format!("no scheduler has looked at its Pod for {seconds} s"))
            }
            None => ExecutorState::Pending,
        },
        Some(node) => match obstacle(pod, about) {
            Some(event) => preparing(pod, event, about),
            None if late => {
                failed(Reason::BackendUnavailable, format!("its Pod has not started on node {node} for {seconds} s"))
            }
            None => ExecutorState::Pending,
        },
    }
}

/// A scale-up that an autoscaler announced is waited for (NEW-66).
fn placing(unschedulable: &Condition, about: &Circumstances<'_>) -> ExecutorState {
    let what = words("no node takes its Pod", &unschedulable.message);
    let announced = last(about.events, &["TriggeredScaleUp", "Nominated"]);
    let Some(scale_up) = announced else { return held_up(about.stands, about.pending, Reason::Unschedulable, &what) };
    let what = format!("{what}; a node is announced: {}", scale_up.message);
    held_up(about.stands, longest_placing(about.pending), Reason::Unschedulable, &what)
}

/// With an announced scale-up.
pub(super) fn longest_placing(pending: Duration) -> Duration {
    pending.max(SCALE_UP) + SCALE_UP
}

/// What a kubelet could not do before it came to images, if it did not come to them since; nor is a Secret missing that was
/// made since: a kubelet is often there a moment earlier, and its next try succeeds without a word.
fn obstacle<'a>(pod: &Seen, about: &Circumstances<'a>) -> Option<&'a Told> {
    let at_images = |event: &&Told| ["Pulling", "Pulled", "Created", "Started"].contains(&event.reason.as_str());
    let since = about.events.iter().rev().take_while(|event| !at_images(event));
    let mut counts = since.filter(|event| !(about.has_secret && misses_secret(pod, event)));
    counts
        .find(|event| ["FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"].contains(&event.reason.as_str()))
}

fn misses_secret(pod: &Seen, event: &Told) -> bool {
    event.message.contains(&format!("secret \"{}\" not found", pod.name))
}

fn preparing(pod: &Seen, event: &Told, about: &Circumstances<'_>) -> ExecutorState {
    if misses_secret(pod, event) {
        return held_up(about.stands, OUR_SECRET, Reason::BackendUnavailable, WITHOUT_SECRET);
    }
    held_up(about.stands, about.pending, Reason::ConfigError, &words(&event.reason, &event.message))
}

fn last<'a>(events: &'a [Told], reasons: &[&str]) -> Option<&'a Told> {
    events.iter().rev().find(|event| reasons.contains(&event.reason.as_str()))
}

fn held_up(stands: Duration, patience: Duration, reason: Reason, what: &str) -> ExecutorState {
    if stands < patience {
        return ExecutorState::HeldUp(format!("its Pod: {what}"));
    }
    failed(reason, format!("{what} (for {} s)", stands.as_secs()))
}

fn unschedulable(pod: &Seen) -> Option<&Condition> {
    pod.condition(SCHEDULED).filter(|scheduled| !scheduled.holds && scheduled.reason == "Unschedulable")
}

/// Success is the phase's or the exit code's to tell: a Pod may succeed although a process in it was killed for its memory.
fn ended(pod: &Seen, now: Timestamp) -> ExecutorState {
    let how = match &pod.executor {
        Container::Terminated(how) => Some(how),
        _ => None,
    };
    if let Some(how) = how.filter(|how| how.code == 0) {
        return exit(how, now);
    }
    if let Some(failure) = by_the_platform(pod) {
        return ExecutorState::Failed(failure);
    }
    match how {
        Some(how) => by_itself(pod, how, now),
        None => never_started(pod),
    }
}

/// What the node or the control plane say that they did.
fn by_the_platform(pod: &Seen) -> Option<Failure> {
    let said = |what: &str| words(what, &pod.message);
    let failure = |reason, cause| Some(Failure { reason, cause });
    match pod.reason.as_deref() {
        Some("Evicted") => return Some(evicted(&said("its Pod was evicted"), USE_LESS)),
        Some("Preempting") => {
            return Some(evicted(&said("its Pod had to make room for a more important one"), PRIORITY));
        }
        Some("DeadlineExceeded") => return failure(Reason::Deadline, said("its Pod reached its deadline")),
        Some("NodeLost") => return failure(Reason::NodeLost, said("its node is lost")),
        Some(reason @ ("Terminated" | "NodeShutdown" | "Shutdown")) => {
            return failure(Reason::NodeLost, said(&format!("its node was shut down ({reason})")));
        }
        _ => {}
    }
    let disrupted = pod.condition(DISRUPTED).filter(|condition| condition.holds)?;
    let cause = words(&format!("its Pod was ended ({})", disrupted.reason), &disrupted.message);
    match disrupted.reason.as_str() {
        "PreemptionByScheduler" => Some(evicted(&cause, PRIORITY)),
        // A kubelet has said more above, unless its word was lost.
        "EvictionByEvictionAPI" | "TerminationByKubelet" => Some(evicted(&cause, AGAIN)),
        // Its kubelet was there to tell how it ended.
        BY_TAINT if is_told(&pod.executor) => Some(evicted(&cause, AGAIN)),
        BY_TAINT | "DeletionByPodGC" => failure(Reason::NodeLost, cause),
        _ => None,
    }
}

/// With what to do about it: that depends on what took its place or its node away.
fn evicted(cause: &str, remedy: &str) -> Failure {
    Failure { reason: Reason::ExecutorEvicted, cause: format!("{cause}; {remedy}") }
}

fn is_told(executor: &Container) -> bool {
    matches!(executor, Container::Terminated(how) if how.reason != "ContainerStatusUnknown")
}

fn by_itself(pod: &Seen, how: &Terminated, now: Timestamp) -> ExecutorState {
    // What our own executor says with its exit code is nearer to the truth than what became of a child.
    let said = ExecutorExit::of_code(how.code).is_some_and(|exit| exit != ExecutorExit::Usage);
    match how.reason.as_str() {
        "OOMKilled" if !said => {
            let limit =
                pod.memory_limit.as_ref().map_or("no limit of its own".to_owned(), |limit| format!("limit {limit}"));
            failed(Reason::ExecutorOom, format!("it ran out of memory ({limit}; exit code {})", how.code))
        }
        "StartError" | "ContainerCannotRun" => failed(
            Reason::ConfigError,
            words(&format!("its container does not start (exit code {})", how.code), &how.message),
        ),
        "ContainerStatusUnknown" if pod.deleting.is_none() => {
            failed(Reason::NodeLost, words("its node does not know any more what became of it", &how.message))
        }
        // A signal of the kubelet, which deletes it.
        _ if pod.deleting.is_some() && !said => {
            failed(Reason::ExecutorDeleted, format!("{} (exit code {})", deleted(pod), how.code))
        }
        _ => exit(how, now),
    }
}

fn never_started(pod: &Seen) -> ExecutorState {
    if let Some(init) = &pod.failed_init {
        return failed(Reason::ConfigError, init.clone());
    }
    if pod.deleting.is_some() {
        return failed(Reason::ExecutorDeleted, deleted(pod));
    }
    // A kubelet that refuses what the scheduler gave it: `OutOfcpu`, `NodeAffinity`, `UnexpectedAdmissionError`.
    let what = format!("its Pod ended before it started ({})", pod.reason.as_deref().unwrap_or("no reason given"));
    failed(Reason::BackendUnavailable, words(&what, &pod.message))
}

fn exit(how: &Terminated, now: Timestamp) -> ExecutorState {
    let (code, signal) =
        if how.code > 128 && how.code <= 128 + 64 { (None, Some(how.code - 128)) } else { (Some(how.code), None) };
    ExecutorState::Ended(Exit { code, signal, at: how.at.unwrap_or(now) })
}

fn failed(reason: Reason, cause: String) -> ExecutorState {
    ExecutorState::Failed(Failure { reason, cause })
}

/// Two parts of a sentence; the second is somebody else's, and may be long. Its end stays in any case: a kubelet names an
/// image three times before it says what is wrong with it.
fn words(ours: &str, theirs: &str) -> String {
    const BEGINNING: usize = 100;
    const END: usize = 300;
    let theirs = theirs.trim();
    let length = theirs.chars().count();
    if theirs.is_empty() {
        return ours.to_owned();
    }
    if length <= BEGINNING + END {
        return format!("{ours}: {theirs}");
    }
    let beginning: String = theirs.chars().take(BEGINNING).collect();
    let end: String = theirs.chars().skip(length - END).collect();
    format!("{ours}: {beginning} … {end}")
}

#[cfg(test)]
mod tests;
