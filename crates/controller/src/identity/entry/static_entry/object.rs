//! The object itself: what it is to say, and what one that is there means. Nothing is called here.

use domain::id::InstanceId;
use domain::metadata::{Map, PREFIX, entry};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::super::content::Content;
use super::super::known;
use super::super::{BoundPod, PodKey, Standing};

/// The resource.
pub(super) fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("spire.spiffe.io", "v1alpha1", "ClusterStaticEntry");
    ApiResource::from_gvk_with_plural(&kind, "clusterstaticentries")
}

/// The name of a Pod's entry: another Pod of that name has another one.
pub(super) fn name(pod: &PodKey) -> String {
    format!("{}-{}", pod.name, pod.uid)
}

/// The object of a Pod's entry.
pub(super) fn wanted(pod: &BoundPod, content: &Content, class: &str, instance: &InstanceId) -> DynamicObject {
    let selectors: Vec<String> = content.selectors.iter().map(ToString::to_string).collect();
    let spec = json!({
        "className": class,
        "spiffeID": content.spiffe_id.as_str(),
        "parentID": content.parent.as_str(),
        "selectors": selectors,
        "x509SVIDTTL": go_duration(content.ttl.as_secs()),
    });
    let mut object = DynamicObject::new(&name(&pod.key), &resource()).data(json!({ "spec": spec }));
    object.metadata.labels = Some(entry::labels(instance, pod.assignment));
    object
}

/// What an object that has the name of ours is to us.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It says what it is to say; this is what has become of it.
    Same(Standing),
    /// It is ours and says something else.
    Other,
    /// It is ours and is being deleted.
    Going,
    /// It is somebody else's.
    Foreign,
}

/// Judges an object that has the name of ours.
pub(super) fn judge(there: &DynamicObject, wanted: &DynamicObject, instance: &InstanceId) -> Found {
    let labels = labels(there);
    if !entry::is_ours(&labels, instance) {
        return Found::Foreign;
    }
    if there.metadata.deletion_timestamp.is_some() {
        return Found::Going;
    }
    let ours = wanted.metadata.labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    if ours && said(&there.data["spec"]) == said(&wanted.data["spec"]) {
        return Found::Same(standing(there));
    }
    Found::Other
}

/// What an object says of all that [`judge`] compares, in short.
pub(super) fn short(object: &DynamicObject) -> u64 {
    let labels: Vec<_> = labels(object).into_iter().filter(|(key, _)| key.starts_with(PREFIX)).collect();
    known::short(&(labels, Value::Object(said(&object.data["spec"])).to_string()))
}

/// The labels of an object.
pub(super) fn labels(object: &DynamicObject) -> Map {
    object.metadata.labels.clone().unwrap_or_default()
}

/// Takes the place of an object of ours: the same name, UID and version, so that nothing else is overwritten.
pub(super) fn replacement(there: DynamicObject, wanted: DynamicObject) -> DynamicObject {
    let mut metadata = there.metadata;
    metadata.managed_fields = None;
    metadata.labels.get_or_insert_default().extend(wanted.metadata.labels.unwrap_or_default());
    DynamicObject { metadata, ..wanted }
}

/// What the SPIRE controller manager says of an object (NEW-76). `set` is not looked at: it is true in the pass that made
/// the entry and in no later one. Without a status it has not come to it, is away, serves another class, or cannot read it.
fn standing(entry: &DynamicObject) -> Standing {
    let (name, status) = (entry.metadata.name.as_deref().unwrap_or_default(), &entry.data["status"]);
    if status["masked"] == true {
        let cause = format!(
            "its ClusterStaticEntry {name} is masked: an older one has the same SPIFFE ID, parent and selectors; remove it"
        );
        return Standing::Rejected { cause };
    }
    if status["rendered"] == true { Standing::Bound } else { Standing::Pending }
}

/// What a spec says, without what says nothing and without the order of its selectors.
fn said(spec: &Value) -> serde_json::Map<String, Value> {
    let mut said = spec.as_object().cloned().unwrap_or_default();
    said.retain(|_, value| !is_nothing(value));
    if let Some(selectors) = said.get_mut("selectors").and_then(Value::as_array_mut) {
        selectors.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
    }
    said
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// A duration of whole seconds as Go writes it, which is what the CRD's readers parse and write again.
fn go_duration(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::super::tests::{pod, rules};
    use super::*;
    use crate::identity::entry::content::AgentId;

    fn instance(name: &str) -> InstanceId {
        name.parse().unwrap()
    }

    fn object() -> DynamicObject {
        let parent = AgentId::named(&"spiffe://td.test/ci-nodes".parse().unwrap());
        wanted(&pod("7"), &rules().content(&pod("7"), parent), "class", &instance("one"))
    }

    fn found(change: impl FnOnce(&mut DynamicObject)) -> Found {
        let mut there = object();
        change(&mut there);
        judge(&there, &object(), &instance("one"))
    }

    /// POD-4, NEW-126, F128: the object of §1.3, as the CRD takes it.
    #[test]
    fn an_entry_says_what_the_specification_says() {
        let object = object();
        assert_eq!(object.metadata.name.as_deref(), Some("gitea-task-7-one-e1-00000000-0000-4000-8000-000000000007"));
        assert_eq!(
            object.data["spec"],
            json!({
                "className": "class",
                "spiffeID": "spiffe://td.test/ci/acme/app/build",
                "parentID": "spiffe://td.test/ci-nodes",
                "selectors": [
                    "k8s:container-name:executor",
                    "k8s:ns:ci",
                    "k8s:pod-uid:00000000-0000-4000-8000-000000000007",
                    "k8s:sa:executor",
                ],
                "x509SVIDTTL": "30m0s",
            })
        );
        let rows = [(30, "30s"), (60, "1m0s"), (1800, "30m0s"), (3600, "1h0m0s"), (90061, "25h1m1s")];
        for (seconds, text) in rows {
            assert_eq!(go_duration(seconds), text);
        }
    }

    /// NEW-76, F73, T18: what the manager says, and that it says `set` once only.
    #[test]
    fn a_status_is_judged() {
        let name = "gitea-task-7-one-e1-00000000-0000-4000-8000-000000000007";
        let masked = format!(
            "its ClusterStaticEntry {name} is masked: an older one has the same SPIFFE ID, parent and selectors; remove it"
        );
        let rows = [
            (Value::Null, Standing::Pending),
            (json!({"rendered": false, "masked": false, "set": false}), Standing::Pending),
            (json!({"rendered": true, "masked": false, "set": true}), Standing::Bound),
            (json!({"rendered": true, "masked": false, "set": false}), Standing::Bound),
            (json!({"rendered": true, "masked": true, "set": true}), Standing::Rejected { cause: masked }),
        ];
        for (status, expected) in rows {
            assert_eq!(found(|there| there.data["status"] = status.clone()), Found::Same(expected), "{status}");
        }
    }

    /// POD-6, F72, T53, NEW-129: an entry is compared by all it says; what is not ours is nobody's to replace.
    #[test]
    fn an_entry_that_is_there_is_compared() {
        let spec = |key: &'static str, value: Value| found(move |there| there.data["spec"][key] = value);
        for (key, value) in [
            ("spiffeID", json!("spiffe://td.test/ci/acme/app/other")),
            ("parentID", json!("spiffe://td.test/elsewhere")),
            ("selectors", json!(["k8s:ns:ci"])),
            ("className", json!("other")),
            ("x509SVIDTTL", json!("24h0m0s")),
            ("admin", json!(true)),
            ("dnsNames", json!(["example.org"])),
            ("hint", json!("x")),
        ] {
            assert_eq!(spec(key, value), Found::Other, "{key}");
        }
        assert_eq!(spec("admin", json!(false)), Found::Same(Standing::Pending));
        let turned = object().data["spec"]["selectors"].as_array().unwrap().iter().rev().cloned().collect::<Value>();
        assert_eq!(spec("selectors", turned), Found::Same(Standing::Pending));
        let label = |key: &str, value: &'static str| {
            let key = key.to_owned();
            found(move |there| {
                there.metadata.labels.get_or_insert_default().insert(key, value.to_owned());
            })
        };
        let [assignment, instance] = ["assignment-id", "instance"].map(|key| format!("{PREFIX}{key}"));
        assert_eq!(label(&assignment, "gitea-task-8"), Found::Other);
        assert_eq!(label(&instance, "two"), Found::Foreign);
        assert_eq!(label("of-somebody", "else"), Found::Same(Standing::Pending));
        assert_eq!(found(|there| there.metadata.labels = None), Found::Foreign);
    }

    /// POD-6, NEW-75: what is replaced is that version of that object.
    #[test]
    fn a_replacement_names_what_it_replaces() {
        let mut there = object();
        there.metadata.uid = Some("uid".to_owned());
        there.metadata.resource_version = Some("7".to_owned());
        there.data["spec"]["x509SVIDTTL"] = json!("24h0m0s");
        let new = replacement(there, object());
        assert_eq!((new.metadata.uid.as_deref(), new.metadata.resource_version.as_deref()), (Some("uid"), Some("7")));
        assert_eq!(new.data, object().data);
    }
}
