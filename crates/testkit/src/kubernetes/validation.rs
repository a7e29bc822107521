//! What the server refuses as invalid: the part of its rules that objects of ours can break.

use serde_json::Value;

use super::meta::{self, text};
use super::refusal::{Cause, Refusal};
use super::resource::Resource;
use super::store::Part;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_NAME: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
     an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Judges a new object.
pub(crate) fn created(resource: Resource, object: &Value) -> Result<(), Refusal> {
    verdict(resource, object, [metadata(object), body(resource, object)].concat())
}

/// Judges a changed object.
pub(crate) fn updated(resource: Resource, part: Part, old: &Value, new: &Value) -> Result<(), Refusal> {
    let mut causes = [metadata(new), body(resource, new)].concat();
    if resource == Resource::Pods && part == Part::Main {
        causes.extend(pod_change(old, new));
    }
    if resource == Resource::Secrets && old["immutable"] == Value::Bool(true) && old["data"] != new["data"] {
        causes.push(Cause::forbidden("data", "field is immutable when `immutable` is set"));
    }
    verdict(resource, new, causes)
}

fn verdict(resource: Resource, object: &Value, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(resource, meta::name(object), &causes)) }
}

fn metadata(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = meta::name(object);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if name.len() > 253 {
        causes.push(Cause::invalid("metadata.name", name, "must be no more than 253 characters"));
    } else if !is_subdomain(name) {
        causes.push(Cause::invalid("metadata.name", name, SUBDOMAIN));
    }
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        causes.extend((!qualified(key)).then(|| Cause::invalid("metadata.labels", key, QUALIFIED)));
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            let rule = "must be no more than 63 bytes";
            causes.push(Cause::invalid("metadata.labels", value, rule));
        } else if !is_label(value) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL));
        }
    }
    for key in object["metadata"]["annotations"].as_object().into_iter().flat_map(serde_json::Map::keys) {
        causes.extend((!qualified(key)).then(|| Cause::invalid("metadata.annotations", key, QUALIFIED)));
    }
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().unwrap_or_default().len();
    let sum: usize = object["metadata"]["annotations"].as_object().into_iter().flatten().map(size).sum();
    if sum > 256 * 1024 {
        let message = "Too long: may not be more than 262144 bytes".to_owned();
        causes.push(Cause { reason: "FieldValueTooLong", message, field: "metadata.annotations".into() });
    }
    causes
}

fn body(resource: Resource, object: &Value) -> Vec<Cause> {
    match resource {
        Resource::Pods => pod(object),
        Resource::ClusterStaticEntries => entry(object),
        _ => Vec::new(),
    }
}

fn pod(pod: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = pod["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        causes.push(Cause::required("spec.containers", ""));
    }
    for (at, container) in containers.iter().enumerate() {
        let field = |name: &str| format!("spec.containers[{at}].{name}");
        let name = text(container, "/name");
        if name.is_empty() {
            causes.push(Cause::required(&field("name"), ""));
        } else if !is_label_name(name) {
            causes.push(Cause::invalid(&field("name"), name, LABEL_NAME));
        }
        // Whether the image can be had is for the kubelet to find out.
        if text(container, "/image").is_empty() {
            causes.push(Cause::required(&field("image"), ""));
        }
        causes.extend(mounts(pod, container, at));
    }
    if pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds < 1) {
        let rule = "must be between 1 and 2147483647, inclusive";
        let value = pod["spec"]["activeDeadlineSeconds"].to_string();
        let message = format!("Invalid value: {value}: {rule}");
        causes.push(Cause { reason: "FieldValueInvalid", message, field: "spec.activeDeadlineSeconds".into() });
    }
    causes
}

/// Every mount needs a volume.
fn mounts(pod: &Value, container: &Value, at: usize) -> Vec<Cause> {
    let volumes = pod["spec"]["volumes"].as_array().map_or(&[][..], Vec::as_slice);
    let mounts = container["volumeMounts"].as_array().map_or(&[][..], Vec::as_slice);
    let missing = mounts.iter().enumerate().filter(|(_, mount)| !volumes.iter().any(|v| v["name"] == mount["name"]));
    let cause = |(number, mount): (usize, &Value)| Cause {
        reason: "FieldValueNotFound",
        message: format!("Not found: {}", mount["name"]),
        field: format!("spec.containers[{at}].volumeMounts[{number}].name"),
    };
    missing.map(cause).collect()
}

/// A Pod's spec is fixed but for images, a shorter deadline, and further tolerations.
fn pod_change(old: &Value, new: &Value) -> Option<Cause> {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for free in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"] {
            meta::strip(&mut spec, free);
        }
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(|each| drop(meta::strip(each, "image")));
        }
        spec
    };
    (fixed(old) != fixed(new)).then(|| {
        let rule = "pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
             tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        Cause::forbidden("spec", rule)
    })
}

/// The schema of the ClusterStaticEntry CRD; what its controller thinks of an entry is another matter.
fn entry(entry: &Value) -> Vec<Cause> {
    let Some(spec) = entry.get("spec").filter(|spec| spec.is_object()) else {
        return vec![Cause::required("spec", "")];
    };
    let mut causes = Vec::new();
    for field in ["parentID", "selectors", "spiffeID"] {
        if spec.get(field).is_none_or(Value::is_null) {
            causes.push(Cause::required(&format!("spec.{field}"), ""));
        }
    }
    for field in ["spiffeID", "parentID", "className", "hint", "x509SVIDTTL", "jwtSVIDTTL"] {
        causes.extend(wrong(spec, field, "string", Value::is_string));
    }
    for field in ["admin", "downstream", "storeSVID"] {
        causes.extend(wrong(spec, field, "boolean", Value::is_boolean));
    }
    for field in ["selectors", "federatesWith", "dnsNames"] {
        causes.extend(wrong(spec, field, "array", Value::is_array));
    }
    if let Some(status) = entry.get("status").filter(|status| status.is_object()) {
        let missing =
            ["masked", "rendered", "set"].into_iter().filter(|field| status.get(field).is_none_or(Value::is_null));
        causes.extend(missing.map(|field| Cause::required(&format!("status.{field}"), "")));
    }
    causes
}

fn wrong(spec: &Value, field: &str, wanted: &str, fits: fn(&Value) -> bool) -> Option<Cause> {
    let value = spec.get(field).filter(|value| !value.is_null() && !fits(value))?;
    let got = match value {
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        _ => "object",
    };
    Some(Cause::wrong_type(&format!("spec.{field}"), got, wanted))
}

fn is_label_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= 63 && edge(text.as_bytes().first()) && edge(text.as_bytes().last()) && text.bytes().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| part.len() > 63 || is_label_name(part);
    text.len() <= 253 && text.split('.').all(|each| part(each) && is_label_name(&each[..each.len().min(63)]))
}

fn is_label(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    edge(text.as_bytes().first()) && edge(text.as_bytes().last()) && text.bytes().all(inner)
}

fn qualified(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && name.len() <= 63 && is_label(name) && prefix.is_none_or(is_subdomain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_keep_the_servers_alphabet() {
        assert!(is_subdomain("a-1.b") && is_subdomain(&"a".repeat(253)));
        for bad in ["A", "-a", "a-", "a..b", "", "a_b"] {
            assert!(!is_subdomain(bad), "{bad}");
        }
        assert!(is_label("") && is_label("A_1.b") && !is_label("-a") && !is_label("a/b") && !is_label("a "));
        assert!(qualified("ci.example.org/x") && qualified("x") && !qualified("a/b/c") && !qualified("a/"));
    }
}
