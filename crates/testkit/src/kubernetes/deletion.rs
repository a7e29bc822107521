//! How an object goes: preconditions, grace, finalizers, and what it owned.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::meta::{self, has_finalizers, is_going, text};
use super::refusal::Refusal;
use super::resource::Resource;
use super::store::{Key, Store, grace};

/// What the API calls DeleteOptions. Nobody here waits for dependents: the propagation policy is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Options {
    pub(crate) grace_period_seconds: Option<u64>,
    preconditions: Preconditions,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone)]
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Arc<Value>),
    /// It is going: a finalizer or a grace period holds it.
    Going(Arc<Value>),
}

/// Deletes an object, or begins to.
pub(crate) fn delete(
    store: &mut Store,
    (resource, namespace, name): (Resource, &str, &str),
    options: &Options,
) -> Result<Deleted, Refusal> {
    let object = store.find(resource, namespace, name)?.clone();
    check(resource, name, &object, options)?;
    let key = (resource, namespace.to_owned(), name.to_owned());
    let seconds = grace_of(resource, &object, options);
    let had = grace(&object);
    if is_going(&object) && had.is_some_and(|had| had <= seconds) {
        return Ok(Deleted::Going(object));
    }
    if seconds == 0 && resource != Resource::Pods && !has_finalizers(&object) {
        return Ok(Deleted::Gone(store.remove(&key, Value::clone(&object))));
    }
    let after = store.edit(&key, |object| mark(object, resource, seconds));
    Ok(match store.get(&key) {
        Some(object) => Deleted::Going(object.clone()),
        None => Deleted::Gone(after.unwrap_or(object)),
    })
}

fn check(resource: Resource, name: &str, object: &Value, options: &Options) -> Result<(), Refusal> {
    let Preconditions { uid, resource_version } = &options.preconditions;
    if let Some(uid) = uid.as_deref().filter(|uid| *uid != meta::uid(object)) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            meta::uid(object)
        );
        return Err(Refusal::precondition(resource, name, &why));
    }
    let now = meta::version(object).unwrap_or_default();
    if let Some(version) = resource_version.as_deref().filter(|version| *version != now) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
             ({now}). The object might have been modified"
        );
        return Err(Refusal::precondition(resource, name, &why));
    }
    Ok(())
}

/// Only Pods that run somewhere are given time.
fn grace_of(resource: Resource, pod: &Value, options: &Options) -> u64 {
    let ended = ["Failed", "Succeeded"].contains(&text(pod, "/status/phase"));
    if resource != Resource::Pods || ended || text(pod, "/spec/nodeName").is_empty() {
        return 0;
    }
    let own = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64);
    options.grace_period_seconds.or(own).unwrap_or(30)
}

fn mark(object: &mut Value, resource: Resource, seconds: u64) {
    let first = !is_going(object);
    let by = SignedDuration::from_secs(seconds.try_into().unwrap_or_default());
    let at = Timestamp::now().saturating_add(by).unwrap_or(Timestamp::MAX);
    let metadata = meta::table(object, "metadata");
    metadata["deletionTimestamp"] = meta::time(at).into();
    metadata["deletionGracePeriodSeconds"] = seconds.into();
    if resource.has_generation() && first {
        let generation = metadata["generation"].as_u64().unwrap_or_default();
        metadata["generation"] = (generation + 1).into();
    }
}

/// Deletes those of `dependents` that no owner of theirs is left for. An object without a namespace that names an owner
/// which has one is never collected: the real collector cannot resolve such an owner and leaves the object alone.
pub(crate) fn collect(store: &mut Store, dependents: &[Key]) {
    for key in dependents {
        let Some(object) = store.get(key).cloned() else { continue };
        let holds = |(kind, uid): (&str, &str)| {
            let unresolved = !key.0.namespaced() && Resource::of_kind(kind).is_some_and(Resource::namespaced);
            unresolved || store.place(uid).is_some_and(|owner| owner.1 == key.1 || owner.1.is_empty())
        };
        if meta::owners(&object).next().is_none() || meta::owners(&object).any(holds) {
            continue;
        }
        if has_finalizers(&object) && is_going(&object) {
            continue;
        }
        let place = (key.0, key.1.as_str(), key.2.as_str());
        // It was there a moment ago and carries no precondition.
        let _ = delete(store, place, &Options::default());
    }
}
