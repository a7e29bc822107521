//! The Status objects with which the API server refuses.

use serde_json::{Map, Value, json};

use super::resource::Resource;

/// A refused call: the HTTP status and the Status object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
}

/// The field of an object that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Cause {
    pub(crate) fn invalid(field: &str, value: &str, rule: &str) -> Self {
        let message = format!("Invalid value: {}: {rule}", Value::from(value));
        Self { reason: "FieldValueInvalid", message, field: field.to_owned() }
    }

    pub(crate) fn required(field: &str, rule: &str) -> Self {
        let message = if rule.is_empty() { "Required value".to_owned() } else { format!("Required value: {rule}") };
        Self { reason: "FieldValueRequired", message, field: field.to_owned() }
    }

    pub(crate) fn wrong_type(field: &str, got: &str, wanted: &str) -> Self {
        let message = format!("Invalid value: \"{got}\": {field} in body must be of type {wanted}: \"{got}\"");
        Self { reason: "FieldValueTypeInvalid", message, field: field.to_owned() }
    }

    pub(crate) fn forbidden(field: &str, rule: &str) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {rule}"), field: field.to_owned() }
    }
}

impl Refusal {
    fn about(code: u16, reason: &'static str, resource: Resource, name: &str, message: String) -> Self {
        Self { code, reason, message, details: Some(details(resource.group(), resource.plural(), name)) }
    }

    fn bare(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    pub(crate) fn not_found(resource: Resource, name: &str) -> Self {
        Self::about(404, "NotFound", resource, name, format!("{} \"{name}\" not found", resource.qualified()))
    }

    /// A path that no resource has.
    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: Some(json!({})), ..Self::bare(404, "NotFound", message) }
    }

    pub(crate) fn exists(resource: Resource, name: &str) -> Self {
        Self::about(409, "AlreadyExists", resource, name, format!("{} \"{name}\" already exists", resource.qualified()))
    }

    /// The name is still held by an object that is on its way out.
    pub(crate) fn going(resource: Resource, name: &str) -> Self {
        let taken = Self::exists(resource, name);
        Self { message: format!("object is being deleted: {}", taken.message), ..taken }
    }

    /// A precondition of a deletion does not hold; here the server speaks of the kind, not of the resource.
    pub(crate) fn precondition(resource: Resource, name: &str, why: &str) -> Self {
        let kind = resource.qualified_kind();
        let message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
        let details = Some(details(resource.group(), resource.kind(), name));
        Self { code: 409, reason: "Conflict", message, details }
    }

    /// A replacement that does not say what was read, of an object that must not be replaced blindly.
    pub(crate) fn version_missing(resource: Resource, name: &str) -> Self {
        let rule = "Invalid value: 0: must be specified for an update";
        let field = "metadata.resourceVersion";
        let message = format!("{} \"{name}\" is invalid: {field}: {rule}", resource.qualified());
        let mut details = details(resource.group(), resource.plural(), name);
        details["causes"] = json!([{"reason": "FieldValueInvalid", "message": rule, "field": field}]);
        Self { code: 422, reason: "Invalid", message, details: Some(details) }
    }

    pub(crate) fn conflict(resource: Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::about(409, "Conflict", resource, name, message)
    }

    /// A replacement or patch that names a resource version which is not the newest.
    pub(crate) fn modified(resource: Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(crate) fn forbidden(resource: Resource, name: &str, why: &str) -> Self {
        let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let message = format!("{}{named} is forbidden: {why}", resource.qualified());
        Self::about(403, "Forbidden", resource, name, message)
    }

    pub(crate) fn invalid(resource: Resource, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let kind = resource.qualified_kind();
        let message = format!("{kind} \"{name}\" is invalid: {text}");
        let mut details = details(resource.group(), resource.kind(), name);
        let entry = |cause: &Cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
        details["causes"] = causes.iter().map(entry).collect();
        Self { code: 422, reason: "Invalid", message, details: Some(details) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::bare(400, "BadRequest", message)
    }

    /// A watch from what is no version: the server takes that for a fault of its own.
    pub(crate) fn bad_version(text: &str) -> Self {
        let message = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        Self::bare(500, "InternalError", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::bare(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn bad_media_type(message: impl Into<String>) -> Self {
        Self::bare(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn bad_verb() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: Some(json!({})), ..Self::bare(405, "MethodNotAllowed", message) }
    }

    /// The history that was asked for has been thrown away.
    pub(crate) fn expired(wanted: u64, oldest: u64) -> Self {
        Self::bare(410, "Expired", format!("too old resource version: {wanted} ({oldest})"))
    }

    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}

/// What a Status says of the object in question; empty fields are left out.
pub(crate) fn details(group: &str, kind: &str, name: &str) -> Value {
    let fields = [("name", name), ("group", group), ("kind", kind)];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(fields.map(|(field, value)| (field.to_owned(), value.into())).collect::<Map<_, _>>())
}
