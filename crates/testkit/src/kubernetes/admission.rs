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

/// A Pod needs its ServiceAccount and a place in every quota.
pub(crate) fn create(store: &Store, resource: Resource, namespace: &str, object: &Value) -> Result<(), Refusal> {
    if resource != Resource::Pods {
        return Ok(());
    }
    let name = meta::name(object);
    let account = text(object, "/spec/serviceAccountName");
    if store.find(Resource::ServiceAccounts, namespace, account).is_err() {
        let why =
            format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
        return Err(Refusal::forbidden(resource, name, &why));
    }
    store.all(Resource::ResourceQuotas, namespace).try_for_each(|quota| room(store, namespace, name, quota))
}

/// Ended Pods do not count.
fn room(store: &Store, namespace: &str, name: &str, quota: &Value) -> Result<(), Refusal> {
    let hard = |key: &str| {
        let value = &quota["spec"]["hard"][key];
        value.as_u64().or_else(|| value.as_str()?.parse().ok())
    };
    let Some((key, limit)) = ["pods", "count/pods"].into_iter().find_map(|key| Some((key, hard(key)?))) else {
        return Ok(());
    };
    let ended = |pod: &Value| ["Failed", "Succeeded"].contains(&text(pod, "/status/phase"));
    let counted = |pod: &Value| key == "count/pods" || !ended(pod);
    let used = store.all(Resource::Pods, namespace).filter(|pod| counted(pod)).count();
    if used as u64 >= limit {
        let quota = meta::name(quota);
        let why = format!("exceeded quota: {quota}, requested: {key}=1, used: {key}={used}, limited: {key}={limit}");
        return Err(Refusal::forbidden(Resource::Pods, name, &why));
    }
    Ok(())
}
