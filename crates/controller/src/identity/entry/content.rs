//! What an entry says, whatever it is written through: checked here before it is written, since what SPIRE refuses it does
//! not always tell (NEW-76).

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use domain::identity::{IdentityRules, Segment, SpiffeId};

use super::{BoundPod, IssueError};
use crate::config::Config;

/// The container of the Pod that may have the identity; no other of it may (requirements §1.3).
const CONTAINER: &str = "executor";
/// Below it an SVID would be renewed at every synchronisation of the agent.
const SHORTEST_TTL: Duration = Duration::from_secs(30);

/// What is the same for every entry.
#[derive(Debug, Clone)]
pub(super) struct EntryRules {
    /// Whose IDs are bound, and no others (POD-5).
    pub(super) identity: IdentityRules,
    /// Where the Pods are.
    pub(super) namespace: String,
    /// Who they are to Kubernetes.
    pub(super) service_account: String,
    /// Lifetime of an SVID.
    pub(super) ttl: Duration,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) spiffe_id: SpiffeId,
    pub(super) parent: AgentId,
    pub(super) selectors: BTreeSet<Selector>,
    /// Whole seconds.
    pub(super) ttl: Duration,
}

/// `type:value` of one attestor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Selector {
    pub(super) kind: &'static str,
    pub(super) value: String,
}

impl Selector {
    fn k8s(key: &str, value: &str) -> Self {
        Self { kind: "k8s", value: format!("{key}:{value}") }
    }

    /// What every entry of a Pod has, of every instance.
    pub(super) fn of_container() -> Self {
        Self::k8s("container-name", CONTAINER)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.value)
    }
}

/// The SPIFFE ID of an agent, or an alias of some: unlike a job's it may lie below `/spire`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentId(String);

impl AgentId {
    /// A parent that an operator named.
    pub(super) fn named(id: &SpiffeId) -> Self {
        Self(id.to_string())
    }

    /// The agent of a node, attested by `k8s_psat` in this cluster.
    pub(super) fn of_node(rules: &IdentityRules, cluster: &Segment, node_uid: &Segment) -> Self {
        Self(format!("spiffe://{}/spire/agent/k8s_psat/{cluster}/{node_uid}", rules.trust_domain))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl EntryRules {
    /// What these settings say.
    ///
    /// # Errors
    /// A lifetime that SPIRE would cut or renew without end.
    pub(super) fn new(config: &Config, namespace: &str, service_account: &str) -> anyhow::Result<Self> {
        let ttl = config.identity.svid_ttl;
        anyhow::ensure!(
            ttl >= SHORTEST_TTL && ttl.subsec_nanos() == 0,
            "SVID_TTL: an entry's lifetime is whole seconds and at least {} s; set it so",
            SHORTEST_TTL.as_secs()
        );
        let (namespace, service_account) = (namespace.to_owned(), service_account.to_owned());
        Ok(Self { identity: config.identity.rules.clone(), namespace, service_account, ttl })
    }

    /// Whether this Pod may have an entry at all (POD-5); comes before anything is asked or written.
    pub(super) fn permit(&self, pod: &BoundPod) -> Result<(), IssueError> {
        if !self.identity.give(&pod.spiffe_id) {
            let domain = &self.identity.trust_domain;
            let prefix = self.identity.prefix.as_ref().map(|prefix| format!("/{prefix}")).unwrap_or_default();
            return Err(IssueError::Refused {
                cause: format!(
                    "identity entry of Pod {}: {} is no identity of a job below spiffe://{domain}{prefix}/ci or /ci-untrusted",
                    pod.key.name, pod.spiffe_id
                ),
                remedy: "Run the job again; TRUST_DOMAIN and IDENTITY_PREFIX must not change while tasks wait."
                    .to_owned(),
            });
        }
        // They are part of names and selectors.
        for (what, text) in [("name", &pod.key.name), ("UID", &pod.key.uid)] {
            if text.parse::<Segment>().is_err() || text.bytes().any(|b| b.is_ascii_uppercase() || b == b'_') {
                return Err(IssueError::Refused {
                    cause: format!(
                        "identity entry of Pod {:?}: {text:?} is no {what} that Kubernetes gives",
                        pod.key.name
                    ),
                    remedy: "This is a fault of the controller; please report it.".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The entry of a permitted Pod.
    pub(super) fn content(&self, pod: &BoundPod, parent: AgentId) -> Content {
        let selectors = [
            Selector::k8s("pod-uid", &pod.key.uid),
            Selector::k8s("ns", &self.namespace),
            Selector::k8s("sa", &self.service_account),
            Selector::of_container(),
        ];
        Content { spiffe_id: pod.spiffe_id.clone(), parent, selectors: selectors.into(), ttl: self.ttl }
    }
}
