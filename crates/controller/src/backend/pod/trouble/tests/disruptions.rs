//! Pods that somebody of the platform ended, in the words of Kubernetes 1.34 (`DisruptionTarget`, `status.reason`).

use super::*;

fn disrupted(reason: &str, message: &str) -> Value {
    json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message})
}

/// Ended by a signal of its kubelet, in the phase `Failed`.
fn ended(more: Value) -> Seen {
    terminated("Failed", 143, "Error", more)
}

/// NEW-66, F62, T7: whoever of the control plane ended a Pod is named with its words, and the author of the workflow is told
/// what to do: make it more important, or just run it again.
#[test]
fn the_control_plane_ends_a_pod() {
    let preempting = "default-scheduler: preempting to accommodate a higher priority pod";
    let tainted = "Taint manager: deleting due to NoExecute taint";
    for (reason, message, remedy) in [
        ("PreemptionByScheduler", preempting, PRIORITY),
        ("EvictionByEvictionAPI", "Eviction API: evicting", AGAIN),
        ("DeletionByTaintManager", tainted, AGAIN),
    ] {
        let pod = ended(json!({"conditions": [disrupted(reason, message)]}));
        fails(0, &pod, &[], Reason::ExecutorEvicted, &format!("its Pod was ended ({reason}): {message}; {remedy}"));
    }
    // What was not carried out has disrupted nobody.
    let spared = json!({"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"});
    let pod = ended(json!({"conditions": [spared]}));
    assert!(matches!(after(0, &pod, &[]), ExecutorState::Ended(_)));
}

/// NEW-66, F62, T7: of a node that is not there any more nobody tells how its containers ended, and the Pod fails as it stands.
#[test]
fn a_node_is_taken_out_of_the_cluster() {
    let gone = disrupted("DeletionByPodGC", "PodGC: node no longer exists");
    let status =
        json!({"phase": "Failed", "containerStatuses": container(json!({"running": {}})), "conditions": [gone]});
    let pod = pod(spec(), status, json!({"deletionTimestamp": NOW}));
    let words = "its Pod was ended (DeletionByPodGC): PodGC: node no longer exists";
    fails(0, &pod, &[], Reason::NodeLost, words);
    let last = farewell(&pod, NOW.parse().unwrap());
    assert!(matches!(&last, ExecutorState::Failed(failure) if failure.cause == words), "{last:?}");
}

/// NEW-66, F62, F68, T7: what a kubelet does by itself has one reason among the disruptions and three of its own, which say more:
/// too little disk or memory, a more important Pod, and the node's shutdown. Where its own is lost, the other one tells.
#[test]
fn a_kubelet_ends_a_pod() {
    let low = "The node was low on resource: ephemeral-storage. Container executor was using 12Gi, request is 1Gi. ";
    let shutdown = "Pod was terminated in response to imminent node shutdown.";
    let preempted = "Preempted in order to admit critical pod";
    let (evicted, lost) = (Reason::ExecutorEvicted, Reason::NodeLost);
    for (its_own, message, reason, words) in [
        ("Evicted", low, evicted, format!("its Pod was evicted: {}; {USE_LESS}", low.trim())),
        ("Preempting", preempted, evicted, format!("more important one: {preempted}; {PRIORITY}")),
        ("Terminated", shutdown, lost, format!("its node was shut down (Terminated): {shutdown}")),
        ("", low, evicted, format!("its Pod was ended (TerminationByKubelet): {}; {AGAIN}", low.trim())),
    ] {
        let conditions = [disrupted("TerminationByKubelet", message)];
        let pod = ended(json!({"reason": its_own, "message": message, "conditions": conditions}));
        fails(0, &pod, &[], reason, &words);
    }
}

/// NEW-66, NEW-73, F62, F74: a preemption and an eviction delete the Pod in order. One that waits for its task is lost at once
/// and is told by whom; one with a task may say its end, and if its Pod is gone before it did, that is told.
#[test]
fn a_disruption_deletes_in_order() {
    let mut record = crate::backend::pod::tests::record(7);
    let unclaimed = json!({"labels": record.labels(), "annotations": record.annotations()});
    record.claim = Some(domain::metadata::Claim { at: NOW.parse().unwrap(), log_shift: 0 });
    let claimed = json!({"labels": record.labels(), "annotations": record.annotations()});
    for (reason, message) in [
        ("PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
        ("EvictionByEvictionAPI", "Eviction API: evicting"),
    ] {
        let conditions = json!([disrupted(reason, message)]);
        let words = format!("its Pod was deleted ({reason}: {message})");
        fails(0, &going(unclaimed.clone(), conditions.clone(), NOW), &[], Reason::ExecutorDeleted, &words);
        let works = going(claimed.clone(), conditions, NOW);
        assert_eq!(after(0, &works, &[]), ExecutorState::Running, "{reason}");
        let last = farewell(&works, NOW.parse().unwrap());
        let cause = format!("{words}, and is gone");
        assert_eq!(last, ExecutorState::Failed(Failure { reason: Reason::ExecutorDeleted, cause }));
    }
}
