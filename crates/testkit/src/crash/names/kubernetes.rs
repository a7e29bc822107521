//! What the calls to Kubernetes are called: by what is done to which kind of object, and whose executor it is.

use std::sync::Arc;

use bytes::Bytes;
use http::request;
use serde_json::Value;

use super::super::stage::Cast;
use super::super::wire::Name;
use super::of_executor;
use crate::kubernetes::{Resource, Verb, named};

/// What is repeated as long as a controller lives; the first times stand for all.
const BY_THE_CLOCK: &str = ", by the clock";

/// A UID, and the dash before it.
const UID: usize = 37;

/// Names the calls of a scene.
pub(in crate::crash) fn of_calls(cast: Arc<Cast>) -> Name {
    Arc::new(move |head: &request::Parts, body: &Bytes| {
        let path = head.uri.path();
        let Some((verb, resource, name)) = named(&head.method, path, head.uri.query().unwrap_or_default()) else {
            return format!("Kubernetes {} {path}{BY_THE_CLOCK}", head.method);
        };
        let done = format!("Kubernetes {} {}", verb.name(), resource.kind());
        match (verb, resource) {
            (Verb::List | Verb::Watch, _) | (_, Resource::Leases) => format!("{done}{BY_THE_CLOCK}"),
            (_, Resource::Events) => format!("{done}{}", about(&cast, body)),
            (Verb::Create, _) => format!("{done}{}", whose(&cast, resource, text(&object(body), "/metadata/name"))),
            _ => format!("{done}{}", whose(&cast, resource, &name)),
        }
    })
}

/// The executor whose object has this name.
fn whose(cast: &Cast, resource: Resource, name: &str) -> String {
    let without_uid = || name.len().checked_sub(UID).and_then(|length| name.get(..length));
    let name = match resource {
        // It is named after a Pod and its UID.
        Resource::ClusterStaticEntries => without_uid().unwrap_or(name),
        _ => name,
    };
    of_executor(cast, name).map_or_else(String::new, |executor| format!(" of {executor}"))
}

/// Of whose executor an event tells, and what.
fn about(cast: &Cast, body: &Bytes) -> String {
    let event = object(body);
    let pod = ["/involvedObject/name", "/regarding/name"].map(|pointer| text(&event, pointer)).concat();
    format!("{}, {}", whose(cast, Resource::Pods, &pod), text(&event, "/reason"))
}

fn object(body: &Bytes) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
