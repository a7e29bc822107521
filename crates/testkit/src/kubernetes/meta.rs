//! Words for what every object carries in its `metadata`.

use jiff::Timestamp;
use serde_json::Value;

/// The text at a pointer; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The resource version it was read with; `None` where it carries none.
pub(crate) fn version(object: &Value) -> Option<&str> {
    Some(text(object, "/metadata/resourceVersion")).filter(|version| !version.is_empty())
}

pub(crate) fn is_going(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string)
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

/// The owners' kinds and uids.
pub(crate) fn owners(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let list = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    list.into_iter().flatten().map(|owner| (text(owner, "/kind"), text(owner, "/uid")))
}

/// Whole seconds, as the API writes times.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The value under a key, made an object if it is none.
pub(crate) fn table<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object[key].is_object() {
        object[key] = Value::Object(serde_json::Map::new());
    }
    &mut object[key]
}

/// Removes a key of an object, if there is one.
pub(crate) fn strip(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut().and_then(|table| table.remove(key))
}
