//! The calls for the Lease. Each is bounded by [`Times::call`] and nothing is tried again here.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use sha2::{Digest as _, Sha256};

use super::super::renew;
use super::super::rules::{Heard, Seen, Times};
use super::{KubernetesLease, events};
use crate::kubernetes::{Cluster, Refusal, RefusalKind};

/// How long a Lease without a holder lasts, as client-go writes it.
const FREE_SECONDS: i32 = 1;

/// One session at one Lease.
pub(super) struct Store {
    cluster: Cluster,
    name: String,
    /// Ours alone: the replica's name, the session, and the place.
    identity: String,
    times: Times,
    known: Mutex<Known>,
}

/// What is there, and for how long its holder leads without writing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) seen: Seen,
    pub(super) lasts: Option<Duration>,
}

/// The object as it was seen last. Versions of Kubernetes are compared for equality only; what they are here is counted:
/// a read is never older than the write it follows.
#[derive(Default)]
struct Known {
    revision: u64,
    lease: Option<Lease>,
}

impl Known {
    /// Takes note of what is there, and tells its number.
    fn note(&mut self, lease: Option<Lease>) -> u64 {
        let version = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.metadata.resource_version.clone());
        if version(&self.lease) != version(&lease) {
            self.revision += 1;
        }
        self.lease = lease;
        self.revision
    }
}

impl Store {
    /// A new session.
    pub(super) fn open(lease: &KubernetesLease) -> Result<Self, String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random)
            .map_err(|cause| format!("the system gave no random number for the session ({cause})"))?;
        Ok(Self {
            cluster: lease.cluster.clone(),
            name: lease.name.clone(),
            identity: identity(&lease.holder, u128::from_ne_bytes(random), lease.place.as_deref()),
            times: lease.times,
            known: Mutex::default(),
        })
    }

    /// What is there, asked of the store behind the API server and not of its cache.
    pub(super) async fn find(&self) -> Result<Found, Refusal> {
        let lease = self.in_time(self.api().get_opt(&self.name)).await?;
        let revision = self.note(lease.clone());
        Ok(lease.map_or(Found { seen: Seen::Nothing, lasts: None }, |lease| found(&lease, &self.identity, revision)))
    }

    /// Says that we lead, when we have written ourselves in.
    pub(super) fn began(&self) -> Option<Event> {
        self.says("became leader")
    }

    fn says(&self, what: &str) -> Option<Event> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = known.lease.as_ref()?;
        Some(events::on(lease, self.cluster.namespace(), &format!("{} {what}", self.identity)))
    }

    async fn put(&self, expected: u64, change: impl FnOnce(Option<LeaseSpec>) -> LeaseSpec) -> Result<Heard, Refusal> {
        let Some(mut lease) = self.replaceable(expected) else { return Ok(Heard::Refused) };
        lease.spec = Some(change(lease.spec));
        let (api, how) = (self.api(), PostParams::default());
        let written = if expected == 0 {
            self.in_time(api.create(&how, &lease)).await
        } else {
            self.in_time(api.replace(&self.name, &how, &lease)).await
        };
        match written {
            Ok(lease) => Ok(Heard::Stored { revision: self.note(Some(lease)) }),
            Err(refusal) if is_outrun(refusal.kind, expected) => Ok(Heard::Refused),
            Err(refusal) => Err(refusal),
        }
    }

    /// The object to write on: the one of that number with its version and UID, or a new one for 0.
    fn replaceable(&self, expected: u64) -> Option<Lease> {
        if expected == 0 {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            return Some(Lease { metadata, spec: None });
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lease = known.lease.clone().filter(|_| known.revision == expected)?;
        // Not ours to say.
        lease.metadata.managed_fields = None;
        Some(lease)
    }

    fn note(&self, lease: Option<Lease>) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).note(lease)
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.client(), self.cluster.namespace())
    }

    async fn in_time<T>(&self, call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Refusal> {
        let limit = self.times.call();
        tokio::time::timeout(limit, self.cluster.at_once(call)).await.unwrap_or_else(|_| Err(Refusal::silent(limit)))
    }
}

impl renew::Store for Store {
    type Trouble = Refusal;

    async fn look(&self) -> Result<Seen, Refusal> {
        Ok(self.find().await?.seen)
    }

    async fn write(&self, expected: u64) -> Result<Heard, Refusal> {
        self.put(expected, |before| held(before.unwrap_or_default(), &self.identity, &self.times, Timestamp::now()))
            .await
    }

    async fn write_free(&self, expected: u64) -> Result<Heard, Refusal> {
        let heard = self.put(expected, |before| free(before.unwrap_or_default(), Timestamp::now())).await?;
        if matches!(heard, Heard::Stored { .. }) {
            events::tell(&self.cluster, self.says("stopped leading")).await;
        }
        Ok(heard)
    }

    fn times(&self) -> &Times {
        &self.times
    }
}

/// Whether somebody else was faster: the object that was to be replaced has another version or is gone, or one that was
/// to be made is there. A namespace that is missing is said of a new one only.
fn is_outrun(kind: RefusalKind, expected: u64) -> bool {
    match kind {
        RefusalKind::Exists | RefusalKind::Conflict => true,
        RefusalKind::NotFound => expected != 0,
        _ => false,
    }
}

/// What a place is called in an identity: nobody but its next holder has to recognise it.
pub(super) fn place(named: &str) -> String {
    let digest = Sha256::digest(named);
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// What tells a session from every other.
fn identity(holder: &str, session: u128, place: Option<&str>) -> String {
    let place = place.map(|place| format!("@{place}")).unwrap_or_default();
    format!("{holder}_{session:032x}{place}")
}

/// What an object says to the holder of `identity`.
fn found(lease: &Lease, identity: &str, revision: u64) -> Found {
    let spec = lease.spec.clone().unwrap_or_default();
    let lasts =
        spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    let seen = match spec.holder_identity {
        None => Seen::Free { revision },
        Some(holder) if holder.is_empty() => Seen::Free { revision },
        Some(holder) if holder == identity => Seen::Ours { revision },
        Some(holder) => {
            let place = holder.rsplit_once('@').map(|(_, place)| place.to_owned());
            Seen::Theirs { revision, holder, place }
        }
    };
    Found { seen, lasts: lasts.map(Duration::from_secs) }
}

/// A Lease that `identity` holds from now on, or still.
fn held(before: LeaseSpec, identity: &str, times: &Times, now: Timestamp) -> LeaseSpec {
    let still = before.holder_identity.as_deref() == Some(identity);
    let transitions = match (&before.holder_identity, before.lease_transitions) {
        // Nobody ever held it.
        (None, None) => 0,
        (_, transitions) => transitions.unwrap_or_default().saturating_add(i32::from(!still)),
    };
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(seconds(times.lease)),
        acquire_time: before.acquire_time.filter(|_| still).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..before
    }
}

/// A Lease that its holder gives up.
fn free(before: LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(FREE_SECONDS),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..before
    }
}

/// Whole seconds, none lost.
fn seconds(length: Duration) -> i32 {
    let whole = length.as_secs() + u64::from(length.subsec_nanos() > 0);
    i32::try_from(whole).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TIMES: Times = Times {
        lease: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn of(spec: LeaseSpec) -> Lease {
        Lease { metadata: ObjectMeta::default(), spec: Some(spec) }
    }

    /// SCH-10, NEW-59: the object is client-go's: who, since when, for how long, and how often it changed hands.
    #[test]
    fn a_lease_says_who_holds_it() {
        let first = held(LeaseSpec::default(), "a", &TIMES, at(0));
        assert_eq!((first.lease_transitions, first.lease_duration_seconds), (Some(0), Some(15)));
        let renewed = held(first.clone(), "a", &TIMES, at(2));
        assert_eq!((&renewed.acquire_time, &renewed.renew_time), (&Some(MicroTime(at(0))), &Some(MicroTime(at(2)))));
        assert_eq!(renewed.lease_transitions, Some(0));
        let given_up = free(renewed.clone(), at(3));
        assert_eq!((given_up.holder_identity.as_deref(), given_up.lease_duration_seconds), (Some(""), Some(1)));
        for before in [renewed, given_up] {
            let next = held(before, "b", &TIMES, at(4));
            assert_eq!((next.holder_identity.as_deref(), next.lease_transitions), (Some("b"), Some(1)));
            assert_eq!((next.acquire_time, next.lease_duration_seconds), (Some(MicroTime(at(4))), Some(15)));
        }
        assert_eq!(seconds(Duration::from_millis(1_200)), 2);
        assert_eq!(seconds(Duration::from_millis(0)), 1);
    }

    /// NEW-59, F48: what is read is judged by the identity; one without is nobody's; a holder says how long it leads.
    #[test]
    fn an_identity_knows_itself() {
        let held = held(LeaseSpec::default(), "a_1", &TIMES, at(0));
        let lasts = Some(TIMES.lease);
        assert_eq!(found(&of(held.clone()), "a_1", 7), Found { seen: Seen::Ours { revision: 7 }, lasts });
        let theirs = Seen::Theirs { revision: 7, holder: "a_1".to_owned(), place: None };
        assert_eq!(found(&of(held.clone()), "a_2", 7), Found { seen: theirs, lasts });
        for spec in [LeaseSpec::default(), free(held, at(1))] {
            assert_eq!(found(&of(spec), "a_1", 7).seen, Seen::Free { revision: 7 });
        }
        let odd = LeaseSpec { lease_duration_seconds: Some(-1), ..LeaseSpec::default() };
        assert_eq!(found(&of(odd), "a", 1).lasts, None);
    }

    /// NEW-59, NEW-60: the place of a holder stands in its identity, and goes with it when somebody else writes himself in.
    #[test]
    fn an_identity_names_its_place() {
        let (here, elsewhere) = (place("boot 1:2"), place("boot 1:3"));
        assert_ne!(here, elsewhere);
        let left = held(LeaseSpec::default(), &identity("a", 1, Some(&here)), &TIMES, at(0));
        let seen = |spec: &LeaseSpec, identity: &str| match found(&of(spec.clone()), identity, 7).seen {
            Seen::Theirs { place, .. } => place,
            other => panic!("{other:?}"),
        };
        assert_eq!(seen(&left, &identity("a", 2, Some(&here))), Some(here));
        let another = LeaseSpec { holder_identity: Some(identity("b", 3, None)), ..left };
        assert_eq!(seen(&another, "a"), None);
    }

    /// NEW-59: versions are counted as they come, and never compared as numbers.
    #[test]
    fn every_version_is_another_revision() {
        let version = |text: &str| {
            let metadata = ObjectMeta { resource_version: Some(text.to_owned()), ..ObjectMeta::default() };
            Some(Lease { metadata, spec: None })
        };
        let mut known = Known::default();
        let seen = [None, version("9"), version("9"), version("10"), version("x"), None, version("9")];
        assert_eq!(seen.map(|lease| known.note(lease)), [0, 1, 1, 2, 3, 4, 5]);
    }

    /// NEW-59, F49: a refusal that says who was faster, and one that says that it cannot be.
    #[test]
    fn being_outrun_is_no_trouble() {
        assert!(is_outrun(RefusalKind::Exists, 0) && is_outrun(RefusalKind::Conflict, 3));
        assert!(is_outrun(RefusalKind::NotFound, 3) && !is_outrun(RefusalKind::NotFound, 0));
        assert!(!is_outrun(RefusalKind::Unavailable, 3) && !is_outrun(RefusalKind::Forbidden, 3));
    }
}
