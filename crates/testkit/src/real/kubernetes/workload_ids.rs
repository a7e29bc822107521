//! What ClusterSPIFFEID objects amount to: one entry for each of their Pods, below the agent of the Pod's node.

use serde_json::{Map, Value};

use super::identity::CLUSTER;
use crate::kubernetes::Client;
use crate::real::Error;
use crate::real::spire::EntrySpec;

/// Of the objects.
pub(super) const PATH: &str = "/apis/spire.spiffe.io/v1alpha1/clusterspiffeids";

/// The entries of all Pods that are bound to a node and have not ended.
pub(super) async fn entries(client: &Client, domain: &str, class: &str) -> Result<Vec<EntrySpec>, Error> {
    let list = async |path: &str| -> Result<Vec<Value>, Error> {
        let list = client.get(path).await?.object(path)?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    };
    let ids = list(PATH).await?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let [namespaces, nodes, pods] =
        [list("/api/v1/namespaces").await?, list("/api/v1/nodes").await?, list("/api/v1/pods").await?];
    let named = |among: &[Value], name: &Value| among.iter().find(|each| each["metadata"]["name"] == *name).cloned();
    let mut entries = Vec::new();
    for id in ids.iter().map(|id| &id["spec"]).filter(|spec| spec["className"] == class) {
        for pod in pods.iter().filter(|pod| lives(pod) && fits(&id["podSelector"], pod)) {
            let namespace = named(&namespaces, &pod["metadata"]["namespace"]);
            let fits = namespace.is_some_and(|namespace| fits(&id["namespaceSelector"], &namespace));
            if let Some(node) = named(&nodes, &pod["spec"]["nodeName"]).filter(|_| fits) {
                entries.push(entry(id, pod, &node, domain));
            }
        }
    }
    Ok(entries)
}

fn lives(pod: &Value) -> bool {
    !["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase)
}

/// Whether an object has all labels of a selector. Expressions are nobody's here.
fn fits(selector: &Value, object: &Value) -> bool {
    let labels = selector["matchLabels"].as_object().into_iter().flat_map(Map::iter);
    labels.into_iter().all(|(name, value)| object["metadata"]["labels"][name] == *value)
}

/// Templates are taken as they are: those of our chart have nothing to be filled in.
fn entry(spec: &Value, pod: &Value, node: &Value, domain: &str) -> EntrySpec {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let own = format!("k8s:pod-uid:{}", text(&pod["metadata"]["uid"]));
    let further = spec["workloadSelectorTemplates"].as_array().into_iter().flatten().map(text);
    let mut selectors: Vec<_> = std::iter::once(own).chain(further).collect();
    selectors.sort();
    let parent = format!("spiffe://{domain}/spire/agent/k8s_psat/{CLUSTER}/{}", text(&node["metadata"]["uid"]));
    EntrySpec { id: text(&spec["spiffeIDTemplate"]), parent, selectors, ..EntrySpec::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_of_the_selector_gets_its_entry() {
        let pod = json!({"metadata": {"uid": "u1", "labels": {"a": "b", "c": "d"}}, "status": {"phase": "Pending"}});
        let labels = |labels: Value| json!({"matchLabels": labels});
        assert!(lives(&pod) && fits(&labels(json!({"a": "b"})), &pod) && fits(&Value::Null, &pod));
        assert!(!fits(&labels(json!({"a": "b", "c": "x"})), &pod));
        let spec = json!({"spiffeIDTemplate": "spiffe://td.test/x", "workloadSelectorTemplates": ["k8s:sa:s"]});
        let made = entry(&spec, &pod, &json!({"metadata": {"uid": "n1"}}), "td.test");
        assert_eq!(made.parent, "spiffe://td.test/spire/agent/k8s_psat/ci-nodes/n1");
        assert_eq!(made.selectors, ["k8s:pod-uid:u1", "k8s:sa:s"]);
    }
}
