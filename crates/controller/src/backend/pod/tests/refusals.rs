//! What the API server refuses when a Pod or its Secret is to be made, by what it says.

use domain::reason::Reason;
use serde_json::json;
use testkit::kubernetes::{Fault, On, Verb};

use super::*;

/// NEW-66, NEW-2, WRK-9, F62, T7: a quota of Secrets is waited for like one of Pods, with its numbers. The Pod that was made
/// before is found by whoever asks again, goes when it is discarded, and the next attempt has one Pod.
#[tokio::test]
async fn a_quota_of_secrets_is_waited_for() {
    let world = World::start().await;
    let backend = world.controller();
    for key in ["secrets", "count/secrets"] {
        world.cluster.set_quota_of("gitea-actions", key, 0);
        let waits = backend.ensure(launch(7)).await;
        let numbers = format!("exceeded quota: executors, requested: {key}=1, used: {key}=0, limited: {key}=0");
        assert!(matches!(&waits, Err(BackendError::QuotaUsedUp { cause, .. }) if *cause == numbers), "{waits:?}");
    }
    assert_eq!(world.cluster.names(Resource::Pods), [name(7)]);
    assert_eq!(world.cluster.count(Verb::Create, Resource::Pods), 1);
    // What a launch without success leaves is removed before another begins.
    until("it is gone", async || backend.delete(&name(7)).await == Ok(())).await;
    assert!(world.cluster.names(Resource::Pods).is_empty());
    world.cluster.set_quota_of("gitea-actions", "secrets", 1);
    let next = ExecutorRecord { epoch: record(7).epoch.next(), ..record(7) };
    until("ready", async || backend.ensure(launch_of(next.clone())).await == Ok(Ensured::Ready)).await;
    assert_eq!(world.cluster.names(Resource::Pods), ["gitea-task-7-here-e2"]);
    assert_eq!(world.cluster.names(Resource::Secrets), ["gitea-task-7-here-e2"]);
}

/// NEW-66, F62, T7: an admission that does not want the Secret never will, and its words are told.
#[tokio::test]
async fn a_secret_that_is_denied_ends_the_task() {
    let world = World::start().await;
    let backend = world.controller();
    let create = || On::call(Verb::Create, Resource::Secrets);
    world.cluster.fail(create(), Fault::denied_by("policy.test", "no Secrets on Mondays"));
    let denied = backend.ensure(launch(7)).await;
    assert!(
        matches!(&denied, Err(BackendError::Permanent { reason: Reason::ConfigError, cause, .. })
            if cause.starts_with(&format!("Secret {} is refused: ", name(7))) && cause.contains("Mondays")),
        "{denied:?}"
    );
    world.cluster.forbid(Verb::Create, Resource::Secrets);
    let rights = backend.ensure(launch(7)).await;
    assert!(
        matches!(&rights, Err(BackendError::Transient { cause, .. })
            if cause.starts_with(&format!("create Secret {}: ", name(7))) && cause.contains("cannot create")),
        "{rights:?}"
    );
    world.cluster.allow(Verb::Create, Resource::Secrets);
    ready(&backend, 7).await;
}

/// NEW-66, NEW-71, F62, T7: an admission that cannot judge yet, as after a start of the API server, is asked again.
#[tokio::test]
async fn an_admission_that_is_not_ready_is_asked_again() {
    let world = World::start().await;
    let backend = world.controller();
    for words in ["not yet ready to handle request", "error looking up service account n/s: Get \"x\": EOF"] {
        world.cluster.fail(On::call(Verb::Create, Resource::Pods), Fault::forbidden(words));
        let later = backend.ensure(launch(7)).await;
        assert!(matches!(&later, Err(BackendError::Transient { cause, .. }) if cause.contains(words)), "{later:?}");
    }
    ready(&backend, 7).await;
}

/// NEW-66, F62, T7: without the ServiceAccount of the settings no Pod can ever be made, and it is named.
#[tokio::test]
async fn a_missing_account_ends_the_task() {
    let world = World::start().await;
    let backend = world.controller_with(Recipe { service_account: "nobody".to_owned(), ..recipe() });
    let refused = backend.ensure(launch(7)).await;
    assert!(
        matches!(&refused, Err(BackendError::Permanent { reason: Reason::ConfigError, cause, .. })
            if cause.contains("serviceaccount \"nobody\" not found")),
        "{refused:?}"
    );
    assert!(world.cluster.names(Resource::Pods).is_empty());
}

/// NEW-66, NEW-71, F62, T7: a webhook that must be asked and does not answer is waited for; one that denies, by whichever code,
/// ends the task in its own words. The same of a Pod and of its Secret.
#[tokio::test]
async fn a_webhook_is_away_or_denies() {
    let world = World::start().await;
    let backend = world.controller();
    let bare = r#"admission webhook "bare.test" denied the request without explanation"#;
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 400, "message": bare});
    for resource in [Resource::Pods, Resource::Secrets] {
        let create = || On::call(Verb::Create, resource);
        world.cluster.fail(create(), Fault::webhook_away("policy.test"));
        let away = backend.ensure(launch(7)).await;
        let words = "Internal error occurred: failed calling webhook \"policy.test\"";
        assert!(matches!(&away, Err(BackendError::Transient { cause, .. }) if cause.contains(words)), "{away:?}");
        for (fault, words) in [
            (Fault::denied_by("policy.test", "not on Mondays"), "\"policy.test\" denied the request: not on Mondays"),
            (Fault::page(400, status.to_string()), bare),
        ] {
            world.cluster.fail(create(), fault);
            let denied = backend.ensure(launch(7)).await;
            let permanent = matches!(&denied, Err(BackendError::Permanent { reason: Reason::ConfigError, cause, .. })
                if cause.contains("is refused: ") && cause.contains(words));
            assert!(permanent, "{resource:?} {words}: {denied:?}");
        }
    }
    ready(&backend, 7).await;
}
