//! Events of ours on objects of the cluster (NEW-143): for whoever looks at the object. Best effort: one that cannot be
//! written is not missed.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;

use super::{Refusal, RefusalKind};

const COMPONENT: &str = "gitea-dynamic-runner";
/// Longer messages are cut.
const LONGEST: usize = 1000;

/// What is said.
pub struct Said<'a> {
    /// In one word.
    pub reason: &'a str,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// In words.
    pub message: &'a str,
}

/// An object of this namespace.
fn object(api: &str, kind: &str, namespace: &str, name: &str, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some(api.to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}

/// A Lease of this namespace.
#[must_use]
pub fn lease(namespace: &str, name: &str, uid: Option<String>) -> ObjectReference {
    object("coordination.k8s.io/v1", "Lease", namespace, name, uid)
}

/// A Pod of this namespace.
#[must_use]
pub fn pod(namespace: &str, name: &str, uid: String) -> ObjectReference {
    object("v1", "Pod", namespace, name, Some(uid))
}

/// An event on the object `about`; the API takes none of another namespace than the object's.
#[must_use]
pub fn event(about: ObjectReference, said: &Said<'_>, now: Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            // Names of events are made of the object's and the moment's, as client-go does.
            name: Some(format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond())),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: about,
        reason: Some(said.reason.to_owned()),
        message: Some(said.message.chars().take(LONGEST).collect()),
        type_: Some(said.kind.to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        ..Event::default()
    }
}

/// A call about events went wrong. No job waits for it, so nobody but the log would ever tell of a missing right (T77).
pub fn went_wrong(refusal: &Refusal, without: &'static str) {
    if refusal.kind == RefusalKind::Forbidden {
        tracing::warn!(component = "lifecycle", error = %refusal, "{without}");
    } else {
        tracing::debug!(component = "lifecycle", error = %refusal, "{without}");
    }
}
