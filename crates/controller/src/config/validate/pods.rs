//! What Pods need (CFG-5, CFG-14), and who leads.

use domain::id::Backend;

use super::Reader;
use crate::backend::pod::privileged::PrivilegedPolicy;
use crate::config::pods::{ClusterAccess, Election, EntryParent, IdentityMeans, PodIdentity, Pods, has_digest};
use crate::config::{Component, Components, Means, QueueKind, SettingError, table};

impl Reader<'_> {
    /// Executors in Pods; the inner none: without `pod-worker` nothing of it is looked at.
    #[expect(clippy::option_option, reason = "not asked for and wrong are two things")]
    pub(super) fn pods(&self, components: Option<&Components>) -> Option<Option<Box<Pods>>> {
        if !components?.has(Component::PodWorker) {
            return Some(None);
        }
        let access = self.access();
        let (namespace, image) = (self.get(&table::POD_NAMESPACE), self.image());
        let (service_account, capacity) = (self.get(&table::POD_SERVICE_ACCOUNT), self.get(&table::POD_CAPACITY));
        let (uid, pending) = (self.get(&table::POD_EXECUTOR_UID), self.get(&table::POD_PENDING_LIMIT));
        let (template, privileged) = (self.optional(&table::POD_TEMPLATE_FILE), self.privileged());
        let (volume, runner_version) = (self.get(&table::POD_SPIFFE_VOLUME), self.get(&table::POD_RUNNER_VERSION));
        let (identity, endpoint) = (self.pod_identity(), self.get(&table::SPIFFE_ENDPOINT_SOCKET));
        Some(Some(Box::new(Pods {
            access: access?,
            namespace: namespace?,
            image: image?,
            service_account: service_account?,
            capacity: capacity?,
            uid: uid?,
            pending: pending?,
            template: template?,
            privileged: privileged?,
            volume: volume?,
            runner_version: runner_version?,
            identity: identity?,
            endpoint: endpoint?,
        })))
    }

    /// NEW-70: a label that is not declared is in no job that Gitea gives us, so it would allow nothing.
    #[expect(clippy::option_option, reason = "not asked for and wrong are two things")]
    fn privileged(&self) -> Option<Option<PrivilegedPolicy>> {
        let policy = self.optional(&table::PRIVILEGED_POLICY_FILE)?;
        let extra = self.optional(&table::EXTRA_LABELS)?.unwrap_or_default();
        let declared = |label: &str| extra.iter().any(|(known, backend)| known == label && *backend == Backend::Pod);
        for label in policy.iter().flat_map(PrivilegedPolicy::labels).filter(|label| !declared(label)) {
            self.error(SettingError::new(
                "PRIVILEGED_POLICY_FILE",
                format!(
                    "PRIVILEGED_POLICY_FILE: the label {label:?} is not declared for Pods, so no job can ask by it"
                ),
                format!("add {label}=pod to EXTRA_LABELS"),
            ));
        }
        Some(policy)
    }

    fn access(&self) -> Option<ClusterAccess> {
        let (api, ca) = (self.optional(&table::KUBERNETES_API), self.optional(&table::KUBERNETES_CA_FILE));
        let token = self.optional(&table::KUBERNETES_TOKEN_FILE);
        Some(ClusterAccess { api: api?, ca: ca?, token: token? })
    }

    /// CFG-14: what runs is what somebody has looked at.
    fn image(&self) -> Option<String> {
        let (image, tags) = (self.get(&table::POD_EXECUTOR_IMAGE), self.get(&table::ALLOW_IMAGE_TAG));
        let image = image?;
        if tags == Some(false) && !has_digest(&image) {
            self.error(SettingError::new(
                "POD_EXECUTOR_IMAGE",
                format!("POD_EXECUTOR_IMAGE: {image} has no digest, so what runs could change without a word"),
                "name it as name@sha256:…, or set ALLOW_IMAGE_TAG=true",
            ));
        }
        Some(image)
    }

    fn pod_identity(&self) -> Option<PodIdentity> {
        let means = self.get(&table::POD_IDENTITY);
        let (class, socket) = (self.optional(&table::SPIRE_CLASS), self.optional(&table::POD_SPIRE_SERVER_SOCKET));
        let (fixed, cluster) = (self.optional(&table::SPIRE_AGENT_ID), self.optional(&table::SPIRE_CLUSTER));
        let means = match means? {
            Means::Entries => {
                self.needed("SPIRE_CLASS", "a class name", class?).map(|class| IdentityMeans::Entries { class })
            }
            Means::Server => self
                .needed("POD_SPIRE_SERVER_SOCKET", "an absolute path", socket?)
                .map(|socket| IdentityMeans::Server { socket }),
        };
        let parent = match fixed? {
            Some(agent) => Some(EntryParent::Fixed(agent)),
            None => self
                .needed("SPIRE_CLUSTER", "one SPIFFE path segment (or set SPIRE_AGENT_ID)", cluster?)
                .map(|cluster| EntryParent::OfNode { cluster }),
        };
        Some(PodIdentity { means: means?, parent: parent? })
    }

    fn needed<T>(&self, name: &'static str, rule: &'static str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.error(SettingError::missing(name, rule));
        }
        value
    }

    /// Who leads: what was asked for, else what the components need.
    pub(super) fn election(&self, components: Option<&Components>) -> Option<Election> {
        let (asked, queue) = (self.get(&table::LEADER_ELECTION)?, self.get(&table::QUEUE)?);
        let (pods, shared) = (components?.has(Component::PodWorker), queue == QueueKind::JetStream);
        let impossible = match asked {
            Some(Election::Nats) if !shared => Some("nats needs QUEUE=jetstream"),
            Some(Election::Kubernetes) if !pods => Some("kubernetes needs pod-worker"),
            // A successor elsewhere would leave the tasks of that file alone.
            Some(Election::Kubernetes) if !shared => Some(
                "kubernetes needs QUEUE=jetstream: what waits in a file of one host can be served by that host only",
            ),
            Some(Election::File) if shared && !pods => Some("file is for QUEUE=embedded"),
            _ => None,
        };
        if let Some(why) = impossible {
            self.error(SettingError::new("LEADER_ELECTION", format!("LEADER_ELECTION: {why}"), "set it to auto"));
        }
        Some(asked.unwrap_or(match (pods, shared) {
            (true, true) => Election::Kubernetes,
            (false, true) => Election::Nats,
            // What waits in a file of one host can be served by that host only.
            (_, false) => Election::File,
        }))
    }
}
