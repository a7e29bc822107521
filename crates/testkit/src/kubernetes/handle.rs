//! What each verb does to the store.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::calls::Verb;
use super::deletion::{self, Deleted, Options};
use super::meta;
use super::patch::Form;
use super::refusal::{Cause, Refusal, details};
use super::resource::Resource;
use super::review::{from_newer, to_newer};
use super::route::Route;
use super::selector::Selector;
use super::shared::{Shared, World};
use super::store::Part;

/// A call that passed the door.
pub(crate) struct Request {
    pub(crate) route: Route,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

/// A good answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) object: Value,
}

impl Answer {
    fn of(status: StatusCode, object: &Arc<Value>) -> Self {
        Self { status, object: Value::clone(object) }
    }
}

/// Carries out a call.
pub(crate) fn handle(shared: &Shared, request: &Request) -> Result<Answer, Refusal> {
    let route = &request.route;
    let place = (route.resource, route.namespace.as_str(), route.name.as_str());
    let part = if route.subresource == "status" { Part::Status } else { Part::Main };
    let answer = match route.verb {
        Verb::Get => shared.look(|world| {
            let object = world.store.find(place.0, place.1, place.2)?;
            Ok(Answer::of(StatusCode::OK, object))
        }),
        Verb::List => shared.look(|world| list(world, route)),
        Verb::Watch => Err(Refusal::bad_verb()),
        Verb::Create => create(shared, request),
        Verb::Update => {
            let object = object(request)?;
            let stored = shared.change(|world| world.store.replace(place, part, object))?;
            Ok(Answer::of(StatusCode::OK, &stored))
        }
        Verb::Patch => patch(shared, request, part),
        Verb::Delete => {
            let options = options(request)?;
            let deleted = shared.change(|world| deletion::delete(&mut world.store, place, &options))?;
            Ok(deleted_answer(place.0, place.2, &deleted))
        }
        Verb::DeleteCollection => delete_all(shared, request),
    };
    let mut answer = answer?;
    if route.newer_events {
        to_newer(&mut answer.object);
    }
    Ok(answer)
}

fn list(world: &World, route: &Route) -> Result<Answer, Refusal> {
    let selector = Selector::parse(route.asked("labelSelector"), route.asked("fieldSelector"))?;
    let store = &world.store;
    // A page goes on after this object, and shows everything as it is now.
    let (version, after) = match route.asked("continue") {
        "" => (store.version(), None),
        token => {
            let (version, after) =
                token.split_once(':').ok_or_else(|| Refusal::bad_request("continue key is not valid"))?;
            let version = version.parse().map_err(|_| Refusal::bad_request("continue key is not valid"))?;
            if version < store.oldest() {
                return Err(Refusal::expired(version, store.oldest()));
            }
            (version, Some(after))
        }
    };
    let place = |object: &Value| format!("{}/{}", meta::namespace(object), meta::name(object));
    let fits = |object: &&Arc<Value>| selector.fits(object) && after.is_none_or(|after| place(object).as_str() > after);
    let mut items: Vec<&Arc<Value>> = store.all(route.resource, &route.namespace).filter(fits).collect();
    let mut metadata = json!({"resourceVersion": version.to_string()});
    let limit = route.asked("limit").parse().unwrap_or(0);
    if limit > 0 && items.len() > limit {
        metadata["remainingItemCount"] = (items.len() - limit).into();
        items.truncate(limit);
        metadata["continue"] = items.last().map(|last| format!("{version}:{}", place(last))).into();
    }
    let items: Vec<Value> = items.into_iter().map(|object| Value::clone(object)).collect();
    let object = json!({
        "kind": format!("{}List", route.resource.kind()), "apiVersion": route.resource.api_version(),
        "metadata": metadata, "items": items,
    });
    Ok(Answer { status: StatusCode::OK, object })
}

fn create(shared: &Shared, request: &Request) -> Result<Answer, Refusal> {
    let Route { resource, namespace, .. } = &request.route;
    let object = object(request)?;
    let sent = meta::namespace(&object);
    if !sent.is_empty() && sent != namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let stored = shared.change(|world| world.store.create(*resource, namespace, object))?;
    Ok(Answer::of(StatusCode::CREATED, &stored))
}

fn patch(shared: &Shared, request: &Request, part: Part) -> Result<Answer, Refusal> {
    let Route { resource, namespace, name, .. } = &request.route;
    let form = Form::of(&request.content_type)?;
    if form == Form::Strategic && *resource == Resource::ClusterStaticEntries {
        return Err(Refusal::bad_media_type(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        ));
    }
    let patch: Value = serde_json::from_slice(&request.body)
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    shared.change(|world| {
        let store = &mut world.store;
        let Ok(old) = store.find(*resource, namespace, name).cloned() else {
            if form != Form::Apply {
                return Err(Refusal::not_found(*resource, name));
            }
            let mut object = patch;
            meta::table(&mut object, "metadata")["name"] = name.as_str().into();
            let stored = store.create(*resource, namespace, object)?;
            return Ok(Answer::of(StatusCode::CREATED, &stored));
        };
        let mut new = Value::clone(&old);
        form.apply(&mut new, &patch)?;
        if meta::uid(&new) != meta::uid(&old) {
            let cause = Cause::invalid("metadata.uid", meta::uid(&new), "field is immutable");
            return Err(Refusal::invalid(*resource, name, &[cause]));
        }
        let stored = store.rewrite((*resource, namespace, name), part, &old, new)?;
        Ok(Answer::of(StatusCode::OK, &stored))
    })
}

fn delete_all(shared: &Shared, request: &Request) -> Result<Answer, Refusal> {
    let options = options(request)?;
    let mut answer = shared.change(|world| {
        let answer = list(world, &request.route)?;
        for object in answer.object["items"].as_array().into_iter().flatten() {
            let place = (request.route.resource, meta::namespace(object), meta::name(object));
            deletion::delete(&mut world.store, place, &options)?;
        }
        Ok(answer)
    })?;
    answer.status = StatusCode::OK;
    Ok(answer)
}

fn deleted_answer(resource: Resource, name: &str, deleted: &Deleted) -> Answer {
    match deleted {
        Deleted::Going(object) => Answer::of(StatusCode::OK, object),
        Deleted::Gone(object) if resource.returns_deleted() => Answer::of(StatusCode::OK, object),
        Deleted::Gone(object) => {
            let mut details = details(resource.group(), resource.plural(), name);
            details["uid"] = meta::uid(object).into();
            let object = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            });
            Answer { status: StatusCode::OK, object }
        }
    }
}

/// The object in the body.
fn object(request: &Request) -> Result<Value, Refusal> {
    if request.content_type.contains("protobuf") {
        return Err(Refusal::bad_media_type("this double understands JSON only"));
    }
    let mut object: Value = serde_json::from_slice(&request.body).map_err(|error| {
        Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error}",
            request.route.resource.kind()
        ))
    })?;
    let resource = request.route.resource;
    if !object.is_object() || (resource == Resource::Pods && !has_numbers(&object)) {
        let kind = resource.kind();
        return Err(Refusal::bad_request(format!("{kind} in version \"v1\" cannot be handled as a {kind}")));
    }
    let kind = meta::text(&object, "/kind");
    if !kind.is_empty() && kind != request.route.resource.kind() {
        return Err(Refusal::bad_request(format!("the object provided is unrecognized: {kind}")));
    }
    if request.route.newer_events {
        from_newer(&mut object);
    }
    Ok(object)
}

/// Whether the numbers of a Pod are numbers; other types are not looked at.
fn has_numbers(pod: &Value) -> bool {
    let fields = ["activeDeadlineSeconds", "terminationGracePeriodSeconds"];
    fields.into_iter().all(|field| pod["spec"].get(field).is_none_or(|value| value.is_null() || value.is_i64()))
}

/// DeleteOptions of the body, and of the query.
fn options(request: &Request) -> Result<Options, Refusal> {
    let mut options = Options::default();
    if !request.body.is_empty() {
        options = serde_json::from_slice(&request.body)
            .map_err(|error| Refusal::bad_request(format!("error decoding DeleteOptions: {error}")))?;
    }
    if let Ok(seconds) = request.route.asked("gracePeriodSeconds").parse() {
        options.grace_period_seconds = Some(seconds);
    }
    Ok(options)
}
