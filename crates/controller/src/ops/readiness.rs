//! Whether the controller can do its work, and if not, why (NEW-131). Pure: rooms set conditions, time is passed in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A fetch that answered longer ago than this is no good fetch any more: one call may take 65 s, one back-off 30 s.
const FETCH_FRESH: Duration = Duration::from_secs(120);

/// An identity that ends sooner than this was not renewed. One that lives shorter than three times as long has a third
/// of its life: it is renewed at its half.
const SVID_MARGIN: Duration = Duration::from_secs(30);

/// Who keeps it depends on LEADER_ELECTION.
const IN_DOUBT: &str = "the lease is not confirmed by its server, NATS or the Kubernetes API: nothing is fetched, started or ended until it is";

/// How often Gitea was heard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fetch {
    /// Never since the start.
    #[default]
    NotYet,
    /// At this time.
    Good(Timestamp),
    /// The last call failed; `class` is the Connect code's word or `unreachable`, never an error's text.
    Failed {
        /// The class.
        class: &'static str,
        /// Since when nothing but failures.
        since: Timestamp,
    },
}

/// Our own identity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Svid {
    /// Not received.
    #[default]
    Missing,
    /// Received. Another one than `RUNNER_FACADE_SPIFFE_ID` is not received: the start waits for that one.
    Present {
        /// When it ends.
        expires_at: Timestamp,
        /// How long it lives (SVID_TTL).
        lifetime: Duration,
    },
}

/// Who leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leader {
    /// Somebody else, or nobody yet.
    #[default]
    Standby,
    /// We.
    Leading,
}

/// Every condition of readiness. The default is a process that has just started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Set by the fetch room.
    pub fetch: Fetch,
    /// Set by the facade.
    pub facade_listening: bool,
    /// Set by the identity room.
    pub svid: Svid,
    /// Set by the queue: what is wrong with it, in its own words.
    pub queue_trouble: Option<String>,
    /// Set by the connections to NATS: why one of them does not stand.
    pub connection_trouble: Option<String>,
    /// Set by the fetch room: why a task cannot be written into the queue. Reading it may go well meanwhile.
    pub unwritten: Option<String>,
    /// Set by the lease.
    pub leader: Leader,
    /// Set by the lease: nobody confirms it now, so nothing is decided.
    pub in_doubt: bool,
    /// Set by the shutdown.
    pub draining: bool,
}

/// One reason why the controller is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReady {
    /// A word of a closed list: `standby`, `no_good_fetch`, `queue_away`, `no_svid`, `svid_expiring`,
    /// `facade_not_listening`, `draining`.
    pub reason: String,
    /// One sentence for people.
    pub detail: String,
}

impl Conditions {
    /// Every reason that holds at this time; none means ready.
    #[must_use]
    pub fn reasons(&self, now: Timestamp) -> Vec<NotReady> {
        let all =
            [self.leadership(), self.fetching(now), self.queue(), self.identity(now), self.facade(), self.shutdown()];
        all.into_iter().flatten().collect()
    }

    fn leadership(&self) -> Option<NotReady> {
        (self.leader == Leader::Standby).then(|| because("standby", "another process leads, or none yet"))
    }

    fn fetching(&self, now: Timestamp) -> Option<NotReady> {
        if self.leader == Leader::Standby {
            return None;
        }
        let detail = match &self.fetch {
            Fetch::NotYet => "Gitea has not answered a fetch since the start".to_owned(),
            Fetch::Good(at) if within(*at, now, FETCH_FRESH) => return None,
            Fetch::Good(at) => format!("the last good fetch was at {at}"),
            Fetch::Failed { class, since } => format!("fetches fail with {class} since {since}"),
        };
        Some(because("no_good_fetch", detail))
    }

    fn queue(&self) -> Option<NotReady> {
        // The connection is the cause of what it makes fail.
        let trouble = self.connection_trouble.as_ref().or(self.unwritten.as_ref()).or(self.queue_trouble.as_ref());
        let in_doubt = || self.in_doubt.then(|| IN_DOUBT.to_owned());
        trouble.cloned().or_else(in_doubt).map(|trouble| because("queue_away", trouble))
    }

    fn identity(&self, now: Timestamp) -> Option<NotReady> {
        match self.svid {
            Svid::Missing => Some(because("no_svid", "the controller has no identity of its own yet")),
            Svid::Present { expires_at, lifetime } if within(now, expires_at, SVID_MARGIN.min(lifetime / 3)) => {
                Some(because("svid_expiring", format!("the identity ends at {expires_at} and was not renewed")))
            }
            Svid::Present { .. } => None,
        }
    }

    fn facade(&self) -> Option<NotReady> {
        (!self.facade_listening).then(|| because("facade_not_listening", "executors cannot reach the controller"))
    }

    fn shutdown(&self) -> Option<NotReady> {
        self.draining.then(|| because("draining", "the controller is ending"))
    }
}

fn because(reason: &str, detail: impl Into<String>) -> NotReady {
    NotReady { reason: reason.to_owned(), detail: detail.into() }
}

/// Whether `later` is less than `span` after `earlier`.
fn within(earlier: Timestamp, later: Timestamp, span: Duration) -> bool {
    later.duration_since(earlier).as_secs_f64() < span.as_secs_f64()
}

/// The conditions, shared between the rooms that set them and the server that tells them.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Conditions>>);

impl Readiness {
    /// Changes conditions. The lock is held for the closure only.
    pub fn set(&self, change: impl FnOnce(&mut Conditions)) {
        change(&mut self.lock());
    }

    /// Gitea answered a fetch.
    pub fn fetch_good(&self, now: Timestamp) {
        self.set(|c| c.fetch = Fetch::Good(now));
    }

    /// A fetch failed; the time of the first failure in a row stays.
    pub fn fetch_failed(&self, class: &'static str, now: Timestamp) {
        self.set(|c| {
            let since = if let Fetch::Failed { since, .. } = c.fetch { since } else { now };
            c.fetch = Fetch::Failed { class, since };
        });
    }

    /// The conditions as they are.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Conditions> {
        // A panic inside `set` cannot leave a half-written condition that matters: the next one overwrites it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(1_000_000 + second.unsigned_abs())
    }

    fn ready() -> Conditions {
        Conditions {
            fetch: Fetch::Good(at(0)),
            facade_listening: true,
            svid: lasting(1800, 1800),
            leader: Leader::Leading,
            ..Conditions::default()
        }
    }

    fn lasting(until: i64, lifetime: u64) -> Svid {
        Svid::Present { expires_at: at(until), lifetime: Duration::from_secs(lifetime) }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Conditions), now: i64, expect: &[&str]) {
        let mut conditions = ready();
        change(&mut conditions);
        let reasons: Vec<_> = conditions.reasons(at(now)).into_iter().map(|r| r.reason).collect();
        assert_eq!(reasons, expect);
    }

    /// NEW-131, F11: each condition has its word.
    #[test]
    fn every_reason() {
        check(|_| {}, 1, &[]);
        check(|c| c.fetch = Fetch::NotYet, 1, &["no_good_fetch"]);
        check(|_| {}, 119, &[]);
        check(|_| {}, 120, &["no_good_fetch"]);
        check(|c| c.fetch = Fetch::Failed { class: "unauthenticated", since: at(0) }, 1, &["no_good_fetch"]);
        check(|c| c.queue_trouble = Some("disk full".into()), 1, &["queue_away"]);
        check(|c| c.unwritten = Some("disk full".into()), 1, &["queue_away"]);
        check(|c| c.connection_trouble = Some("connection refused".into()), 1, &["queue_away"]);
        check(|c| c.in_doubt = true, 1, &["queue_away"]);
        check(|c| c.svid = Svid::Missing, 1, &["no_svid"]);
        check(|c| c.svid = lasting(30, 1800), 1, &["svid_expiring"]);
        check(|c| c.svid = lasting(0, 1800), 100, &["svid_expiring"]);
        check(|c| c.facade_listening = false, 1, &["facade_not_listening"]);
        check(|c| c.leader = Leader::Standby, 500, &["standby"]);
        check(|c| c.draining = true, 1, &["draining"]);
        let fresh = Conditions::default().reasons(at(0)).into_iter().map(|r| r.reason).collect::<Vec<_>>();
        assert_eq!(fresh, ["standby", "no_svid", "facade_not_listening"]);
    }

    /// NEW-131: an identity of 30 s is renewed at 15 s, and only one that was not renewed is about to end.
    #[test]
    fn a_short_identity_is_ready_until_its_renewal_is_late() {
        for (now, expect) in [(0, &[][..]), (20, &[]), (21, &["svid_expiring"])] {
            check(|c| c.svid = lasting(30, 30), now, expect);
        }
        for (now, expect) in [(60, &[][..]), (61, &["svid_expiring"])] {
            check(|c| c.svid = lasting(90, 90), now, expect);
        }
    }

    #[test]
    fn the_first_failure_in_a_row_counts() {
        let readiness = Readiness::default();
        readiness.fetch_failed("unavailable", at(1));
        readiness.fetch_failed("unreachable", at(2));
        assert_eq!(readiness.conditions().fetch, Fetch::Failed { class: "unreachable", since: at(1) });
        readiness.fetch_good(at(3));
        assert_eq!(readiness.conditions().fetch, Fetch::Good(at(3)));
    }
}
