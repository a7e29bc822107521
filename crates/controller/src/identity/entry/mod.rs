//! Identities for executors that run where we have no socket: entries that tell SPIRE which Pod gets which SPIFFE ID.
//!
//! Invariants: only IDs below `ci/` or `ci-untrusted/` of our own rules are ever written (POD-5); an entry carries the
//! labels of our instance, or lies below a name of ours, and no other is changed or deleted (NEW-2); what a failed or
//! partial list does not show is not evidence of anything (IDR-7).

mod content;
#[cfg(test)]
mod contract;
mod known;
mod orphans;
mod parent;
mod spire_server;
mod static_entry;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Context as _;
use domain::id::AssignmentId;
use domain::identity::SpiffeId;
use futures::future::BoxFuture;

use crate::config::{Config, IdentityMeans};
use crate::kubernetes::Cluster;
use content::EntryRules;
use parent::Parents;
use spire_server::SpireServer;
use static_entry::StaticEntries;

/// The issuer that these settings name. Nothing is called yet.
///
/// # Errors
/// A setting that no entry could be made with; its name and what to do are in the text.
pub fn issuer(config: &Config, cluster: Cluster) -> anyhow::Result<Arc<dyn IdentityIssuer>> {
    let pods = config.pods.as_deref().context("COMPONENTS: identity entries are for Pods; add pod-worker")?;
    let rules = EntryRules::new(config, &pods.namespace, &pods.service_account)?;
    let parents = Parents::new(&pods.identity.parent, &rules.identity, &cluster)?;
    Ok(match &pods.identity.means {
        IdentityMeans::Entries { class } => {
            Arc::new(StaticEntries::new(cluster, &config.instance, class, rules, parents))
        }
        IdentityMeans::Server { socket } => Arc::new(SpireServer::new(socket, &config.instance, rules, parents)),
    })
}

/// Writes entries for Pods. Every call may be repeated: an entry that is there already with the same content is success.
pub trait IdentityIssuer: Send + Sync + 'static {
    /// Makes the Pod's entry, or replaces one of ours with other content (POD-6, NEW-75). [`Standing::Pending`] is worth
    /// another call, until the Pod shows its identity or runs out of time.
    ///
    /// # Errors
    /// [`IssueError`]; the entry may exist, call again.
    fn bind(&self, pod: BoundPod) -> BoxFuture<'_, Result<Standing, IssueError>>;

    /// Takes the Pod's entry away; one that is not there is success (POD-7).
    ///
    /// # Errors
    /// [`IssueError`]; call again.
    fn release(&self, pod: PodKey) -> BoxFuture<'_, Result<(), IssueError>>;

    /// Looks at all entries of ours beside `live`, a complete list of Pods. Takes away those whose Pod is not in it for the
    /// second time in a row, and tells which Pods have lost theirs (NEW-75).
    ///
    /// # Errors
    /// [`IssueError`] when our entries could not be listed; nothing is deleted then.
    fn sweep(&self, live: Vec<PodKey>) -> BoxFuture<'_, Result<Swept, IssueError>>;
}

/// What a look at all entries brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many without a Pod went.
    pub removed: usize,
    /// Live Pods for which this process had written or found an entry that is gone now, or says something else: worth another
    /// [`IdentityIssuer::bind`].
    pub amiss: Vec<PodKey>,
}

/// Which Pod, also after another one took its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    /// Its name in our namespace.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A Pod that has a node, and the identity it is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundPod {
    /// Which Pod.
    pub key: PodKey,
    /// The name of its node.
    pub node: String,
    /// Whose executor it is.
    pub assignment: AssignmentId,
    /// The identity.
    pub spiffe_id: SpiffeId,
}

/// What has become of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// SPIRE has it, as far as it tells.
    Bound,
    /// It is written, and SPIRE has not said that it took it.
    Pending,
    /// SPIRE refuses it.
    Rejected {
        /// In SPIRE's words.
        cause: String,
    },
}

/// An entry could not be written, read or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// It never can.
    #[error("{cause}")]
    Refused {
        /// The thing and the rule.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// Worth a retry.
    #[error("{cause}")]
    Later {
        /// What happened.
        cause: String,
    },
}
