//! The Kubernetes API: how it is reached, and what its refusals mean. Everything known of the client library that two
//! rooms need is here.
//!
//! Invariants: every call has a time limit ([`Cluster::within`]), since an API server without its store hangs instead of
//! failing; no more than [`AT_ONCE`] are under way, whatever a restart with thousands of Pods brings at once; the client
//! never repeats a call by itself, because retries live in the rooms' named loops (invariant 8); the token is read anew
//! from its file by the client, at most a minute late, and is shown nowhere.

pub mod events;
mod refusal;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use kube::config::AuthInfo;
use kube::core::request;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::ClusterAccess;

pub use refusal::{QUOTA, Refusal, RefusalKind};

/// The longest that any one call may take, watches excepted.
pub const CALL: Duration = Duration::from_secs(20);
/// Calls under way; each has a connection of its own, since the client speaks HTTP/1.1. What comes beyond them waits.
pub const AT_ONCE: usize = 64;
/// The longest that a call waits for others: it has as long for itself then, and no call is begun at its own deadline.
const TURN: Duration = Duration::from_secs(10);
/// To connect.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to one cluster. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
    places: Arc<Semaphore>,
}

/// A request as the library builds it, or why it could not.
pub type Request = Result<http::Request<Vec<u8>>, request::Error>;

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
        Ok(Self::of(client, namespace))
    }

    fn of(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), places: Arc::new(Semaphore::new(AT_ONCE)) }
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

    /// Waits for one call, and for its place among the others, [`CALL`] at most.
    ///
    /// # Errors
    /// What the server refused, or that it did not answer: then the call may have been carried out.
    pub async fn within<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Refusal> {
        let until = Instant::now() + CALL;
        let Ok(_place) = timeout(TURN, self.places.acquire()).await else { return Err(Refusal::crowded(TURN)) };
        answered(timeout_at(until, call).await)
    }

    /// Sends a request and reads of its answer what `T` keeps, and nothing else.
    ///
    /// # Errors
    /// As [`Cluster::within`].
    pub async fn ask<T: DeserializeOwned>(&self, request: Request) -> Result<T, Refusal> {
        self.within(async { self.client.request(request.map_err(kube::Error::BuildRequest)?).await }).await
    }

    /// The same, with its answer as it came.
    ///
    /// # Errors
    /// As [`Cluster::within`].
    pub async fn ask_for_text(&self, request: Request) -> Result<String, Refusal> {
        self.within(async { self.client.request_text(request.map_err(kube::Error::BuildRequest)?).await }).await
    }

    /// [`Cluster::within`] for what must not wait behind others: the Lease, which is lost when it is not renewed (SCH-10), and the
    /// watch, of which there is one.
    ///
    /// # Errors
    /// As [`Cluster::within`].
    pub async fn at_once<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Refusal> {
        answered(timeout(CALL, call).await)
    }
}

fn answered<T>(answer: Result<Result<T, kube::Error>, Elapsed>) -> Result<T, Refusal> {
    answer.map_or_else(|_| Err(Refusal::silent(CALL)), |answer| answer.map_err(|error| Refusal::of(&error)))
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    /// NEW-11: however many calls are wanted at once, so many are under way; one that hangs costs its place until its
    /// deadline and no longer, and the Lease waits for nobody.
    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_a_place() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let (cluster, begun) = (Cluster::of(client, "here"), AtomicUsize::new(0));
        let hang = || async {
            begun.fetch_add(1, Ordering::Relaxed);
            pending::<Result<(), kube::Error>>().await
        };
        let many = join_all((0..3 * AT_ONCE).map(|_| cluster.within(hang())));
        let renewal = async {
            tokio::time::sleep(CALL / 2).await;
            let at = tokio::time::Instant::now();
            cluster.at_once(async { Ok(()) }).await.unwrap();
            at.elapsed()
        };
        let (refused, waited) = tokio::join!(many, renewal);
        let hung = refused.iter().filter(|answer| **answer == Err(Refusal::silent(CALL))).count();
        let crowded = refused.iter().filter(|answer| **answer == Err(Refusal::crowded(TURN))).count();
        assert_eq!((hung, crowded), (AT_ONCE, 2 * AT_ONCE));
        assert_eq!((begun.load(Ordering::Relaxed), waited), (AT_ONCE, Duration::ZERO));
        assert_eq!(cluster.within(async { Ok(7) }).await, Ok(7));
    }
}
