//! What is not as it should be: foreign and broken objects, a cluster that refuses or is away, identities that do not come.

use domain::reason::Reason;
use serde_json::{Value, json};
use testkit::kubernetes::{Away, Fault, On, Verb};

use super::*;
use crate::backend::Failure;
use crate::config::{Log, LogFormat, LogLevel};
use crate::telemetry::lines::{Lines, hear};
use crate::telemetry::{Colours, subscriber};

/// A Pod that somebody else made, with these labels and annotations.
fn pod(name: &str, record: &ExecutorRecord) -> Value {
    let metadata = json!({"name": name, "labels": record.labels(), "annotations": record.annotations()});
    json!({"metadata": metadata, "spec": {"containers": [{"name": "executor", "image": "x"}]}})
}

fn add(world: &World, name: &str, record: &ExecutorRecord) {
    world.cluster.add(Resource::Pods, "gitea-actions", pod(name, record));
}

fn names(observed: &[Observed]) -> Vec<&str> {
    observed.iter().map(|observed| observed.name.as_str()).collect()
}

/// NEW-1, NEW-2, F70, F77, T15, T55: what is another instance's, or only looks like ours, is neither seen nor touched.
#[tokio::test]
async fn foreign_pods_are_left_alone() {
    let world = World::start().await;
    let theirs = ExecutorRecord { instance: "there".parse().unwrap(), ..record(7) };
    add(&world, "gitea-task-7-there-e1", &theirs);
    let terminal = json!({"metadata": {"name": "x", "labels": {"ci.ddupan.top/terminal": "true"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    world.cluster.add(Resource::Pods, "gitea-actions", terminal);
    // It has the name of an executor of ours.
    let squatter = json!({"metadata": {"name": name(8)}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    world.cluster.add(Resource::Pods, "gitea-actions", squatter);
    let backend = world.controller();
    assert!(backend.list().await.unwrap().is_empty());
    assert!(matches!(backend.ensure(launch(8)).await, Err(BackendError::Conflict { .. })));
    assert_eq!(backend.mark(&name(8), Mark::Terminal).await, Ok(Marked::Gone));
    assert_eq!(backend.delete(&name(8)).await, Ok(()));
    assert_eq!(backend.delete("gitea-task-7-there-e1").await, Ok(()));
    assert_eq!(world.cluster.names(Resource::Pods).len(), 3);
    assert_eq!(world.cluster.count(Verb::Delete, Resource::Pods) + world.cluster.count(Verb::Patch, Resource::Pods), 0);
}

/// NEW-2: a Secret of our name that is not ours stays as it is.
#[tokio::test]
async fn foreign_secrets_are_left_alone() {
    let world = World::start().await;
    world.cluster.add(
        Resource::Secrets,
        "gitea-actions",
        json!({"metadata": {"name": name(7)}, "data": {"k": "dg=="}}),
    );
    let backend = world.controller();
    let refused = backend.ensure(launch(7)).await;
    assert!(matches!(refused, Err(BackendError::Permanent { reason: Reason::ConfigError, .. })), "{refused:?}");
    assert!(world.has(Resource::Secrets, &name(7)));
}

/// NEW-56, F45, T22: a Pod of ours that cannot be read is set apart, holds its slot, and disturbs nobody.
#[tokio::test]
async fn broken_pods_are_set_apart() {
    let world = World::start().await;
    add(&world, &name(1), &record(1));
    world.cluster.edit(Resource::Pods, &name(1), |pod| {
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove("ci.ddupan.top/deadline");
    });
    let vm = ExecutorRecord { backend: BackendKind::Vm, ..record(2) };
    add(&world, &name(2), &vm);
    let backend = world.controller();
    ready(&backend, 3).await;
    let observed = backend.list().await.unwrap();
    assert_eq!(names(&observed), [name(1), name(2), name(3)]);
    let problems: Vec<bool> = observed.iter().map(|observed| observed.record.is_err()).collect();
    assert_eq!(problems, [true, true, false]);
    assert!(!world.is_bound(&name(1)) && !world.is_bound(&name(2)));
    until("an event", async || {
        world.cluster.events(&name(1)).iter().any(|(reason, _)| reason == "ExecutorQuarantined")
    })
    .await;
}

/// POD-1, F77: of several Pods of one executor the right one stays and the others go.
#[tokio::test]
async fn surplus_pods_go() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    add(&world, "copy", &record(7));
    until("the copy is gone", async || !world.has(Resource::Pods, "copy")).await;
    assert_eq!(state(&backend, &name(7)).await, Some(ExecutorState::Running));
    add(&world, "alone", &record(8));
    until("seen", async || names(&backend.list().await.unwrap()).contains(&"alone")).await;
    assert!(world.has(Resource::Pods, "alone"), "nobody else is there for it");
}

/// NEW-74, F76: a surplus Pod that cannot be deleted is tried again after pauses that grow.
#[tokio::test]
async fn surplus_pods_that_stay() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    world.cluster.fail(On::call(Verb::Delete, Resource::Pods).named("copy"), Fault::internal().always());
    add(&world, "copy", &record(7));
    let tries = || world.cluster.calls_of(Verb::Delete, Resource::Pods);
    until("three tries", async || tries().len() >= 3).await;
    let tries: Vec<_> = tries().into_iter().map(|call| call.instant).collect();
    // 1 s and 2 s, a fifth more or less.
    assert!(tries[2].duration_since(tries[0]) >= Duration::from_millis(2300), "{tries:?}");
    world.cluster.clear_faults();
    until("the copy is gone", async || !world.has(Resource::Pods, "copy")).await;
}

/// NEW-66: events that cannot be read are not none: an announced node is not forgotten.
#[tokio::test]
async fn events_that_cannot_be_read() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    let pod = backend.shared.observatory.store().get(&name(7)).unwrap();
    let scale_up = trouble::Told { reason: "TriggeredScaleUp".to_owned(), message: "1->2".to_owned(), at: None };
    backend.shared.with_care(&pod.uid, |care| care.events = vec![scale_up.clone()]);
    world.cluster.fail(On::call(Verb::List, Resource::Events), Fault::internal());
    upkeep::read_events(&backend.shared, &pod).await;
    assert_eq!(world.cluster.count(Verb::List, Resource::Events), 1);
    assert_eq!(backend.shared.with_care(&pod.uid, |care| care.events.clone()), [scale_up]);
}

/// NEW-73, F74, T54: a Pod that goes and does not end is not adopted, and holds its slot.
#[tokio::test]
async fn going_pods_hold_their_slots() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    world.cluster.kubelet().stuck_deletions(true);
    world.cluster.delete(Resource::Pods, &name(7));
    let lost = state_after_nudge(&backend, &name(7), |state| matches!(state, ExecutorState::Failed(_))).await;
    assert!(matches!(lost, ExecutorState::Failed(Failure { reason: Reason::ExecutorDeleted, .. })), "{lost:?}");
    assert!(matches!(backend.ensure(launch(7)).await, Err(BackendError::Transient { .. }) | Ok(Ensured::Ready)));
    assert_eq!(world.cluster.count(Verb::Create, Resource::Pods), 1);
    assert_eq!(backend.list().await.unwrap().len(), 1);
}

/// NEW-66, NEW-71, F62, T7, T42, T77: a refusal is an end, a wait, or another try, by what it says.
#[tokio::test]
async fn refusals_of_a_create() {
    let world = World::start().await;
    let backend = world.controller();
    let create = || On::call(Verb::Create, Resource::Pods);
    world.cluster.fail(create(), Fault::forbidden("violates PodSecurity \"restricted:latest\""));
    let refused = backend.ensure(launch(1)).await;
    assert!(
        matches!(&refused, Err(BackendError::Permanent { reason: Reason::ConfigError, cause, .. }) if cause.contains("PodSecurity")),
        "{refused:?}"
    );
    world.cluster.fail(create(), Fault::quota("executors, requested: pods=1, used: pods=4, limited: pods=4"));
    let waits = backend.ensure(launch(1)).await;
    assert!(
        matches!(&waits, Err(BackendError::QuotaUsedUp { cause, .. })
            if cause == "exceeded quota: executors, requested: pods=1, used: pods=4, limited: pods=4"),
        "{waits:?}"
    );
    world.cluster.fail(create(), Fault::forbidden("status unknown for quota: executors, resources: pods"));
    let uncounted = backend.ensure(launch(1)).await;
    assert!(
        matches!(&uncounted, Err(BackendError::QuotaUsedUp { cause, .. })
            if cause == "status unknown for quota: executors, resources: pods"),
        "{uncounted:?}"
    );
    world.cluster.fail(create(), Fault::too_many_requests(7));
    let again = backend.ensure(launch(1)).await;
    assert!(
        matches!(&again, Err(BackendError::Transient { retry_after: Some(after), .. }) if after.as_secs() == 7),
        "{again:?}"
    );
    world.cluster.forbid(Verb::Create, Resource::Pods);
    let rights = backend.ensure(launch(1)).await;
    assert!(
        matches!(&rights, Err(BackendError::Transient { cause, .. }) if cause.contains("cannot create")),
        "{rights:?}"
    );
    world.cluster.allow(Verb::Create, Resource::Pods);
    ready(&backend, 1).await;
}

/// T77, NEW-143, F154: nothing waits for rights over events; without them the log says which.
#[tokio::test]
async fn missing_rights_over_events_are_told() {
    let (lines, log) = (Lines::default(), Log { format: LogFormat::Json, level: LogLevel::Info });
    let _log = hear(subscriber(log, lines.clone(), Colours::Off));
    let told = |verb: &str| lines.text().contains(&format!("cannot {verb} resource"));
    let world = World::start().await;
    world.cluster.forbid(Verb::Create, Resource::Events);
    world.cluster.forbid(Verb::List, Resource::Events);
    let backend = world.controller();
    ready(&backend, 7).await;
    until("that none is written", async || told("create")).await;
    let pod = backend.shared.observatory.store().get(&name(7)).unwrap();
    upkeep::read_events(&backend.shared, &pod).await;
    assert!(told("list"), "{}", lines.text());
}

/// POD-8, NEW-62, NEW-55, F109, T10: a 409 says that others wrote, and not that the Pod is gone: mark and removal are tried
/// again, and its slot is held.
#[tokio::test]
async fn a_conflict_is_no_end() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    world.cluster.fail(On::call(Verb::Patch, Resource::Pods), Fault::conflict());
    let refused = backend.mark(&name(7), Mark::Terminal).await;
    assert!(
        matches!(&refused, Err(BackendError::Transient { cause, .. }) if cause.contains("modified")),
        "{refused:?}"
    );
    assert_eq!(backend.mark(&name(7), Mark::Terminal).await, Ok(Marked::Written));
    assert_eq!(world.cluster.pod(&name(7))["metadata"]["labels"]["ci.ddupan.top/terminal"], "true");
    world.cluster.fail(On::call(Verb::Delete, Resource::Pods), Fault::conflict());
    let refused = backend.delete(&name(7)).await;
    assert!(matches!(&refused, Err(BackendError::Transient { .. })), "{refused:?}");
    assert_eq!(names(&backend.list().await.unwrap()), [name(7)]);
    assert_eq!(backend.delete(&name(7)).await, Ok(()));
    assert!(!world.has(Resource::Pods, &name(7)));
}

/// POD-7, POD-8, F109, T10: the Pod went and another has its name, which nobody has told so far: that one gets neither mark
/// nor end.
#[tokio::test]
async fn another_pod_has_the_name() {
    let world = World::start().await;
    let backend = world.controller();
    for (n, carry_out) in [(7, "mark"), (8, "delete")] {
        ready(&backend, n).await;
        world.cluster.silence_watches(true);
        world.cluster.force_delete(&name(n));
        add(&world, &name(n), &record(n));
        match carry_out {
            "mark" => assert_eq!(backend.mark(&name(n), Mark::Terminal).await, Ok(Marked::Gone)),
            _ => assert_eq!(backend.delete(&name(n)).await, Ok(())),
        }
        let other = world.cluster.pod(&name(n));
        assert_eq!(other["metadata"]["labels"].get("ci.ddupan.top/terminal"), None);
        assert_eq!(other["metadata"].get("deletionTimestamp"), None);
        world.cluster.silence_watches(false);
    }
}

/// NEW-62, F76, T42: without an answer of the cluster there is no list, and so no evidence; it comes back by itself.
#[tokio::test]
async fn no_answer_is_no_list() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    world.cluster.set_away(Away::Refusing);
    world.cluster.cut_watches();
    until("no list", async || backend.list().await.is_err()).await;
    world.cluster.set_away(Away::No);
    until("a list", async || backend.list().await.is_ok()).await;
    assert_eq!(state(&backend, &name(7)).await, Some(ExecutorState::Running));
}

/// NEW-65: a watch that breaks off, or whose version the server has forgotten, misses nothing.
#[tokio::test]
async fn a_watch_goes_on() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 1).await;
    world.cluster.cut_watches();
    ready(&backend, 2).await;
    world.cluster.forget_history();
    world.cluster.cut_watches();
    world.cluster.delete(Resource::Pods, &name(1));
    until("gone", async || state(&backend, &name(1)).await.is_none()).await;
    assert_eq!(state(&backend, &name(2)).await, Some(ExecutorState::Running));
}

/// NEW-66, F42, T45: an identity that cannot be written keeps the executor and its slot, says why, and comes later.
#[tokio::test]
async fn an_identity_that_comes_late() {
    let world = World::start().await;
    let later = || Err(IssueError::Later { cause: "the API is away".to_owned() });
    *world.issuer.answers.lock().unwrap() = vec![Ok(Standing::Bound), Ok(Standing::Pending), later(), later()];
    let backend = world.controller();
    backend.ensure(launch(7)).await.unwrap();
    let held = |state: &ExecutorState| matches!(state, ExecutorState::HeldUp(text) if text.contains("the API is away"));
    state_after_nudge(&backend, &name(7), held).await;
    ready(&backend, 7).await;
    until("bound", async || world.issuer.answers.lock().unwrap().is_empty()).await;
    assert_eq!(world.cluster.count(Verb::Create, Resource::Pods), 1);
}

/// NEW-76, F73, T18: an identity that is refused ends the task at once.
#[tokio::test]
async fn an_identity_that_is_refused() {
    let world = World::start().await;
    let cause = "entry x is masked".to_owned();
    world.issuer.answers.lock().unwrap().push(Ok(Standing::Rejected { cause }));
    let backend = world.controller();
    // The refusal may come before the first answer.
    let _ = backend.ensure(launch(7)).await;
    let lost = state_after_nudge(&backend, &name(7), |state| matches!(state, ExecutorState::Failed(_))).await;
    assert!(matches!(lost, ExecutorState::Failed(Failure { reason: Reason::IdentityRejected, .. })), "{lost:?}");
    let refused = backend.ensure(launch(7)).await;
    assert!(matches!(refused, Err(BackendError::Permanent { reason: Reason::IdentityRejected, .. })), "{refused:?}");
}

/// POD-5, F120: an identity that our rules do not give is never bound, and no Pod is made for it.
#[tokio::test]
async fn a_foreign_identity_is_refused() {
    let world = World::start().await;
    let backend = world.controller();
    let foreign =
        ExecutorRecord { spiffe_id: "spiffe://elsewhere.org/ci/owner/name/build".parse().unwrap(), ..record(7) };
    let refused = backend.ensure(launch_of(foreign)).await;
    assert!(matches!(refused, Err(BackendError::Permanent { reason: Reason::IdentityRejected, .. })), "{refused:?}");
    assert!(world.cluster.names(Resource::Pods).is_empty());
}

/// NEW-64, NEW-75: entries are compared with all Pods that there are.
#[tokio::test]
async fn entries_are_compared_with_pods() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    upkeep::sweep(&backend.shared).await;
    let sweeps = world.issuer.sweeps.lock().unwrap();
    let live: Vec<_> = sweeps.last().unwrap().iter().map(|key| key.name.clone()).collect();
    assert_eq!(live, [name(7)]);
}

/// NEW-143: whoever looks at the Pod sees what became of it, and whoever looks at the Lease what went wrong, and with which.
#[tokio::test]
async fn events_tell_its_life() {
    let world = World::start().await;
    world.cluster.add(Resource::Leases, "gitea-actions", serde_json::json!({"metadata": {"name": LEASE}, "spec": {}}));
    let backend = world.controller();
    ready(&backend, 7).await;
    backend.mark(&name(7), claim()).await.unwrap();
    backend.mark(&name(7), Mark::Terminal).await.unwrap();
    ready(&backend, 8).await;
    world.cluster.kubelet().exit(&name(8), 10);
    state_after_nudge(&backend, &name(8), |state| matches!(state, ExecutorState::Ended(_))).await;
    for (name, wanted) in [
        (name(7), vec!["ExecutorCreated", "IdentityBound", "JobClaimed", "JobReported"]),
        (name(8), vec!["ExecutorCreated", "IdentityBound", "ExecutorLost"]),
    ] {
        let told = async || {
            let events = world.cluster.events(&name);
            wanted.iter().all(|wanted| events.iter().any(|(reason, _)| reason == wanted))
        };
        until(&format!("{wanted:?}"), told).await;
    }
    until("an event on the Lease", async || !world.cluster.events(LEASE).is_empty()).await;
    let at_lease = world.cluster.events(LEASE);
    let [(reason, message)] = &at_lease[..] else { panic!("{at_lease:?}") };
    assert!(reason == "ExecutorLost" && message.starts_with(&format!("{}: ", name(8))), "{at_lease:?}");
    let of_lease = |event: &serde_json::Value| event["involvedObject"]["kind"] == "Lease";
    let event = world.cluster.objects(Resource::Events).into_iter().find(of_lease).unwrap();
    let uid = &world.cluster.object(Resource::Leases, LEASE).unwrap()["metadata"]["uid"];
    assert_eq!((&event["involvedObject"]["uid"], &event["type"]), (uid, &serde_json::json!("Warning")));
}
