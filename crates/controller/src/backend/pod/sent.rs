//! Pods as the API server sends and takes them. Of what it sends only that is read which somebody here looks at: the rest,
//! of which the notes of who wrote which field alone can be the half, is passed over without anything being made of it.
//! Every executor is sent ten times in its life, and thousands at a start.

use std::collections::BTreeMap;

use domain::metadata::Map;
use futures::Stream;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as api;
use kube::Resource as _;
use kube::api::{DeleteParams, GetParams, ListParams, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::Value;

use crate::kubernetes::{Cluster, Refusal};

/// One Pod. What is null is taken for what is not there, as Kubernetes does.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Option<Metadata>,
    pub(super) spec: Option<Spec>,
    pub(super) status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) labels: Option<Map>,
    pub(super) annotations: Option<Map>,
    pub(super) deletion_timestamp: Option<Timestamp>,
    pub(super) finalizers: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) node_name: Option<String>,
    pub(super) containers: Option<Vec<Container>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) resources: Option<Resources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources {
    pub(super) limits: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) phase: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) conditions: Option<Vec<Condition>>,
    pub(super) container_statuses: Option<Vec<ContainerStatus>>,
    pub(super) init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) state: Option<State>,
}

/// One of the three is there, or none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) running: Option<serde::de::IgnoredAny>,
    pub(super) waiting: Option<Waiting>,
    pub(super) terminated: Option<Terminated>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Terminated {
    pub(super) exit_code: i32,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) finished_at: Option<Timestamp>,
}

/// Some Pods of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Page {
    metadata: Option<PageMetadata>,
    items: Option<Vec<Pod>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    more: Option<String>,
}

impl Page {
    /// Its Pods, where the next one begins, and the version that the whole list is of.
    pub(super) fn into_parts(self) -> (Vec<Pod>, Option<String>, String) {
        let metadata = self.metadata.unwrap_or_default();
        let more = metadata.more.filter(|token| !token.is_empty());
        (self.items.unwrap_or_default(), more, metadata.resource_version.unwrap_or_default())
    }
}

/// The Pods of our namespace.
pub(super) struct Pods {
    cluster: Cluster,
    request: Request,
}

impl Pods {
    pub(super) fn new(cluster: Cluster) -> Self {
        let request = Request::new(api::Pod::url_path(&(), Some(cluster.namespace())));
        Self { cluster, request }
    }

    pub(super) async fn get(&self, name: &str) -> Result<Pod, Refusal> {
        self.cluster.ask(self.request.get(name, &GetParams::default())).await
    }

    pub(super) async fn create(&self, pod: &api::Pod) -> Result<Pod, Refusal> {
        // What was a typed Pod can always be written.
        let body = serde_json::to_vec(pod).unwrap_or_default();
        self.cluster.ask(self.request.create(&PostParams::default(), body)).await
    }

    pub(super) async fn patch(&self, name: &str, patch: &Value) -> Result<Pod, Refusal> {
        let patch = kube::api::Patch::Merge(patch);
        self.cluster.ask(self.request.patch(name, &PatchParams::default(), &patch)).await
    }

    /// What is left of it, where it does not go at once.
    pub(super) async fn delete(&self, name: &str, params: &DeleteParams) -> Result<Option<Pod>, Refusal> {
        let text = self.cluster.ask_for_text(self.request.delete(name, params)).await?;
        // Else a Status, in which `status` is a word.
        Ok(serde_json::from_str(&text).ok())
    }

    pub(super) async fn page(&self, params: &ListParams) -> Result<Page, Refusal> {
        self.cluster.ask(self.request.list(params)).await
    }

    /// What happens from this version on.
    pub(super) async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Pod>, Refusal>> + use<>, Refusal> {
        let request = self.request.watch(params, version);
        let client = self.cluster.client();
        let begin = async { client.request_events(request.map_err(kube::Error::BuildRequest)?).await };
        let words = self.cluster.at_once(begin).await?;
        Ok(words.map(|word| word.map_err(|error| Refusal::of(&error))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// POD-1, NEW-66: a field that is null, of a form that is not known, or not there at all does not make a Pod unreadable.
    #[test]
    fn what_nobody_looks_at_is_passed_over() -> Result<(), serde_json::Error> {
        let text = r#"{"kind": "Pod", "metadata": {"name": "a", "uid": "1", "labels": null, "managedFields": [{"fieldsV1":
            {"f:metadata": {}}}], "finalizers": ["b"]}, "spec": {"containers": [{"name": "executor", "resources": {"limits":
            {"memory": "4Gi"}}, "env": 7}], "volumes": null}, "status": {"conditions": null, "containerStatuses": [{"name":
            "executor", "state": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-02T03:04:05Z"}}}]}}"#;
        let Pod { metadata, spec, status } = serde_json::from_str(text)?;
        let (metadata, spec, status) =
            (metadata.unwrap_or_default(), spec.unwrap_or_default(), status.unwrap_or_default());
        assert_eq!((metadata.name.as_deref(), metadata.labels.is_none()), (Some("a"), true));
        let limit = spec.containers.and_then(|mut containers| containers.remove(0).resources?.limits?.remove("memory"));
        assert_eq!(limit.as_deref(), Some("4Gi"));
        let state = status.container_statuses.and_then(|mut all| all.remove(0).state);
        assert_eq!(state.and_then(|state| state.terminated).map(|ended| ended.exit_code), Some(3));
        let gone = r#"{"kind": "Status", "metadata": {}, "status": "Success", "details": {"name": "a"}}"#;
        assert!(serde_json::from_str::<Pod>(gone).is_err(), "the answer to a delete that left nothing is no Pod");
        Ok(())
    }
}
