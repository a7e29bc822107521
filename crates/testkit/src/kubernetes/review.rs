//! What is no resource of the store: versions, discovery, access reviews; and other shapes of what is.

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::meta::{self, strip, text};
use super::resource::Resource;
use super::route::Route;
use super::shared::Shared;
use super::wire::{Body, json as answer_json, whole};

/// Answers what is no call to a resource; `None` for what nobody knows.
pub(crate) fn answer(shared: &Shared, parts: &Parts, body: &Bytes) -> Option<Response<Body>> {
    let path = parts.uri.path().trim_matches('/');
    let words: Vec<_> = path.split('/').collect();
    let value = match words.as_slice() {
        ["version"] => json!({"major": "1", "minor": "34", "gitVersion": "v1.34.4", "platform": "linux/amd64"}),
        ["livez" | "readyz" | "healthz"] => return Some(answer_json(StatusCode::OK, whole("ok"))),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => groups(),
        ["api", "v1"] => resources("", "v1"),
        ["apis", group, version] => resources(group, version),
        ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => {
            let review = access(shared, serde_json::from_slice(body).ok()?);
            return Some(answer_json(StatusCode::CREATED, whole(review.to_string())));
        }
        _ => return None,
    };
    Some(answer_json(StatusCode::OK, whole(value.to_string())))
}

/// Says whether a right was taken away.
fn access(shared: &Shared, mut review: Value) -> Value {
    let wanted = &review["spec"]["resourceAttributes"];
    let group = text(wanted, "/group");
    let known =
        Resource::ALL.into_iter().find(|each| each.plural() == text(wanted, "/resource") && each.group() == group);
    let verb = super::Verb::ALL.into_iter().find(|verb| verb.name() == text(wanted, "/verb"));
    let allowed = match (known, verb) {
        (Some(resource), Some(verb)) => shared.look(|world| world.faults.may(verb, resource)),
        _ => true,
    };
    review["status"] = json!({"allowed": allowed});
    review
}

fn groups() -> Value {
    let mut groups: Vec<_> = Resource::ALL.into_iter().filter(|each| !each.group().is_empty()).collect();
    groups.dedup_by_key(|each| each.group());
    let entry = |resource: Resource| {
        let version = resource.api_version();
        let short = version.rsplit('/').next().unwrap_or_default();
        let version = json!({"groupVersion": version, "version": short});
        json!({"name": resource.group(), "versions": [version], "preferredVersion": version})
    };
    let groups: Vec<_> = groups.into_iter().map(entry).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(group: &str, version: &str) -> Value {
    let ours = Resource::ALL.into_iter().filter(|each| Resource::find(group, version, each.plural()) == Some(*each));
    let verbs = super::Verb::ALL.map(super::Verb::name);
    let entry = |each: Resource| {
        json!({"name": each.plural(), "singularName": each.kind().to_lowercase(), "kind": each.kind(),
            "namespaced": each.namespaced(), "verbs": verbs})
    };
    let list: Vec<_> = ours.map(entry).collect();
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": list})
}

/// Only the metadata, where that was asked for.
pub(crate) fn shaped(_route: &Route, accept: &str, object: Value) -> Value {
    let partial = |object: &Value| json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
    if accept.contains("as=PartialObjectMetadataList") {
        let items: Vec<_> = object["items"].as_array().into_iter().flatten().map(partial).collect();
        json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"], "items": items})
    } else if accept.contains("as=PartialObjectMetadata") && meta::text(&object, "/kind") != "Status" {
        partial(&object)
    } else {
        object
    }
}

/// Pairs of fields that `v1` and `events.k8s.io/v1` name differently.
const EVENT_WORDS: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

/// Shows an event, or a list of them, as `events.k8s.io/v1` does.
pub(crate) fn to_newer(object: &mut Value) {
    if let Some(Value::Array(items)) = object.get_mut("items") {
        items.iter_mut().for_each(to_newer);
    } else if text(object, "/kind") == "Event" {
        for (core, newer) in EVENT_WORDS {
            rename(object, core, newer);
        }
        rename(object, "count", "deprecatedCount");
    }
    if !["Status", ""].contains(&text(object, "/kind")) {
        object["apiVersion"] = "events.k8s.io/v1".into();
    }
}

/// Takes an event that was written in the words of `events.k8s.io/v1`.
pub(crate) fn from_newer(object: &mut Value) {
    for (core, newer) in EVENT_WORDS {
        rename(object, newer, core);
    }
    rename(object, "deprecatedCount", "count");
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = strip(object, from) {
        object[to] = value;
    }
}
