//! The kinds of objects that the double keeps, and the words the API has for them.

/// A resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `v1` pods.
    Pods,
    /// `v1` secrets.
    Secrets,
    /// `v1` events; `events.k8s.io/v1` shows the same objects in its own words.
    Events,
    /// `v1` nodes.
    Nodes,
    /// `v1` namespaces.
    Namespaces,
    /// `v1` serviceaccounts.
    ServiceAccounts,
    /// `v1` configmaps.
    ConfigMaps,
    /// `v1` resourcequotas; kept, and what `spec.hard` says of Pods and Secrets is enforced.
    ResourceQuotas,
    /// `coordination.k8s.io/v1` leases.
    Leases,
    /// `policy/v1` poddisruptionbudgets; kept, nothing heeds them.
    PodDisruptionBudgets,
    /// `spire.spiffe.io/v1alpha1` clusterstaticentries.
    ClusterStaticEntries,
}

/// How a resource is written down.
struct Words {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Pods,
        Self::Secrets,
        Self::Events,
        Self::Nodes,
        Self::Namespaces,
        Self::ServiceAccounts,
        Self::ConfigMaps,
        Self::ResourceQuotas,
        Self::Leases,
        Self::PodDisruptionBudgets,
        Self::ClusterStaticEntries,
    ];

    fn words(self) -> Words {
        let core = |plural, kind, namespaced| Words { group: "", version: "v1", plural, kind, namespaced };
        match self {
            Self::Pods => core("pods", "Pod", true),
            Self::Secrets => core("secrets", "Secret", true),
            Self::Events => core("events", "Event", true),
            Self::Nodes => core("nodes", "Node", false),
            Self::Namespaces => core("namespaces", "Namespace", false),
            Self::ServiceAccounts => core("serviceaccounts", "ServiceAccount", true),
            Self::ConfigMaps => core("configmaps", "ConfigMap", true),
            Self::ResourceQuotas => core("resourcequotas", "ResourceQuota", true),
            Self::Leases => Words { group: "coordination.k8s.io", ..core("leases", "Lease", true) },
            Self::PodDisruptionBudgets => {
                Words { group: "policy", ..core("poddisruptionbudgets", "PodDisruptionBudget", true) }
            }
            Self::ClusterStaticEntries => Words {
                group: "spire.spiffe.io",
                version: "v1alpha1",
                ..core("clusterstaticentries", "ClusterStaticEntry", false)
            },
        }
    }

    /// The API group; empty for the core.
    #[must_use]
    pub fn group(self) -> &'static str {
        self.words().group
    }

    /// The plural that stands in URLs and rules.
    #[must_use]
    pub fn plural(self) -> &'static str {
        self.words().plural
    }

    /// The kind that stands in objects.
    #[must_use]
    pub fn kind(self) -> &'static str {
        self.words().kind
    }

    /// Whether its objects live in namespaces.
    #[must_use]
    pub fn namespaced(self) -> bool {
        self.words().namespaced
    }

    /// `v1`, or group and version.
    #[must_use]
    pub fn api_version(self) -> String {
        match self.words() {
            Words { group: "", version, .. } => version.to_owned(),
            Words { group, version, .. } => format!("{group}/{version}"),
        }
    }

    /// `pods`, or `leases.coordination.k8s.io`: as error messages name it.
    #[must_use]
    pub fn qualified(self) -> String {
        match self.words() {
            Words { group: "", plural, .. } => plural.to_owned(),
            Words { group, plural, .. } => format!("{plural}.{group}"),
        }
    }

    /// `Pod`, or `Lease.coordination.k8s.io`.
    pub(crate) fn qualified_kind(self) -> String {
        match self.words() {
            Words { group: "", kind, .. } => kind.to_owned(),
            Words { group, kind, .. } => format!("{kind}.{group}"),
        }
    }

    /// A replacement has to say which version it replaces.
    pub(crate) fn wants_version(self) -> bool {
        matches!(self, Self::Leases | Self::ClusterStaticEntries)
    }

    /// Objects of these count how often their `spec` changed.
    pub(crate) fn has_generation(self) -> bool {
        matches!(self, Self::Pods | Self::PodDisruptionBudgets | Self::ClusterStaticEntries)
    }

    /// A deletion is answered with the object that was deleted; others get a Status.
    pub(crate) fn returns_deleted(self) -> bool {
        matches!(self, Self::Pods | Self::ServiceAccounts | Self::ResourceQuotas)
    }

    /// Its status is written through a path of its own, and the object's own path leaves it alone.
    pub(crate) fn has_status_path(self) -> bool {
        matches!(
            self,
            Self::Pods | Self::Nodes | Self::ResourceQuotas | Self::PodDisruptionBudgets | Self::ClusterStaticEntries
        )
    }

    /// The resource with this name in this group and version.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        if (group, version, plural) == ("events.k8s.io", "v1", "events") {
            return Some(Self::Events);
        }
        let fits = |words: &Words| words.group == group && words.version == version && words.plural == plural;
        Self::ALL.into_iter().find(|each| fits(&each.words()))
    }

    pub(crate) fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.kind() == kind)
    }
}
