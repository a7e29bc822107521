//! The Kubernetes API: how it is reached, and what its refusals mean. Everything known of the client library that two
//! rooms need is here.
//!
//! Invariants: every call has a time limit ([`Cluster::within`]), since an API server without its store hangs instead of
//! failing; the client never repeats a call by itself, because retries live in the rooms' named loops (invariant 8); the
//! token is read anew from its file by the client, at most a minute late, and is shown nowhere.

pub mod events;
mod refusal;
#[cfg(test)]
pub(crate) mod testing;

use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use kube::config::AuthInfo;

use crate::config::ClusterAccess;

pub use refusal::{Refusal, RefusalKind};

/// The longest that any one call may take, watches excepted.
pub const CALL: Duration = Duration::from_secs(20);
/// To connect.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to one cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
}

/// The cluster cannot be talked to as the settings say.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {cause}")]
pub struct NoCluster {
    setting: &'static str,
    cause: String,
    /// What to do.
    pub remedy: &'static str,
}

impl Cluster {
    /// A client as `access` says, for objects in `namespace`. Nothing is called yet.
    ///
    /// # Errors
    /// Not in a cluster and no address given; a file of the access cannot be read.
    pub fn connect(access: &ClusterAccess, namespace: &str) -> Result<Self, NoCluster> {
        let mut config = access.config()?;
        config.default_namespace = namespace.to_owned();
        config.connect_timeout = Some(CONNECT);
        // Ours: `within` for calls, the watchers' own for watches.
        config.read_timeout = None;
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| NoCluster {
            setting: "KUBERNETES_API",
            cause: error.to_string(),
            remedy: "check KUBERNETES_API, KUBERNETES_CA_FILE and KUBERNETES_TOKEN_FILE",
        })?;
        Ok(Self { client, namespace: namespace.to_owned() })
    }

    /// The client, for typed access.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Where our objects are.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Waits for one call, [`CALL`] at most.
    ///
    /// # Errors
    /// What the server refused, or that it did not answer: then the call may have been carried out.
    pub async fn within<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Refusal> {
        match tokio::time::timeout(CALL, call).await {
            Ok(answer) => answer.map_err(|error| Refusal::of(&error)),
            Err(_) => Err(Refusal::silent(CALL)),
        }
    }
}

/// Deletes the object of this UID only, whoever has its name by then (NEW-2, POD-7).
#[must_use]
pub fn only_this(uid: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions { uid, resource_version: None })
}

impl ClusterAccess {
    fn config(&self) -> Result<kube::Config, NoCluster> {
        let Some(address) = &self.api else {
            return kube::Config::incluster_env().map_err(|error| NoCluster {
                setting: "KUBERNETES_API",
                cause: format!("this process is in no cluster ({error})"),
                remedy: "run it in a Pod with its service account's token, or set KUBERNETES_API, KUBERNETES_CA_FILE and \
                         KUBERNETES_TOKEN_FILE",
            });
        };
        let mut config = kube::Config::new(address.clone());
        config.root_cert_file.clone_from(&self.ca);
        config.auth_info =
            AuthInfo { token_file: self.token.as_ref().map(|path| path.display().to_string()), ..AuthInfo::default() };
        Ok(config)
    }
}
