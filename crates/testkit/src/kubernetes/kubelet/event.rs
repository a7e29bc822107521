//! The events that the cluster's programs write about Pods.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::kubernetes::meta;
use crate::kubernetes::resource::Resource;
use crate::kubernetes::store::Store;

/// Who writes it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Scheduler,
    Autoscaler,
    Kubelet,
    NodeController,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "default-scheduler",
            Self::Autoscaler => "cluster-autoscaler",
            Self::Kubelet => "kubelet",
            Self::NodeController => "taint-eviction-controller",
        }
    }
}

/// Writes an event about a Pod; `kind` is `Normal` or `Warning`.
pub(crate) fn tell(store: &mut Store, pod: &Value, source: Source, kind: &str, reason: &str, message: &str) {
    let id = Uuid::new_v4().simple().to_string();
    let now = meta::time(Timestamp::now());
    let event = json!({
        "metadata": {"name": format!("{}.{}", meta::name(pod), &id[..16])},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": meta::namespace(pod), "name": meta::name(pod),
            "uid": meta::uid(pod),
        },
        "type": kind, "reason": reason, "message": message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "source": {"component": source.name()},
        "reportingComponent": source.name(), "reportingInstance": "",
    });
    // Its namespace is the Pod's; one that is going takes no events, and nobody minds.
    let _ = store.create(Resource::Events, meta::namespace(pod), event);
}
