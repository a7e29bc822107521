//! Which agent may hand an identity out: the one of the Pod's node, or the same for every Pod (NEW-67).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::identity::{IdentityRules, Segment};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::Instant;

use super::IssueError;
use super::content::AgentId;
use crate::config::EntryParent;
use crate::kubernetes::{Cluster, RefusalKind};

/// How long a node's UID is believed: a burst of Pods asks once for each node. Shorter than a node takes to be registered
/// anew under its name and to be given a Pod: that one would wait in vain for an identity from the agent that was there.
const BELIEVED: Duration = Duration::from_secs(1);

/// Finds parents.
pub(super) enum Parents {
    /// One for every Pod.
    Fixed(AgentId),
    /// The agent of its node.
    OfNode(Box<Nodes>),
}

/// Nodes and their UIDs.
pub(super) struct Nodes {
    cluster: Cluster,
    rules: IdentityRules,
    name: Segment,
    seen: Mutex<HashMap<String, (Segment, Instant)>>,
}

impl Parents {
    /// What these settings say.
    ///
    /// # Errors
    /// A fixed parent of another trust domain, which SPIRE would refuse without a word.
    pub(super) fn new(parent: &EntryParent, rules: &IdentityRules, cluster: &Cluster) -> anyhow::Result<Self> {
        match parent {
            EntryParent::Fixed(id) => {
                anyhow::ensure!(
                    id.trust_domain() == rules.trust_domain.as_str(),
                    "SPIRE_AGENT_ID: {id} is not in TRUST_DOMAIN {}; name an agent or an alias of that one",
                    rules.trust_domain
                );
                Ok(Self::Fixed(AgentId::named(id)))
            }
            EntryParent::OfNode { cluster: name } => {
                let (cluster, rules, name) = (cluster.clone(), rules.clone(), name.clone());
                Ok(Self::OfNode(Box::new(Nodes { cluster, rules, name, seen: Mutex::default() })))
            }
        }
    }

    /// The parent of a Pod on this node.
    pub(super) async fn of(&self, node: &str) -> Result<AgentId, IssueError> {
        match self {
            Self::Fixed(agent) => Ok(agent.clone()),
            Self::OfNode(nodes) => nodes.agent(node).await,
        }
    }
}

impl Nodes {
    async fn agent(&self, node: &str) -> Result<AgentId, IssueError> {
        let uid = match self.believed(node) {
            Some(uid) => uid,
            None => self.ask(node).await?,
        };
        Ok(AgentId::of_node(&self.rules, &self.name, &uid))
    }

    fn believed(&self, node: &str) -> Option<Segment> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, (_, since)| since.elapsed() < BELIEVED);
        seen.get(node).map(|(uid, _)| uid.clone())
    }

    async fn ask(&self, node: &str) -> Result<Segment, IssueError> {
        let later = |why: String| IssueError::Later { cause: format!("the agent of node {node} is not known: {why}") };
        let nodes: Api<Node> = Api::all(self.cluster.client());
        let found = self.cluster.within(nodes.get_opt(node)).await.map_err(|refusal| {
            let instead = if refusal.kind == RefusalKind::Forbidden { ", or set SPIRE_AGENT_ID" } else { "" };
            later(format!("{refusal}{instead}"))
        })?;
        let uid = found.ok_or_else(|| later("there is no such node any more".to_owned()))?.metadata.uid;
        let uid = uid.and_then(|uid| uid.parse::<Segment>().ok()).ok_or_else(|| later("it has no UID".to_owned()))?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(node.to_owned(), (uid.clone(), Instant::now()));
        Ok(uid)
    }
}
