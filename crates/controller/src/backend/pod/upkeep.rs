//! What is done for Pods that exist, whoever made them: their identity entries as soon as they have a node, the end of
//! their Secrets after the claim, a look at their events where they stand still, and the sweep of entries without a Pod.
//!
//! One object's failure stops nothing for the others, and each has its own pause (NEW-74).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::ListParams;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::care::{Chore, Identity, Secret};
use super::object::name_of;
use super::seen::Seen;
use super::trouble::Told;
use super::{ISSUER, Shared, care_of, ending, events};
use crate::identity::entry::{BoundPod, IssueError, PodKey, Standing, Swept};
use crate::kubernetes::events::went_wrong;
use crate::kubernetes::{Refusal, only_this};

/// Changes that come together are looked at together.
const TOGETHER: Duration = Duration::from_millis(10);
/// After a look at all of them at least so many times as long as it took: what it costs is bounded, however many there are.
const TIMES: u32 = 9;
/// Entries without a Pod are looked for so often; they go at the second look (NEW-75).
pub(super) const SWEEP: Duration = Duration::from_secs(30);
/// Nothing is due before this.
const IDLE: Duration = Duration::from_secs(60);

pub(super) async fn run(shared: &Arc<Shared>) {
    let mut chores = JoinSet::new();
    let mut sweeps = Sweeps::new();
    loop {
        let look = Instant::now();
        let next = begin_due(shared, &mut chores);
        let together = (look.elapsed() * TIMES).max(TOGETHER);
        let sweeper = Arc::clone(shared);
        sweeps.begin_due(async move { sweep(&sweeper).await });
        tokio::select! {
            () = shared.observatory.stirred() => sleep(together).await,
            // What ends while thousands are cared for is looked at together as well: a look is at all of them.
            Some(_) = chores.join_next() => sleep(together).await,
            () = sleep_until(next.min(sweeps.due)) => {}
        }
        while chores.try_join_next().is_some() {}
    }
}

/// Looks for entries without a Pod. One may take longer than the time between two: there is never more than one under way.
pub(super) struct Sweeps {
    due: Instant,
    running: JoinSet<()>,
}

impl Sweeps {
    pub(super) fn new() -> Self {
        Self { due: Instant::now() + SWEEP, running: JoinSet::new() }
    }

    pub(super) fn begin_due(&mut self, sweep: impl Future<Output = ()> + Send + 'static) {
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + SWEEP;
        while self.running.try_join_next().is_some() {}
        if self.running.is_empty() {
            self.running.spawn(sweep);
        }
    }
}

/// Begins what is due, and tells when something else will be.
fn begin_due(shared: &Arc<Shared>, running: &mut JoinSet<()>) -> Instant {
    let now = Instant::now();
    let pods = shared.observatory.store().pods();
    let mut next = now + IDLE;
    let mut begun = Vec::new();
    let mut all = shared.care();
    for pod in pods {
        let surplus = is_surplus(shared, &pod);
        let inherited = shared.observatory.store().is_inherited(&pod.uid);
        let record = shared.record(&pod).ok();
        let care = care_of(&mut all, &pod.uid, now);
        care.watch(&pod, now);
        let mut chores = care.chores(&pod, record, now);
        chores.extend((surplus && care.may_dismiss(now)).then_some(Chore::Dismiss));
        chores.extend((inherited && care.may_lack_secret(&pod, record, now)).then_some(Chore::FindSecret));
        care.busy.extend(&chores);
        next = next.min(care.next_look(&pod, record, now).unwrap_or(next));
        begun.extend(chores.into_iter().map(|chore| (Arc::clone(&pod), chore)));
    }
    drop(all);
    for (pod, chore) in begun {
        let shared = Arc::clone(shared);
        running.spawn(async move { carry_out(&shared, &pod, chore).await });
    }
    next
}

/// POD-1: it says that it is the executor of a Pod that is there beside it.
fn is_surplus(shared: &Shared, pod: &Seen) -> bool {
    let Ok(record) = &pod.record else { return false };
    let beside = || shared.observatory.store().get(&name_of(record)).is_some();
    !pod.is_named && record.instance == shared.instance && beside()
}

async fn carry_out(shared: &Arc<Shared>, pod: &Arc<Seen>, chore: Chore) {
    // The semaphore is never closed.
    let Ok(_permit) = shared.calls.acquire().await else { return };
    match chore {
        Chore::Bind => bind(shared, pod).await,
        Chore::DropSecret => drop_secret(shared, pod).await,
        Chore::FindSecret => find_secret(shared, pod).await,
        Chore::ReadEvents => read_events(shared, pod).await,
        Chore::Dismiss => dismiss(shared, pod).await,
    }
    shared.with_care(&pod.uid, |care| care.busy.remove(&chore));
}

async fn bind(shared: &Arc<Shared>, pod: &Arc<Seen>) {
    let (Some(node), Ok(record)) = (pod.node.clone(), shared.record(pod)) else { return };
    let bound = BoundPod { key: pod.key(), node, assignment: record.id, spiffe_id: record.spiffe_id.clone() };
    let standing = timeout(ISSUER, shared.issuer.bind(bound))
        .await
        .unwrap_or_else(|_| Err(IssueError::Later { cause: format!("no answer within {} s", ISSUER.as_secs()) }));
    let told = shared.with_care(&pod.uid, |care| {
        // It was taken away meanwhile, and what was written now goes with the sweep.
        if care.identity == Identity::Released {
            return None;
        }
        let now = Instant::now();
        let (identity, told) = match standing {
            Ok(Standing::Bound) => (Identity::Bound, Some(events::Word::Bound)),
            Ok(Standing::Pending) => (Identity::Written, None),
            Ok(Standing::Rejected { cause }) => (Identity::Rejected(cause), Some(events::Word::Rejected)),
            Err(IssueError::Refused { cause, remedy }) => {
                (Identity::Rejected(format!("{cause}; {remedy}")), Some(events::Word::Rejected))
            }
            Err(IssueError::Later { cause }) => {
                care.trouble = Some(cause);
                care.failed(now);
                return None;
            }
        };
        if identity == Identity::Written {
            care.pending(now)
        } else {
            care.succeeded(now)
        }
        care.identity = identity;
        told
    });
    shared.observatory.nudge();
    if let Some(word) = told {
        events::tell(shared, pod, word, "");
    }
}

async fn drop_secret(shared: &Shared, pod: &Seen) {
    let known = shared.with_care(&pod.uid, |care| care.secret.clone());
    let dropped = match known {
        Secret::Written(uid @ Some(_)) => delete_secret(shared, pod, uid).await,
        Secret::Gone => Ok(()),
        Secret::Written(None) | Secret::Missing | Secret::Unknown => find_and_delete_secret(shared, pod).await,
    };
    shared.with_care(&pod.uid, |care| match dropped {
        Ok(()) => {
            care.secret = Secret::Gone;
            care.succeeded(Instant::now());
        }
        Err(refusal) => {
            if care.said.insert("secret") {
                tracing::warn!(component = "lifecycle", executor = %pod.name, error = %refusal, "its Secret cannot be removed");
            }
            care.failed(Instant::now());
        }
    });
}

/// Whether an earlier process lived to make the Secret of a Pod that it made: without it the Pod never starts, and holds
/// its slot until somebody says so. A create that is still on its way comes too late: it goes with the Pod.
async fn find_secret(shared: &Shared, pod: &Seen) {
    let found = shared.cluster.within(shared.secrets.get_metadata(&pod.name)).await;
    let missing = shared.with_care(&pod.uid, |care| {
        // Whoever made it meanwhile knows better.
        if care.secret != Secret::Unknown {
            return false;
        }
        match found {
            Ok(found) if is_owned_by(&found.metadata, pod) => care.secret = Secret::Written(found.metadata.uid),
            Err(refusal) if refusal.is_not_found() => care.secret = Secret::Missing,
            Ok(_) | Err(_) => care.failed(Instant::now()),
        }
        care.secret == Secret::Missing
    });
    if missing {
        shared.observatory.nudge();
    }
}

fn is_owned_by(secret: &ObjectMeta, pod: &Seen) -> bool {
    secret.owner_references.iter().flatten().any(|owner| owner.uid == pod.uid)
}

/// Of a Pod that a former process claimed. One that is another Pod's stays.
async fn find_and_delete_secret(shared: &Shared, pod: &Seen) -> Result<(), Refusal> {
    match shared.cluster.within(shared.secrets.get_metadata(&pod.name)).await {
        Ok(found) if is_owned_by(&found.metadata, pod) && found.metadata.uid.is_some() => {
            delete_secret(shared, pod, found.metadata.uid).await
        }
        Ok(_) => Ok(()),
        Err(refusal) if refusal.is_not_found() => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// The Secret of a Pod's name, if it has this UID; one that is not there is success.
pub(super) async fn delete_secret(shared: &Shared, pod: &Seen, uid: Option<String>) -> Result<(), Refusal> {
    match shared.cluster.within(shared.secrets.delete(&pod.name, &only_this(uid))).await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.is_not_found() => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// What is read may be nothing at all: a cluster keeps events for an hour, and may not let us see them.
pub(super) async fn read_events(shared: &Shared, pod: &Seen) {
    let params = ListParams::default().fields(&format!("involvedObject.uid={}", pod.uid)).limit(100);
    let read = shared.cluster.within(shared.events.list(&params)).await;
    if let Err(refusal) = &read {
        went_wrong(refusal, "what a kubelet or the scheduler says of a Pod that stands still cannot be read");
    }
    let told = read.ok().map(|list| {
        let mut told: Vec<Told> = list.items.into_iter().map(told).collect();
        told.sort_by_key(|told| told.at);
        told
    });
    if shared.with_care(&pod.uid, |care| care.events_read(told, Instant::now())) {
        shared.observatory.nudge();
    }
}

/// The library has a calendar of its own.
fn moment(time: Time) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.0.as_nanosecond()).ok()
}

fn told(event: Event) -> Told {
    let last = event.series.and_then(|series| series.last_observed_time).map(|time| Time(time.0));
    let first = event.event_time.map(|time| Time(time.0)).or(event.first_timestamp);
    Told {
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        at: last.or(event.last_timestamp).or(first).and_then(moment),
    }
}

async fn dismiss(shared: &Arc<Shared>, pod: &Arc<Seen>) {
    tracing::warn!(component = "lifecycle", pod = %pod.name, "it is one Pod too many of its executor, and is removed");
    if let Err(error) = ending::remove(shared, pod).await {
        tracing::warn!(component = "lifecycle", pod = %pod.name, %error, "a surplus Pod cannot be removed");
        shared.with_care(&pod.uid, |care| {
            care.dismissed = false;
            care.failed(Instant::now());
        });
    }
}

/// Only a complete and recent observation proves that a Pod is not there.
pub(super) async fn sweep(shared: &Shared) {
    if shared.observatory.fresh().await.is_err() {
        return;
    }
    let pods = shared.observatory.store().pods();
    let live = pods.iter().map(|pod| pod.key()).collect();
    match timeout(ISSUER, shared.issuer.sweep(live)).await {
        Ok(Ok(Swept { removed, amiss })) => {
            if removed > 0 {
                tracing::info!(component = "lifecycle", removed, "identity entries without a Pod were removed");
            }
            repair(shared, &pods, &amiss);
        }
        Ok(Err(error)) => {
            tracing::warn!(component = "lifecycle", %error, "identity entries cannot be compared with Pods")
        }
        Err(_) => tracing::warn!(component = "lifecycle", "identity entries cannot be compared with Pods: no answer"),
    }
}

/// Whoever deleted or changed the entry of a job that runs did not mean to end it when its SVID runs out (NEW-75).
fn repair(shared: &Shared, pods: &[Arc<Seen>], amiss: &[PodKey]) {
    let amiss: BTreeSet<&str> = amiss.iter().map(|key| key.uid.as_str()).collect();
    let (now, mut all) = (Instant::now(), shared.care());
    for pod in pods.iter().filter(|pod| amiss.contains(pod.uid.as_str())) {
        let claimed = shared.record(pod).is_ok_and(|record| record.claim.is_some());
        let Some(care) = all.get_mut(&pod.uid) else { continue };
        if care.entry_is_amiss(claimed, now) {
            tracing::info!(component = "lifecycle", executor = %pod.name, "somebody changed or deleted its identity entry");
        }
    }
    drop(all);
    if !amiss.is_empty() {
        shared.observatory.stir();
    }
}
