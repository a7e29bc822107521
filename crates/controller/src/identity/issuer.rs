//! The built-in issuer: keeps its authorities current and signs what the served sockets hand out.
//!
//! There is no task of its own. Whoever holds a stream open looks after the authorities in passing; while nobody does,
//! nobody needs them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use domain::identity::{SpiffeId, TrustDomain};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::{
    authority::{Authority, AuthorityError, Due, Leaf, due, signer},
    lifetimes::Lifetimes,
    serve::ServedIdentity,
    socket::{SocketAccess, SocketError},
    store::{Store, StoreError},
};

/// Pause after a failure to write the authorities. The one in use lives on; nothing is urgent.
const PAUSE_AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(60);

/// Everything that is trusted now, oldest first, never empty.
pub(super) type Authorities = Arc<Vec<Arc<Authority>>>;

/// An issuer of X.509-SVIDs for one trust domain with its own certificate authority. Cheap to clone.
#[derive(Clone)]
pub struct BuiltInIssuer(Arc<Issuer>);

struct Issuer {
    store: Store,
    domain: TrustDomain,
    lifetimes: Lifetimes,
    authorities: watch::Sender<Authorities>,
    /// Held over a change of the authorities; when to try again after a failed one.
    changing: tokio::sync::Mutex<Timestamp>,
}

/// The issuer cannot begin, or cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The authorities cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A certificate cannot be made.
    #[error("the certificate authority cannot be made: {0}")]
    Certificate(String),
    /// The socket cannot be served.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// An ID of another trust domain.
    #[error("{id} is not in the trust domain {domain} of this issuer")]
    ForeignId {
        /// What was asked for.
        id: SpiffeId,
        /// What this issuer can sign for.
        domain: TrustDomain,
    },
}

impl From<AuthorityError> for IssuerError {
    fn from(error: AuthorityError) -> Self {
        Self::Certificate(error.to_string())
    }
}

impl BuiltInIssuer {
    /// Opens the authorities in `dir`, or makes the first one there (mode 0600, written atomically), with the default
    /// [`Lifetimes`].
    ///
    /// # Errors
    /// A file that is damaged, readable by others or of another trust domain; a folder that cannot be written.
    pub fn open(dir: &Path, domain: &TrustDomain) -> Result<Self, IssuerError> {
        Self::open_with(dir, domain, Lifetimes::default())
    }

    /// [`BuiltInIssuer::open`] with other lifetimes.
    ///
    /// # Errors
    /// As [`BuiltInIssuer::open`].
    pub fn open_with(dir: &Path, domain: &TrustDomain, lifetimes: Lifetimes) -> Result<Self, IssuerError> {
        let store = Store::new(dir, domain);
        let authorities = match store.load()? {
            Some(authorities) => authorities,
            None => {
                store.create(&[Arc::new(Authority::make(domain, Timestamp::now(), lifetimes.authority)?)])?;
                store.load()?.unwrap_or_default()
            }
        };
        let authorities = Arc::new(authorities.into_iter().map(Arc::new).collect());
        Ok(Self(Arc::new(Issuer {
            store,
            domain: domain.clone(),
            lifetimes,
            authorities: watch::Sender::new(authorities),
            changing: tokio::sync::Mutex::new(Timestamp::MIN),
        })))
    }

    /// Serves the SPIFFE Workload API for exactly `id` on a Unix socket that only this user can open (mode 0600).
    ///
    /// Costs a socket and a small task; keys are made when somebody asks. A socket file that nobody listens on is
    /// replaced.
    ///
    /// # Errors
    /// An ID of another trust domain; a path of 108 bytes or more; a path that something else occupies.
    pub async fn serve(&self, socket: PathBuf, id: SpiffeId) -> Result<ServedIdentity, IssuerError> {
        self.serve_for(socket, id, SocketAccess::default()).await
    }

    /// [`BuiltInIssuer::serve`] for a socket that another user opens.
    ///
    /// # Errors
    /// As [`BuiltInIssuer::serve`].
    pub async fn serve_for(
        &self,
        socket: PathBuf,
        id: SpiffeId,
        access: SocketAccess,
    ) -> Result<ServedIdentity, IssuerError> {
        if id.trust_domain() != self.0.domain.as_str() {
            return Err(IssuerError::ForeignId { id, domain: self.0.domain.clone() });
        }
        Ok(ServedIdentity::start(self.clone(), socket, id, access).await?)
    }

    /// Everything trusted now, and every change of it.
    pub(super) fn authorities(&self) -> watch::Receiver<Authorities> {
        self.0.authorities.subscribe()
    }

    pub(super) fn domain(&self) -> &TrustDomain {
        &self.0.domain
    }

    /// Signs a leaf with the authority whose turn it is.
    pub(super) fn issue(&self, id: &SpiffeId, now: Timestamp) -> Result<Leaf, AuthorityError> {
        let authorities = self.0.authorities.borrow().clone();
        let signer = signer(&authorities, now, &self.0.lifetimes)
            .ok_or(AuthorityError::Read("every authority of the issuer has ended"))?;
        authorities[signer].issue(id, now, self.0.lifetimes.leaf)
    }

    /// Does what is due about the authorities and tells when to look again. A failure is logged and tried again later:
    /// successors are made at half life, so that there is time.
    pub(super) async fn advance(&self, now: Timestamp) -> Timestamp {
        if let Due::NothingUntil(next) = self.due(now) {
            return next;
        }
        let mut try_again = self.0.changing.lock().await;
        loop {
            match self.due(now) {
                Due::NothingUntil(next) => return next,
                _ if *try_again > now => return *try_again,
                due => {
                    if let Err(error) = self.change(due, now).await {
                        tracing::error!(%error, "the certificate authority could not be renewed");
                        *try_again = now + PAUSE_AFTER_FAILURE;
                    }
                }
            }
        }
    }

    fn due(&self, now: Timestamp) -> Due {
        due(&self.0.authorities.borrow(), now, &self.0.lifetimes)
    }

    /// Stores the changed list and only then lets it count: a successor that signed and was forgotten would be a
    /// stranger after a restart. Only called under the `changing` lock.
    async fn change(&self, due: Due, now: Timestamp) -> Result<(), IssuerError> {
        let issuer = self.0.clone();
        let changed = tokio::task::spawn_blocking(move || issuer.changed(&due, now)).await;
        let changed = changed.map_err(|error| IssuerError::Certificate(error.to_string()))??;
        self.0.authorities.send_replace(Arc::new(changed));
        Ok(())
    }
}

impl Issuer {
    fn changed(&self, due: &Due, now: Timestamp) -> Result<Vec<Arc<Authority>>, IssuerError> {
        let mut list: Vec<_> = self.authorities.borrow().iter().cloned().collect();
        match due {
            Due::NothingUntil(_) => return Ok(list),
            Due::Successor => list.push(Arc::new(Authority::make(&self.domain, now, self.lifetimes.authority)?)),
            Due::Retirement => {
                let signer = signer(&list, now, &self.lifetimes).unwrap_or(0);
                for authority in &mut list[..signer] {
                    *authority = Arc::new(authority.retired());
                }
                list.retain(|authority| authority.not_after > now);
            }
        }
        self.store.replace(&list)?;
        Ok(list)
    }
}
