//! The labels of an identity entry of a Pod (requirements §1.2, §1.3).

use super::{ASSIGNMENT_ID, INSTANCE, Map, put};
use crate::id::{AssignmentId, InstanceId};

const NAME: (&str, &str) = ("app.kubernetes.io/name", "gitea-dynamic-runner");
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "pod-identity");

/// The labels of the entry of this assignment's Pod.
#[must_use]
pub fn labels(instance: &InstanceId, assignment: AssignmentId) -> Map {
    let mut map = common(instance);
    put(&mut map, ASSIGNMENT_ID, assignment);
    map
}

/// Selects every entry of this instance.
#[must_use]
pub fn selector(instance: &InstanceId) -> String {
    let terms: Vec<String> = common(instance).iter().map(|(key, value)| format!("{key}={value}")).collect();
    terms.join(",")
}

/// Whether an entry is this instance's: it carries all of the labels (NEW-2).
#[must_use]
pub fn is_ours(found: &Map, instance: &InstanceId) -> bool {
    let assignment = found.get(&format!("{}{ASSIGNMENT_ID}", super::PREFIX));
    let named = assignment.is_some_and(|text| text.parse::<AssignmentId>().is_ok());
    named && common(instance).iter().all(|(key, value)| found.get(key) == Some(value))
}

fn common(instance: &InstanceId) -> Map {
    let mut map: Map = [NAME, COMPONENT].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    put(&mut map, INSTANCE, instance);
    map
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn instance(name: &str) -> InstanceId {
        name.parse().unwrap()
    }

    /// NEW-2, POD-4, T15: an entry is ours by all of its labels, and of one instance only.
    #[test]
    fn an_entry_is_ours_by_all_its_labels() {
        let (one, another) = (instance("one"), instance("one-2"));
        let ours = labels(&one, "gitea-task-7".parse().unwrap());
        assert_eq!(ours["ci.ddupan.top/assignment-id"], "gitea-task-7");
        assert!(is_ours(&ours, &one) && !is_ours(&ours, &another));
        for key in ours.keys() {
            let mut without = ours.clone();
            without.remove(key);
            assert!(!is_ours(&without, &one), "{key}");
        }
        let mut odd = ours;
        odd.insert("ci.ddupan.top/assignment-id".to_owned(), "something".to_owned());
        assert!(!is_ours(&odd, &one));
    }

    /// POD-4, T15: what the selector selects is what the labels say.
    #[test]
    fn the_selector_names_the_instance() {
        let text = selector(&instance("one"));
        assert!(text.contains("app.kubernetes.io/component=pod-identity"), "{text}");
        assert!(text.contains("ci.ddupan.top/instance=one"), "{text}");
        assert!(!text.contains("assignment-id"), "{text}");
    }
}
