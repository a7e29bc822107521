//! What an operator adds to every Pod (NEW-68), and what every Pod has without it.
//!
//! A template is checked when the settings are read: whatever it may not touch is named there, all of it at once, and so
//! is what Kubernetes does not know. What is left is laid under the fixed fields of [`super::object`].

mod rules;

use std::path::Path;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

use super::object::CONTAINER;

/// More is no template that somebody can read.
const LARGEST: u64 = 64 << 10;

/// A checked Pod template.
#[derive(Debug, Clone, PartialEq)]
pub struct PodTemplate(Value);

/// A template that is none, or touches what it must not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// Everything that is wrong with it, each with its place.
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
}

impl Default for PodTemplate {
    fn default() -> Self {
        Self(json!({"spec": {"containers": [{"name": CONTAINER, "resources": resources()}]}}))
    }
}

/// No job can starve its node (F68).
fn resources() -> Value {
    json!({
        "requests": {"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"},
    })
}

impl PodTemplate {
    /// Reads a YAML file.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn read(path: &Path) -> Result<Self, TemplateError> {
        let unreadable = |error: std::io::Error| TemplateError::Unreadable(error.to_string());
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > LARGEST {
            return Err(TemplateError::Refused(vec![format!("it has {size} bytes; {LARGEST} are the most")]));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(unreadable)?)
    }

    /// Reads the YAML of a PodTemplateSpec: `metadata` with labels and annotations, `spec` with everything else.
    ///
    /// # Errors
    /// [`TemplateError::Refused`].
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let refused = |problem: String| TemplateError::Refused(vec![problem]);
        let value: Value = serde_saphyr::from_str(text).map_err(|error| {
            refused(format!("it is no YAML: {}", error.to_string().lines().next().unwrap_or_default()))
        })?;
        let typed: PodTemplateSpec = serde_json::from_value(value.clone())
            .map_err(|error| refused(format!("it is no Pod template: {error}")))?;
        // What a typed template holds can always be written.
        let known = serde_json::to_value(typed).unwrap_or_default();
        let mut problems = Vec::new();
        unknown_fields("", &value, &known, &mut problems);
        rules::check(&value, &mut problems);
        if !problems.is_empty() {
            return Err(TemplateError::Refused(problems));
        }
        let mut template = Self::default();
        // Kubernetes takes a field that is null for one that is not there; here null would take a default away.
        lay_over(&mut template.0, without_nulls(value));
        harden(&mut template.0);
        Ok(template)
    }

    /// What the fixed fields are laid over.
    pub(super) fn value(&self) -> &Value {
        &self.0
    }
}

/// A misspelt field would be dropped without a word by everybody who reads it.
fn unknown_fields(place: &str, given: &Value, known: &Value, problems: &mut Vec<String>) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
                let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
                match known.get(name) {
                    Some(known) => unknown_fields(&place, value, known, problems),
                    None => problems.push(format!("{place}: Kubernetes knows no such field")),
                }
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            for (at, (given, known)) in given.iter().zip(known).enumerate() {
                unknown_fields(&format!("{place}[{at}]"), given, known, problems);
            }
        }
        _ => {}
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// What stands beside the executor is as harmless as the executor.
fn harden(template: &mut Value) {
    let harmless = json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
    for list in ["containers", "initContainers"] {
        let containers = template.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            lay_over(container, harmless.clone());
        }
    }
}

/// Lays `over` over `under`: fields of objects one by one, elements of lists by what names them, everything else as a
/// whole; null takes away.
pub(super) fn lay_over(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => lay_fields_over(under, over),
        (Value::Array(under), Value::Array(over)) if over.iter().all(|element| key(element).is_some()) => {
            for element in over {
                match under.iter_mut().find(|known| key(known) == key(&element)) {
                    Some(known) => lay_over(known, element),
                    None => under.push(element),
                }
            }
        }
        (under, over) => *under = over,
    }
}

fn lay_fields_over(under: &mut Map<String, Value>, over: Map<String, Value>) {
    for (name, value) in over {
        match (under.get_mut(&name), value) {
            (_, Value::Null) => drop(under.remove(&name)),
            (Some(known), value) => lay_over(known, value),
            (None, value) => drop(under.insert(name, value)),
        }
    }
}

/// What names an element of a list: a mount its place, everything else its name.
fn key(element: &Value) -> Option<&str> {
    element.get("mountPath").or_else(|| element.get("name")).and_then(Value::as_str)
}

#[cfg(test)]
mod tests;
