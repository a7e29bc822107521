//! The controller's own identity, and the TLS side of the facade.
//!
//! It comes through the standard Workload API, whoever issues it. Only the SVID with exactly our ID is used; its
//! rotation and that of the bundle reach every new handshake by themselves and touch no connection (FAC-13).

use std::{
    collections::BTreeSet,
    fmt,
    str::FromStr as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::identity::SpiffeId;
use jiff::Timestamp;
use spiffe::{X509Source, X509Svid, x509_source::SvidPicker};
use spiffe_rustls::{LocalOnly, TerminalSourcePolicy, TlsStatus, authorizer};
use tokio_rustls::TlsAcceptor;

use super::peer::{lifetime, not_after};

/// Pauses between two tries to reach the Workload API.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Bounds what a chatty Workload API can make an error text of.
const MOST_OFFERS: usize = 16;

/// A live X.509-SVID for exactly our ID, kept current in the background.
pub struct OwnIdentity {
    source: X509Source,
    acceptor: TlsAcceptor,
    status: TlsStatus,
}

/// Waits up to `patience` for the Workload API at `endpoint` (`unix:///…` or `tcp://IP:port`) to offer `id`.
///
/// # Errors
/// [`NoIdentity`] after `patience`, or at once for a malformed endpoint or a server that is no Workload API.
pub async fn own_identity(endpoint: &str, id: &SpiffeId, patience: Duration) -> Result<OwnIdentity, NoIdentity> {
    let offers = Arc::default();
    let refuse = |cause: &dyn fmt::Display| NoIdentity {
        expected: id.clone(),
        endpoint: endpoint.to_owned(),
        offered: listed(&offers),
        cause: cause.to_string(),
    };
    let wanted = spiffe::SpiffeId::from_str(&id.to_string()).map_err(|error| refuse(&error))?;
    let source = X509Source::builder()
        .endpoint(endpoint)
        .picker(ExactPicker { wanted: wanted.clone(), offers: Arc::clone(&offers) })
        .reconnect_backoff(RECONNECT.0, RECONNECT.1)
        .initial_sync_timeout(patience)
        .build()
        .await
        .map_err(|error| refuse(&error))?;
    let (config, status) = spiffe_rustls::mtls_server(source.clone())
        // Who may do what is decided per call, against the live assignments; here only who can be at all.
        .authorize(authorizer::any())
        .trust_domain_policy(LocalOnly(wanted.trust_domain().clone()))
        .terminal_source_policy(TerminalSourcePolicy::FailClosed)
        .with_alpn_protocols(["http/1.1"])
        .build_with_status()
        .map_err(|error| refuse(&error))?;
    Ok(OwnIdentity { source, acceptor: TlsAcceptor::from(Arc::new(config)), status })
}

impl OwnIdentity {
    /// Accepts clients with an X.509-SVID of our own trust domain and nobody else, over HTTP/1.1, without session
    /// resumption, which would skip the check. While our own SVID is withdrawn it accepts nobody.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// When the current SVID ends; `None` while there is none.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        not_after(self.source.svid().ok()?.leaf().as_bytes())
    }

    /// How long the current SVID lives in all; `None` while there is none.
    #[must_use]
    pub fn lifetime(&self) -> Option<Duration> {
        lifetime(self.source.svid().ok()?.leaf().as_bytes())
    }

    /// Whether a handshake could succeed now, for readiness.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.status.current().available
    }
}

/// Our own identity did not arrive.
#[derive(Debug, thiserror::Error)]
#[error(
    "the Workload API at {endpoint} did not offer {expected} ({cause}); offered instead: {offered}; check the \
         registration entry of the controller and its selectors"
)]
pub struct NoIdentity {
    /// The ID that was waited for.
    pub expected: SpiffeId,
    /// Who was asked.
    pub endpoint: String,
    /// The other IDs that were seen, as text.
    pub offered: String,
    /// What the last try ended with.
    pub cause: String,
}

type Offers = Mutex<BTreeSet<String>>;

fn listed(offers: &Offers) -> String {
    let offers = offers.lock().unwrap_or_else(PoisonError::into_inner);
    if offers.is_empty() { "nothing".to_owned() } else { offers.iter().cloned().collect::<Vec<_>>().join(", ") }
}

/// Picks by exact ID and remembers what else was there.
struct ExactPicker {
    wanted: spiffe::SpiffeId,
    offers: Arc<Offers>,
}

impl SvidPicker for ExactPicker {
    fn pick_svid(&self, svids: &[Arc<X509Svid>]) -> Option<usize> {
        let found = svids.iter().position(|svid| *svid.spiffe_id() == self.wanted);
        if found.is_none() {
            let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
            let others = svids.iter().map(|svid| svid.spiffe_id().to_string());
            offers.extend(others.take(MOST_OFFERS));
        }
        found
    }
}
