#![expect(clippy::unwrap_used, reason = "tests")]

mod disruptions;

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn pod(spec: Value, status: Value, metadata: Value) -> Seen {
    let mut pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status});
    super::super::template::lay_over(&mut pod["metadata"], metadata);
    Seen::of(serde_json::from_value(pod).unwrap()).unwrap()
}

fn spec() -> Value {
    json!({"nodeName": "n1", "containers": [{"name": "executor", "resources": {"limits": {"memory": "2Gi"}}}]})
}

fn container(state: Value) -> Value {
    json!([{"name": "executor", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}])
}

fn waiting(reason: &str, message: &str) -> Seen {
    let state = container(json!({"waiting": {"reason": reason, "message": message}}));
    pod(spec(), json!({"phase": "Pending", "containerStatuses": state}), json!({}))
}

fn terminated(phase: &str, code: i32, reason: &str, more: Value) -> Seen {
    let state = container(json!({"terminated": {"exitCode": code, "reason": reason, "finishedAt": NOW}}));
    let mut status = json!({"phase": phase, "containerStatuses": state});
    super::super::template::lay_over(&mut status, more);
    pod(spec(), status, json!({}))
}

fn unplaced(message: &str) -> Seen {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    pod(json!({"containers": []}), json!({"phase": "Pending", "conditions": [condition]}), json!({}))
}

fn told(reason: &str, message: &str) -> Told {
    Told { reason: reason.to_owned(), message: message.to_owned(), at: None }
}

fn after(seconds: u64, pod: &Seen, events: &[Told]) -> ExecutorState {
    with_secret(false, seconds, pod, events)
}

fn with_secret(has_secret: bool, seconds: u64, pod: &Seen, events: &[Told]) -> ExecutorState {
    let about = Circumstances {
        stands: Duration::from_secs(seconds),
        events,
        has_secret,
        pending: Duration::from_secs(900),
        now: NOW.parse().unwrap(),
    };
    state(pod, pod.record.as_deref().ok(), &about)
}

#[track_caller]
fn fails(seconds: u64, pod: &Seen, events: &[Told], reason: Reason, words: &str) {
    match after(seconds, pod, events) {
        ExecutorState::Failed(failure) => {
            assert_eq!(failure.reason, reason, "{}", failure.cause);
            assert!(failure.cause.contains(words), "{}", failure.cause);
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn waits(seconds: u64, pod: &Seen, events: &[Told], words: &str) {
    match after(seconds, pod, events) {
        ExecutorState::HeldUp(text) => assert!(text.contains(words), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// NEW-66, F60: what is wrong with an image stands at the end of a kubelet's long sentence, and so on the job's page.
#[test]
fn the_end_of_a_long_sentence_stays() {
    let image = format!("registry.example.org/ci/executor@sha256:{}", "a".repeat(64));
    let message = format!(
        "Back-off pulling image \"{image}\": ErrImagePull: failed to pull and unpack image \"{image}\": failed to resolve \
         reference \"{image}\": {image}: not found"
    );
    fails(30, &waiting("ImagePullBackOff", &message), &[], Reason::ImagePull, "Back-off pulling image");
    fails(30, &waiting("ImagePullBackOff", &message), &[], Reason::ImagePull, ": not found (for 30 s)");
}

/// NEW-66, F60, T7: what cannot mend itself fails at once, what may is waited for, and then it has its word.
#[test]
fn images_and_configurations() {
    fails(0, &waiting("InvalidImageName", "couldn't parse"), &[], Reason::ImageInvalid, "couldn't parse");
    let away = waiting("ImagePullBackOff", "dial tcp: i/o timeout");
    waits(299, &away, &[], "ImagePullBackOff");
    fails(300, &away, &[], Reason::ImagePull, "(for 300 s)");
    let unknown = waiting("ErrImagePull", "manifest unknown");
    waits(29, &unknown, &[], "manifest unknown");
    fails(30, &unknown, &[], Reason::ImagePull, "manifest unknown");
    fails(30, &waiting("ErrImageNeverPull", ""), &[], Reason::ImagePull, "ErrImageNeverPull");
    let config = waiting("CreateContainerConfigError", "couldn't find key x in Secret n/s");
    waits(29, &config, &[], "couldn't find key x");
    fails(30, &config, &[], Reason::ConfigError, "couldn't find key x");
}

/// NEW-66, T7: no node within the limit fails, unless an autoscaler says that it brings one; then it has its time, too.
#[test]
fn nodes_are_waited_for() {
    let full = unplaced("0/1 nodes are available: 1 Insufficient cpu");
    assert_eq!(standstill(&full), Some(Standstill::Placing));
    waits(899, &full, &[], "Insufficient cpu");
    fails(900, &full, &[], Reason::Unschedulable, "Insufficient cpu (for 900 s)");
    let growing = [told("TriggeredScaleUp", "pod triggered scale-up: [{g 1->2 (max: 5)}]")];
    waits(900, &full, &growing, "a node is announced");
    fails(1800, &full, &growing, Reason::Unschedulable, "1->2");
    let unseen = pod(json!({"containers": []}), json!({"phase": "Pending"}), json!({}));
    assert_eq!(after(899, &unseen, &[]), ExecutorState::Pending);
    fails(900, &unseen, &[], Reason::Unschedulable, "no scheduler");
}

/// NEW-66, NEW-64: what only events tell; a Pod whose maker did not live to write its Secret is given up soon.
#[test]
fn mounts_that_fail() {
    let creating = waiting("ContainerCreating", "");
    assert_eq!(after(899, &creating, &[]), ExecutorState::Pending);
    fails(900, &creating, &[], Reason::BackendUnavailable, "not started on node n1 for 900 s");
    let other = [told("FailedMount", "driver name csi.spiffe.io not found in the list of registered CSI drivers")];
    waits(899, &creating, &other, "csi.spiffe.io");
    fails(900, &creating, &other, Reason::ConfigError, "csi.spiffe.io");
    let ours = [told("FailedMount", "MountVolume.SetUp failed for volume \"capability\" : secret \"p\" not found")];
    waits(29, &creating, &ours, "Secret of its Pod");
    fails(30, &creating, &ours, Reason::BackendUnavailable, "Secret of its Pod");
}

/// NEW-66, NEW-72: a mount that failed once, as it does where a kubelet is there before the Secret, is no trouble any more when
/// its Secret is known to be there or images are being pulled, for however long.
#[test]
fn mounts_that_failed_once() {
    let creating = waiting("ContainerCreating", "");
    let missing = told("FailedMount", "MountVolume.SetUp failed for volume \"capability\" : secret \"p\" not found");
    let other = told("FailedMount", "driver name csi.spiffe.io not found in the list of registered CSI drivers");
    assert_eq!(with_secret(true, 899, &creating, std::slice::from_ref(&missing)), ExecutorState::Pending);
    for before in [&missing, &other] {
        let pulling = [before.clone(), told("Pulling", "Pulling image \"i\"")];
        assert_eq!(after(899, &creating, &pulling), ExecutorState::Pending);
        fails(900, &creating, &pulling, Reason::BackendUnavailable, "not started on node n1 for 900 s");
    }
    waits(30, &creating, &[told("Pulled", ""), other], "csi.spiffe.io");
}

/// NEW-66, F60, T7: an init container that cannot start says why, and by whom, after the same time as an executor; one that is
/// not its turn says nothing.
#[test]
fn init_containers_that_do_not_start() {
    let init = |reason: &str, message: &str| {
        let each = |name: &str, reason: &str, message: &str| {
            let state = json!({"waiting": {"reason": reason, "message": message}});
            json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
        };
        let inits = json!([each("first", reason, message), each("second", "PodInitializing", "")]);
        let executor = container(json!({"waiting": {"reason": "PodInitializing"}}));
        let status = json!({"phase": "Pending", "initContainerStatuses": inits, "containerStatuses": executor});
        pod(spec(), status, json!({}))
    };
    let unknown = init("ImagePullBackOff", "manifest unknown");
    assert_eq!(standstill(&unknown), Some(Standstill::Pulling));
    waits(29, &unknown, &[], "init container first is not there");
    fails(30, &unknown, &[], Reason::ImagePull, "manifest unknown (for 30 s)");
    fails(0, &init("InvalidImageName", ""), &[], Reason::ImageInvalid, "init container first is invalid");
    let config = init("CreateContainerConfigError", "couldn't find key x");
    assert_eq!(standstill(&config), Some(Standstill::Configuring));
    fails(
        30,
        &config,
        &[],
        Reason::ConfigError,
        "init container first: CreateContainerConfigError: couldn't find key x",
    );
    let fine = init("PodInitializing", "");
    assert_eq!(standstill(&fine), Some(Standstill::Preparing));
    assert_eq!(after(899, &fine, &[]), ExecutorState::Pending);
}

/// NEW-66, F60, T7: success is the phase's and the code's to say; memory, eviction and deadline are named with numbers.
#[test]
fn ends() {
    let exit = |code, signal| ExecutorState::Ended(Exit { code, signal, at: NOW.parse().unwrap() });
    assert_eq!(after(0, &terminated("Succeeded", 0, "Completed", json!({})), &[]), exit(Some(0), None));
    assert_eq!(after(0, &terminated("Succeeded", 0, "OOMKilled", json!({})), &[]), exit(Some(0), None));
    assert_eq!(after(0, &terminated("Failed", 10, "Error", json!({})), &[]), exit(Some(10), None));
    assert_eq!(after(0, &terminated("Failed", 14, "OOMKilled", json!({})), &[]), exit(Some(14), None));
    assert_eq!(after(0, &terminated("Failed", 143, "Error", json!({})), &[]), exit(None, Some(15)));
    for code in [137, 5] {
        let oom = terminated("Failed", code, "OOMKilled", json!({}));
        fails(0, &oom, &[], Reason::ExecutorOom, &format!("limit 2Gi; exit code {code}"));
    }
    let by_node = |reason: &str| terminated("Failed", 137, "Error", json!({"reason": reason, "message": "used 12Gi"}));
    fails(0, &by_node("Evicted"), &[], Reason::ExecutorEvicted, "used 12Gi");
    fails(0, &by_node("DeadlineExceeded"), &[], Reason::Deadline, "used 12Gi");
    fails(0, &by_node("Terminated"), &[], Reason::NodeLost, "shut down");
    fails(0, &terminated("Failed", 128, "StartError", json!({})), &[], Reason::ConfigError, "does not start");
    let refused = pod(spec(), json!({"phase": "Failed", "reason": "OutOfcpu", "message": "node is full"}), json!({}));
    fails(0, &refused, &[], Reason::BackendUnavailable, "OutOfcpu");
}

/// NEW-66: a container that ended badly has no reason until the phase follows, and sidecars may hold that back for ever.
#[test]
fn the_phase_comes_late() {
    let ended = terminated("Running", 137, "Error", json!({}));
    assert_eq!(standstill(&ended), Some(Standstill::Ending));
    assert_eq!(after(9, &ended, &[]), ExecutorState::Running);
    assert!(matches!(after(10, &ended, &[]), ExecutorState::Ended(_)));
    assert!(matches!(after(0, &terminated("Running", 0, "Completed", json!({})), &[]), ExecutorState::Ended(_)));
}

/// NEW-66, F62: a node that is silent for long is lost; one whose kubelet was restarted is not.
#[test]
fn nodes_get_lost() {
    let ready = json!([{"type": "Ready", "status": "False"}]);
    let status =
        json!({"phase": "Running", "containerStatuses": container(json!({"running": {}})), "conditions": ready});
    let silent = pod(spec(), status, json!({}));
    assert_eq!(standstill(&silent), Some(Standstill::NodeSilent));
    assert_eq!(after(299, &silent, &[]), ExecutorState::Running);
    fails(300, &silent, &[], Reason::NodeLost, "n1 has not answered for 300 s");
}

/// NEW-66, F62: whatever a kubelet itself says of a Pod that is not ready, its node is there and its executor works: a sidecar
/// has ended, or a readiness gate is shut.
#[test]
fn a_pod_that_is_not_ready_works() {
    for reason in ["ContainersNotReady", "ReadinessGatesNotReady", "UnknownContainerStatuses"] {
        let ready = json!([{"type": "Ready", "status": "False", "reason": reason}]);
        let status =
            json!({"phase": "Running", "containerStatuses": container(json!({"running": {}})), "conditions": ready});
        let works = pod(spec(), status, json!({}));
        assert_eq!(standstill(&works), None, "{reason}");
        assert_eq!(after(86_400, &works, &[]), ExecutorState::Running, "{reason}");
    }
}

fn going(record: Value, conditions: Value, since: &str) -> Seen {
    let status =
        json!({"phase": "Running", "containerStatuses": container(json!({"running": {}})), "conditions": conditions});
    let mut metadata = json!({"deletionTimestamp": since});
    super::super::template::lay_over(&mut metadata, record);
    pod(spec(), status, metadata)
}

/// NEW-73, F74, T54: a Pod that goes is lost to whoever has no task yet; with a task it may say its end, if it is not late.
#[test]
fn going_pods() {
    let unclaimed = going(json!({}), json!([]), NOW);
    fails(0, &unclaimed, &[], Reason::ExecutorDeleted, "deleted by somebody else");
    let mut record = crate::backend::pod::tests::record(7);
    record.claim = Some(domain::metadata::Claim { at: NOW.parse().unwrap(), log_shift: 0 });
    let ours = json!({"labels": record.labels(), "annotations": record.annotations()});
    assert_eq!(after(0, &going(ours.clone(), json!([]), NOW), &[]), ExecutorState::Running);
    let disrupted = |reason: &str| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
    let late = going(ours.clone(), disrupted("EvictionByEvictionAPI"), "2026-01-02T03:03:05Z");
    fails(0, &late, &[], Reason::ExecutorDeleted, "EvictionByEvictionAPI");
}

/// NEW-66, NEW-73, F62: a taint takes a Pod off a node that its operator empties, where its executor may say its end as in any
/// drain, and off one that is silent, which the node controller says of the Pod. A kubelet that does not end it in time is
/// silent, too.
#[test]
fn a_taint_is_no_lost_node() {
    let mut record = crate::backend::pod::tests::record(7);
    let unclaimed = json!({"labels": record.labels(), "annotations": record.annotations()});
    record.claim = Some(domain::metadata::Claim { at: NOW.parse().unwrap(), log_shift: 0 });
    let ours = json!({"labels": record.labels(), "annotations": record.annotations()});
    let message = "Taint manager: deleting due to NoExecute taint";
    let tainted =
        json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": message});
    let ready = |status: &str, reason: &str| json!([tainted, {"type": "Ready", "status": status, "reason": reason}]);
    for (status, reason) in [("True", ""), ("False", "ContainersNotReady")] {
        let drained = going(ours.clone(), ready(status, reason), NOW);
        assert_eq!(after(0, &drained, &[]), ExecutorState::Running, "{status} {reason}");
        fails(0, &going(unclaimed.clone(), ready(status, reason), NOW), &[], Reason::ExecutorDeleted, message);
    }
    fails(0, &going(ours.clone(), ready("False", ""), NOW), &[], Reason::NodeLost, "n1 is lost");
    let late = going(ours, ready("True", ""), "2026-01-02T03:03:05Z");
    fails(0, &late, &[], Reason::NodeLost, "n1 is lost");
    let ended = |reason: &str| terminated("Failed", 143, reason, json!({"conditions": [tainted]}));
    fails(0, &ended("Error"), &[], Reason::ExecutorEvicted, message);
    fails(0, &ended("ContainerStatusUnknown"), &[], Reason::NodeLost, message);
}
