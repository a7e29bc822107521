//! The executor's own SPIFFE identity, and the only way it may open a connection to the facade.
//!
//! The Workload API may offer several SVIDs, in any order. Only the one whose ID is *exactly* the assigned ID is ever
//! used (NEW-111); the far side must be *exactly* the facade's ID (EXE-3). Rotation needs no help: every new handshake
//! takes what is current. A message without our SVID, or a withdrawal, blocks new handshakes until the SVID is back and
//! ends nothing that runs.
//!
//! Everything known of the `spiffe` crates on the executor's side is in this module.

mod connector;

use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::identity::SpiffeId;
use spiffe::{WorkloadApiClient, X509Source, X509Svid, x509_source::SvidPicker};
use spiffe_rustls::{LocalOnly, TerminalSourcePolicy, authorizer};

pub use connector::{ConnectError, FacadeConnector, is_refusal};

/// Shortest pause between two tries to reach the Workload API.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
/// Longest pause; the crate's own default of 10 s would be lost whenever the identity comes late, which for a VM task
/// is the rule.
const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// A live X.509-SVID for exactly one ID, kept current in the background until the last clone of the source is dropped.
pub struct Identity {
    source: X509Source,
    id: spiffe::SpiffeId,
}

/// Waits up to `patience` for the Workload API at `endpoint` (`unix:///…` or `tcp://IP:port`) to offer `id`.
///
/// "No identity issued", an absent socket and SVIDs of other IDs are all waited through, because an executor regularly
/// starts before its identity exists.
///
/// # Errors
/// [`NoIdentity`] after `patience`, or at once when the endpoint is malformed or its server is no Workload API. It tells
/// which IDs were offered instead.
pub async fn exact(endpoint: &str, id: &SpiffeId, patience: Duration) -> Result<Identity, NoIdentity> {
    let offers = Offers::default();
    let refuse = |cause: String| NoIdentity { expected: id.to_string(), offered: offers.list(), cause };
    let wanted = spiffe::SpiffeId::from_str(&id.to_string()).map_err(|error| refuse(error.to_string()))?;
    let source = X509Source::builder()
        .endpoint(endpoint)
        .picker(ExactPicker { wanted: wanted.clone(), offers: offers.clone() })
        .reconnect_backoff(RECONNECT_MIN, RECONNECT_MAX)
        .initial_sync_timeout(patience)
        .build()
        .await
        .map_err(|error| refuse(error.to_string()))?;
    Ok(Identity { source, id: wanted })
}

/// The IDs that the Workload API at `endpoint` gives to this process now, in its order: the first is the default one.
///
/// # Errors
/// In words: nobody there, no identity for this process, or no answer within `patience`.
pub async fn offered(endpoint: &str, patience: Duration) -> Result<Vec<String>, String> {
    let asked = async {
        let client = WorkloadApiClient::connect_to(endpoint).await.map_err(|error| error.to_string())?;
        client.fetch_all_x509_svids().await.map_err(|error| error.to_string())
    };
    let late = |_| format!("no answer within {} s", patience.as_secs());
    let svids = tokio::time::timeout(patience, asked).await.map_err(late)??;
    Ok(svids.iter().map(|svid| svid.spiffe_id().to_string()).collect())
}

impl Identity {
    /// What dials the facade over mutual TLS: presents our SVID, accepts a server with exactly the facade's ID in our own
    /// trust domain, never resumes a session (a resumed one would skip the check), speaks HTTP/1.1.
    ///
    /// # Errors
    /// [`ConnectError::Material`] when our SVID is unusable at this very moment; a later call may succeed.
    pub fn connector(&self, facade: &SpiffeId) -> Result<FacadeConnector, ConnectError> {
        let facade = authorizer::exact([facade.to_string()]).map_err(|error| ConnectError::material(&error))?;
        let (config, status) = spiffe_rustls::mtls_client(self.source.clone())
            .authorize(facade)
            .trust_domain_policy(LocalOnly(self.id.trust_domain().clone()))
            .terminal_source_policy(TerminalSourcePolicy::FailClosed)
            .with_alpn_protocols([b"http/1.1"])
            .build_with_status()
            .map_err(|error| ConnectError::material(&error))?;
        Ok(FacadeConnector::new(config, status))
    }

    /// Whether a handshake could present our SVID now. False between a withdrawal and the identity's return.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.source.state().is_usable()
    }
}

/// The assigned identity did not arrive.
#[derive(Debug, thiserror::Error)]
#[error(
    "the Workload API did not offer {expected} ({cause}); offered instead: {}; check the registration entry of this \
     executor and its selectors",
    listed(.offered)
)]
pub struct NoIdentity {
    /// The ID that was assigned.
    pub expected: String,
    /// Every other ID that was seen while waiting, sorted. Empty when nothing was issued at all.
    pub offered: Vec<String>,
    /// What the last try ended with.
    pub cause: String,
}

fn listed(ids: &[String]) -> impl fmt::Display {
    if ids.is_empty() { "nothing".to_owned() } else { ids.join(", ") }
}

/// Picks by exact ID and remembers what else was there.
struct ExactPicker {
    wanted: spiffe::SpiffeId,
    offers: Offers,
}

impl SvidPicker for ExactPicker {
    fn pick_svid(&self, svids: &[Arc<X509Svid>]) -> Option<usize> {
        let found = svids.iter().position(|svid| *svid.spiffe_id() == self.wanted);
        if found.is_none() {
            self.offers.record(svids.iter().map(|svid| svid.spiffe_id().to_string()));
        }
        found
    }
}

#[derive(Clone, Default)]
struct Offers(Arc<Mutex<BTreeSet<String>>>);

impl Offers {
    /// Bounds what a chatty Workload API can make us keep.
    const MOST: usize = 16;

    fn record(&self, ids: impl Iterator<Item = String>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            if seen.len() < Self::MOST {
                seen.insert(id);
            }
        }
    }

    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
