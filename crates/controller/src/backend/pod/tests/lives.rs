//! From a launch to the end of a Pod.

use testkit::kubernetes::{Fault, On, Plan, Verb};

use super::*;
use crate::backend::Failure;
use domain::reason::Reason;

/// WRK-1, WRK-2, WRK-9, NEW-3, NEW-53, NEW-54, NEW-55, NEW-63, POD-3, POD-7, POD-8: what every backend does.
#[tokio::test]
async fn the_contract_of_a_backend() {
    let world = World::start().await;
    contract::all(contract::Stage {
        kind: BackendKind::Pod,
        controller: || world.controller(),
        end: async |name: &str| world.cluster.kubelet().exit(name, 0),
    })
    .await;
}

/// WRK-1, WRK-2, POD-2, NEW-72: one Pod with its Secret, its identity, and ready when it runs; asked again, the same one.
#[tokio::test]
async fn an_executor_is_made_once() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    ready(&backend, 7).await;
    assert_eq!(world.cluster.names(Resource::Pods), [name(7)]);
    assert!(world.is_bound(&name(7)));
    let pod = world.cluster.pod(&name(7));
    let secret = world.cluster.object(Resource::Secrets, &name(7)).unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
    let observed = backend.list().await.unwrap();
    assert_eq!(observed[0].record.as_deref(), Ok(&record(7)));
    assert_eq!(observed[0].state, ExecutorState::Running);
    assert_eq!(world.cluster.count(Verb::Create, Resource::Pods), 1);
}

/// WRK-9: whatever answer is lost, the next call finds what was made.
#[tokio::test]
async fn lost_answers_make_nothing_twice() {
    let world = World::start().await;
    let backend = world.controller();
    world.cluster.fail(On::call(Verb::Create, Resource::Pods), Fault::lost_answer());
    world.cluster.fail(On::call(Verb::Create, Resource::Secrets), Fault::lost_answer());
    world.cluster.fail(On::call(Verb::Patch, Resource::Pods), Fault::lost_answer());
    until("ready", async || backend.ensure(launch(7)).await == Ok(Ensured::Ready)).await;
    assert_eq!(world.cluster.names(Resource::Pods).len(), 1);
    until("marked", async || backend.mark(&name(7), claim()).await == Ok(Marked::Written)).await;
    assert!(backend.list().await.unwrap()[0].record.as_ref().unwrap().claim.is_some());
    world.cluster.fail(On::call(Verb::Delete, Resource::Pods), Fault::lost_answer());
    until("deleted", async || backend.delete(&name(7)).await == Ok(())).await;
    assert_eq!(backend.delete(&name(7)).await, Ok(()));
    assert_eq!(backend.mark(&name(7), Mark::Terminal).await, Ok(Marked::Gone));
    assert!(world.cluster.names(Resource::Pods).is_empty());
}

/// NEW-53, NEW-72: the claim is on the Pod before the call is answered, and the Secret goes after it.
#[tokio::test]
async fn the_secret_goes_after_the_claim() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    assert!(world.has(Resource::Secrets, &name(7)));
    assert_eq!(backend.mark(&name(7), claim()).await, Ok(Marked::Written));
    assert_eq!(world.cluster.pod(&name(7))["metadata"]["labels"]["ci.ddupan.top/claimed"], "true");
    until("no Secret", async || !world.has(Resource::Secrets, &name(7))).await;
    assert!(world.has(Resource::Pods, &name(7)));
}

/// NEW-72: a container that runs already, by whatever kubelet or admission, gets its Secret all the same.
#[tokio::test]
async fn a_secret_comes_after_the_start() {
    let world = World::start().await;
    let backend = world.controller();
    // The double's own kubelet waits for the Secret, as real ones do.
    world.cluster.kubelet().next(Plan::Ignored);
    world.cluster.fail(On::call(Verb::Create, Resource::Secrets), Fault::internal());
    backend.ensure(launch(7)).await.unwrap_err();
    let running = json!([{"name": "executor", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
        "state": {"running": {}}}]);
    world.cluster.edit(Resource::Pods, &name(7), |pod| {
        pod["spec"]["nodeName"] = "node-1".into();
        pod["status"] = json!({"phase": "Running", "containerStatuses": running});
    });
    until("it is seen", async || state(&backend, &name(7)).await == Some(ExecutorState::Running)).await;
    ready(&backend, 7).await;
    assert!(world.has(Resource::Secrets, &name(7)));
}

/// WRK-1, WRK-9: a Pod costs no look before it is made; one that is there is found by the create.
#[tokio::test]
async fn a_create_finds_what_is_there() {
    let world = World::start().await;
    let first = world.controller();
    ready(&first, 7).await;
    assert_eq!(world.cluster.count(Verb::Get, Resource::Pods), 0);
    let second = world.controller();
    ready(&second, 7).await;
    assert_eq!(world.cluster.names(Resource::Pods), [name(7)]);
}

/// POD-7, NEW-126: the entry goes first, then the Pod, by its UID; its Secret goes with it.
#[tokio::test]
async fn an_end_takes_everything_with_it() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    let uid = world.cluster.pod(&name(7))["metadata"]["uid"].clone();
    assert_eq!(backend.delete(&name(7)).await, Ok(()));
    assert!(!world.is_bound(&name(7)));
    assert_eq!(world.issuer.released.lock().unwrap().len(), 1);
    let deleted = world.cluster.calls_of(Verb::Delete, Resource::Pods);
    assert_eq!(deleted[0].body["preconditions"]["uid"], uid);
    until("no Secret", async || !world.has(Resource::Secrets, &name(7))).await;
    assert!(backend.list().await.unwrap().is_empty());
}

/// NEW-64, NEW-65, F62, F71, T7: a Pod that somebody deletes is told within a nudge, with its reason, and its entry goes.
#[tokio::test]
async fn a_pod_that_is_taken_away_is_told() {
    let world = World::start().await;
    let backend = world.controller();
    ready(&backend, 7).await;
    backend.mark(&name(7), claim()).await.unwrap();
    world.cluster.force_delete(&name(7));
    let gone = state_after_nudge(&backend, &name(7), |state| matches!(state, ExecutorState::Failed(_))).await;
    assert!(matches!(gone, ExecutorState::Failed(Failure { reason: Reason::ExecutorDeleted, .. })), "{gone:?}");
    assert_eq!(state(&backend, &name(7)).await, None, "told once");
    until("its identity is taken away", async || !world.is_bound(&name(7))).await;
}

/// NEW-66, F60, T7: what the kubelet says of a Pod is its executor's reason.
#[tokio::test]
async fn reasons_of_real_statuses() {
    let world = World::start().await;
    let backend = world.controller();
    world.cluster.kubelet().next(Plan::InvalidImageName);
    assert_eq!(backend.ensure(launch(1)).await, Ok(Ensured::NotYet));
    let state = state_after_nudge(&backend, &name(1), |state| matches!(state, ExecutorState::Failed(_))).await;
    assert!(matches!(state, ExecutorState::Failed(Failure { reason: Reason::ImageInvalid, .. })));
    ready(&backend, 2).await;
    world.cluster.kubelet().out_of_memory(&name(2), 137);
    let state = state_after_nudge(&backend, &name(2), |state| matches!(state, ExecutorState::Failed(_))).await;
    assert!(matches!(state, ExecutorState::Failed(Failure { reason: Reason::ExecutorOom, .. })), "{state:?}");
}

/// NEW-148, NEW-61, T5: whoever made a Pod was ended before its Secret was made. The next process knows at once that it never
/// starts, and not after a patience that begins anew with every process; a Pod with its Secret goes on.
#[tokio::test]
async fn a_pod_that_was_left_without_its_secret() {
    let world = World::start().await;
    let first = world.controller();
    world.cluster.kubelet().usually(Plan::Creating);
    assert_eq!(first.ensure(launch(7)).await, Ok(Ensured::NotYet));
    world.cluster.fail(On::call(Verb::Create, Resource::Secrets), Fault::internal());
    first.ensure(launch(8)).await.unwrap_err();
    drop(first);
    let second = world.controller();
    let lost = |state: Option<ExecutorState>| match state {
        Some(ExecutorState::Failed(failure)) => failure.reason == Reason::BackendUnavailable,
        _ => false,
    };
    until("it is given up", async || lost(state(&second, &name(8)).await)).await;
    until("both were looked for", async || world.cluster.count(Verb::Get, Resource::Secrets) >= 2).await;
    let other = state(&second, &name(7)).await;
    assert!(matches!(other, Some(ExecutorState::Pending | ExecutorState::HeldUp(_))), "{other:?}");
}

/// NEW-54, POD-13: a new process finds what an earlier one made, and gives it what it has not got yet.
#[tokio::test]
async fn a_new_process_takes_over() {
    let world = World::start().await;
    let first = world.controller();
    ready(&first, 7).await;
    drop(first);
    world.issuer.bound.lock().unwrap().clear();
    let second = world.controller();
    assert_eq!(second.list().await.unwrap().len(), 1);
    until("bound again", async || world.is_bound(&name(7))).await;
}
