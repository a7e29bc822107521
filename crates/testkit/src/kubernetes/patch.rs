//! How a PATCH changes an object: merge patches, JSON patches, and the little of server-side apply that is needed.

use serde_json::Value;

use super::meta::text;
use super::refusal::Refusal;

/// Lists that a strategic merge patch joins by a key instead of replacing them.
const JOINED: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("conditions", "type"),
    ("ownerReferences", "uid"),
];

/// The kinds of patches, by their content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Merge,
    Strategic,
    Json,
    Apply,
}

impl Form {
    pub(crate) fn of(content_type: &str) -> Result<Self, Refusal> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/json-patch+json" => Ok(Self::Json),
            "application/apply-patch+yaml" | "application/apply-patch+json" => Ok(Self::Apply),
            other => Err(Refusal::bad_media_type(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, not {other}"
            ))),
        }
    }

    pub(crate) fn apply(self, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
        match self {
            Self::Merge => merge(object, patch, ""),
            Self::Strategic => strategic(object, patch, ""),
            // Owned fields that the new text leaves out stay: nobody here applies twice with less.
            Self::Apply => strategic(object, patch, ""),
            Self::Json => return json_patch(object, patch),
        }
        Ok(())
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value, _key: &str) {
    join(target, patch, merge);
}

fn strategic(target: &mut Value, patch: &Value, key: &str) {
    let by = JOINED.iter().find(|(list, _)| *list == key).map(|(_, by)| *by);
    let (Some(by), Value::Array(items), Value::Array(had)) = (by, patch, &mut *target) else {
        if key == "finalizers"
            && let (Value::Array(new), Value::Array(had)) = (patch, &mut *target)
        {
            let new: Vec<_> = new.iter().filter(|each| !had.contains(each)).cloned().collect();
            had.extend(new);
            return;
        }
        join(target, patch, strategic);
        return;
    };
    for item in items {
        let same = |other: &Value| other[by] == item[by];
        let at = had.iter().position(same);
        if text(item, "/$patch") == "delete" {
            at.map(|at| had.remove(at));
        } else if let Some(at) = at {
            strategic(&mut had[at], item, "");
        } else {
            had.push(item.clone());
        }
    }
}

/// Objects are joined key by key, `null` removes, everything else replaces.
fn join(target: &mut Value, patch: &Value, each: fn(&mut Value, &Value, &str)) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(table) = target else { return };
    for (key, value) in fields.iter().filter(|(key, _)| !key.starts_with('$')) {
        if value.is_null() {
            table.remove(key);
        } else {
            each(table.entry(key.clone()).or_insert(Value::Null), value, key);
        }
    }
}

/// RFC 6902: `add`, `replace`, `remove` and `test`.
fn json_patch(object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let failed = |path: &str, what: &str| Refusal {
        code: 422,
        reason: "Invalid",
        message: format!("the server rejected our request due to an error in our request: {what} {path}"),
        details: None,
    };
    for step in patch.as_array().ok_or_else(|| Refusal::bad_request("a JSON patch is a list"))? {
        let path = text(step, "/path");
        let (parent, last) = path.rsplit_once('/').ok_or_else(|| failed(path, "bad path"))?;
        let last = last.replace("~1", "/").replace("~0", "~");
        let op = text(step, "/op");
        if op == "test" {
            if object.pointer(path).unwrap_or(&Value::Null) != &step["value"] {
                return Err(failed(path, "test failed at"));
            }
            continue;
        }
        let parent = object.pointer_mut(parent).ok_or_else(|| failed(path, "missing path"))?;
        match (op, parent) {
            ("add", Value::Array(list)) if last == "-" => list.push(step["value"].clone()),
            ("add" | "replace", Value::Object(table)) => {
                table.insert(last, step["value"].clone());
            }
            ("remove", Value::Object(table)) => {
                table.remove(&last).ok_or_else(|| failed(path, "missing path"))?;
            }
            (_, Value::Array(list)) => {
                let at = last.parse().ok().filter(|at| *at < list.len()).ok_or_else(|| failed(path, "bad index"))?;
                match op {
                    "remove" => drop(list.remove(at)),
                    "replace" => list[at] = step["value"].clone(),
                    _ => list.insert(at, step["value"].clone()),
                }
            }
            _ => return Err(failed(path, "cannot change")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn patched(form: Form, mut object: Value, patch: Value) -> Value {
        form.apply(&mut object, &patch).unwrap();
        object
    }

    #[test]
    fn a_merge_patch_joins_tables_and_replaces_lists() {
        let object = json!({"a": {"b": 1, "c": 2}, "finalizers": ["x"]});
        let patch = json!({"a": {"b": null, "d": 3}, "finalizers": ["y"]});
        assert_eq!(patched(Form::Merge, object, patch), json!({"a": {"c": 2, "d": 3}, "finalizers": ["y"]}));
    }

    #[test]
    fn a_strategic_patch_joins_lists_by_their_key() {
        let object = json!({"conditions": [{"type": "A", "status": "True"}], "finalizers": ["x"]});
        let patch = json!({"conditions": [{"type": "B"}, {"type": "A", "status": "False"}], "finalizers": ["y"]});
        let expected =
            json!({"conditions": [{"type": "A", "status": "False"}, {"type": "B"}], "finalizers": ["x", "y"]});
        assert_eq!(patched(Form::Strategic, object, patch), expected);
    }

    #[test]
    fn a_json_patch_tests_before_it_changes() {
        let object = json!({"a": {"b/c": 1}, "l": [1, 2]});
        let patch = json!([
            {"op": "test", "path": "/a/b~1c", "value": 1}, {"op": "remove", "path": "/a/b~1c"},
            {"op": "add", "path": "/l/-", "value": 3}, {"op": "remove", "path": "/l/0"}]);
        assert_eq!(patched(Form::Json, object.clone(), patch), json!({"a": {}, "l": [2, 3]}));
        let wrong = json!([{"op": "test", "path": "/l/0", "value": 7}]);
        assert_eq!(Form::Json.apply(&mut object.clone(), &wrong).unwrap_err().code, 422);
    }
}
