//! What the server refuses though the object is valid: no such namespace, no such account, no room left.

use serde_json::Value;

use super::meta::{self, text};
use super::refusal::Refusal;
use super::resource::Resource;
use super::store::Store;

/// The namespace must be there, and must not be going.
pub(crate) fn before_create(store: &Store, resource: Resource, namespace: &str, name: &str) -> Result<(), Refusal> {
    if !resource.namespaced() {
        return Ok(());
    }
    let home = store.find(Resource::Namespaces, "", namespace)?;
    if meta::is_going(home) {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(Refusal::forbidden(resource, name, &why));
    }
    Ok(())
}

/// A Pod needs its ServiceAccount, and both Pods and Secrets need a place in every quota.
pub(crate) fn create(store: &Store, resource: Resource, namespace: &str, object: &Value) -> Result<(), Refusal> {
    let keys = match resource {
        Resource::Pods => ["pods", "count/pods"],
        Resource::Secrets => ["secrets", "count/secrets"],
        _ => return Ok(()),
    };
    let name = meta::name(object);
    if resource == Resource::Pods {
        has_account(store, namespace, name, object)?;
    }
    let quotas = store.all(Resource::ResourceQuotas, namespace);
    quotas
        .flat_map(|quota| keys.map(|key| (quota, key)))
        .try_for_each(|(quota, key)| room(store, (resource, namespace, name), quota, key))
}

fn has_account(store: &Store, namespace: &str, name: &str, pod: &Value) -> Result<(), Refusal> {
    let account = text(pod, "/spec/serviceAccountName");
    if store.find(Resource::ServiceAccounts, namespace, account).is_err() {
        let why =
            format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
        return Err(Refusal::forbidden(Resource::Pods, name, &why));
    }
    Ok(())
}

/// Ended Pods do not count, except where objects are counted as such.
fn room(
    store: &Store,
    (resource, namespace, name): (Resource, &str, &str),
    quota: &Value,
    key: &str,
) -> Result<(), Refusal> {
    let hard = &quota["spec"]["hard"][key];
    let Some(limit) = hard.as_u64().or_else(|| hard.as_str()?.parse().ok()) else { return Ok(()) };
    let ended = |object: &Value| ["Failed", "Succeeded"].contains(&text(object, "/status/phase"));
    let used = store.all(resource, namespace).filter(|object| key != "pods" || !ended(object)).count();
    if used as u64 >= limit {
        let quota = meta::name(quota);
        let why = format!("exceeded quota: {quota}, requested: {key}=1, used: {key}={used}, limited: {key}={limit}");
        return Err(Refusal::forbidden(resource, name, &why));
    }
    Ok(())
}
