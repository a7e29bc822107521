//! Who leads, as events on the Lease (NEW-143), in the words of client-go's elections. Best effort, and in no time that
//! anybody would notice: whoever begins or ends to lead has more to do.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use crate::kubernetes::events::{self, Said, went_wrong};
use crate::kubernetes::{Cluster, Refusal};

/// For writing one.
const LIMIT: Duration = Duration::from_secs(2);

/// An event on this Lease.
pub(super) fn on(lease: &Lease, namespace: &str, message: &str) -> Event {
    let metadata = &lease.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let about = events::lease(namespace, name, metadata.uid.clone());
    events::event(about, &Said { reason: "LeaderElection", kind: "Normal", message }, Timestamp::now())
}

/// Writes it.
pub(super) async fn tell(cluster: &Cluster, event: Option<Event>) {
    let Some(event) = event else { return };
    let (api, how): (Api<Event>, _) = (Api::namespaced(cluster.client(), cluster.namespace()), PostParams::default());
    let written = tokio::time::timeout(LIMIT, cluster.within(api.create(&how, &event))).await;
    if let Err(refusal) = written.unwrap_or_else(|_| Err(Refusal::silent(LIMIT))) {
        went_wrong(&refusal, "who leads is not written as an event on the Lease");
    }
}
