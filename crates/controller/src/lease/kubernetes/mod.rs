//! Leadership in a cluster: a Lease of Kubernetes, which its holder writes anew every 2 s and a standby takes over when it
//! saw the same version for as long as the Lease says, 15 s (SCH-10, NEW-59, NEW-60). The object is what client-go writes,
//! so that every tool shows who leads.
//!
//! Every write names the version it replaces, so of two that write only one succeeds. The holder's identity is the
//! replica's name, the session, which is one call of `acquire`, and its place where it has one, so that no tool that writes
//! another holder can leave ours beside it. Times are measured on this host alone; the times in the object
//! are for people, and no time of another host is compared.
//!
//! | what happens | what follows |
//! |---|---|
//! | a write fails, or is not answered in time | it may be stored, even later: read, and compare the identity; then written again on the version that was read |
//! | a write is refused (409), and another identity is read | not ours: lost at once, that is with the next renewal after it happened |
//! | a read fails or hangs | read again |
//! | nothing is confirmed for the renew deadline (10 s), or the right to write is taken away | the holder decides nothing until something is, or somebody else is seen (`Unconfirmed::Rests` in [`super::rules`]) |
//! | the object is deleted by hand | the holder has lost it with its next renewal; a standby that saw it held waits for the length of a lease all the same, one that is started anew does not |
//! | the holder is frozen past its deadline | [`super::Tenure::permits`] nothing before any timer runs; what it was about to send meanwhile is sent all the same, and fenced elsewhere |
//! | its holder was a process of the same place, which is gone | taken at once ([`KubernetesLease::at`]) |
//! | released in order | an empty identity and a duration of 1 s are written, which a standby takes with its next look (every 2 s) |
//! | the release is not answered | tried again for a moment; then a standby waits for the length of a lease |
//! | a standby is refused (rights, no such namespace) | it tries for the length of a lease, as rights may come a moment after the Pod, and then says what it needs ([`KubernetesLeaseError`]) |
//! | the API is away | a standby waits |

mod events;
mod store;
#[cfg(test)]
mod tests;

use std::time::Duration;

use domain::id::InstanceId;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::boot_time::BootTime;
use super::renew::{self, Store as _};
use super::rules::{Heard, Move, Standby, Term, Times};
use super::{Held, Leadership, LeaseError, announce};
use crate::kubernetes::{Cluster, Refusal, RefusalKind};
use store::{Found, Store};

/// The lease of one instance in a namespace.
#[derive(Clone)]
pub struct KubernetesLease {
    cluster: Cluster,
    name: String,
    holder: String,
    /// As it stands in an identity.
    place: Option<String>,
    times: Times,
}

/// Why a Lease cannot be used. Until then it was tried again.
#[derive(Debug, thiserror::Error)]
#[error(
    "Lease {name} in namespace {namespace}, tried for {} s: {cause}. Its user needs the verbs get, create and update on \
     leases (coordination.k8s.io) in this namespace, which must exist; apply the role of the chart, or set POD_NAMESPACE",
    waited.as_secs_f32()
)]
pub struct KubernetesLeaseError {
    /// The object.
    pub name: String,
    /// Where it is.
    pub namespace: String,
    /// How long it was tried.
    pub waited: Duration,
    /// What the server said last.
    pub cause: String,
}

impl KubernetesLease {
    /// The lease `dynamic-runner-scheduler-<instance>` (requirements §1.3) in the cluster's namespace; it is made where it
    /// is missing. `holder` is for people: the name of this replica.
    #[must_use]
    pub fn new(cluster: Cluster, instance: &InstanceId, holder: &str) -> Self {
        Self { cluster, name: Self::name_of(instance), holder: holder.to_owned(), place: None, times: Times::default() }
    }

    /// What the Lease of an instance is called.
    #[must_use]
    pub fn name_of(instance: &InstanceId) -> String {
        // What an instance is made of is legal in a name.
        format!("dynamic-runner-scheduler-{instance}")
    }

    /// Names what at most one living process works on and the caller holds ([`Held::place`]): then a Lease that was written
    /// at the same place is that of a process which is gone, and is not waited for.
    #[must_use]
    pub fn at(mut self, place: Option<&str>) -> Self {
        self.place = place.map(store::place);
        self
    }

    /// With other times, for tests.
    #[must_use]
    pub fn with_times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    async fn lead(&self) -> Result<Held, KubernetesLeaseError> {
        let store = Store::open(self).map_err(|cause| self.unusable(&cause))?;
        let mut standby = Standby::default();
        let (mut unread, mut unwritten) = (None, None);
        let mut announced = None;
        loop {
            let pause = match store.find().await {
                Ok(Found { seen, lasts }) => {
                    unread = None;
                    announce(&seen, &mut announced);
                    // Theirs to say: a holder with other settings than ours keeps to its own.
                    let times = Times { lease: lasts.unwrap_or(self.times.lease), ..self.times };
                    match standby.see(seen, self.place.as_deref(), BootTime::now(), &times) {
                        Move::Take { expected } => match self.take(&store, expected, &mut unwritten).await? {
                            Some(term) => {
                                let event = store.began();
                                let held = renew::hold(store, term);
                                // It is renewed meanwhile.
                                events::tell(&self.cluster, event).await;
                                return Ok(held);
                            }
                            None => self.times.retry,
                        },
                        Move::Wait(pause) => pause,
                    }
                }
                Err(refusal) => {
                    self.bear(&refusal, &mut unread)?;
                    self.times.pause()
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Writes us in. None when somebody else was faster, or when nobody can say.
    async fn take(
        &self,
        store: &Store,
        expected: u64,
        unwritten: &mut Option<BootTime>,
    ) -> Result<Option<Term>, KubernetesLeaseError> {
        let sent = BootTime::now();
        match store.write(expected).await {
            // An answer that comes too late begins a leadership that is over.
            Ok(Heard::Stored { revision }) => return Ok(Some(Term::new(self.times, revision, sent))),
            Ok(_) => *unwritten = None,
            Err(refusal) => self.bear(&refusal, unwritten)?,
        }
        Ok(None)
    }

    /// Bears a refusal for the length of a lease; `since` is when the row of them began. A server that is away is waited
    /// for.
    fn bear(&self, refusal: &Refusal, since: &mut Option<BootTime>) -> Result<(), KubernetesLeaseError> {
        if refusal.kind == RefusalKind::Unavailable {
            *since = None;
            return Ok(());
        }
        let now = BootTime::now();
        if now.after(*since.get_or_insert(now)) < self.times.lease {
            return Ok(());
        }
        Err(self.unusable(&refusal.message))
    }

    fn unusable(&self, cause: &str) -> KubernetesLeaseError {
        KubernetesLeaseError {
            name: self.name.clone(),
            namespace: self.cluster.namespace().to_owned(),
            waited: self.times.lease,
            cause: cause.to_owned(),
        }
    }
}

impl Leadership for KubernetesLease {
    fn acquire(&self) -> BoxFuture<'_, Result<Held, LeaseError>> {
        async move { Ok(self.lead().await?) }.boxed()
    }
}
