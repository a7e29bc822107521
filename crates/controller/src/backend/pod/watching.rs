//! Keeps the store up to date: a list in pages, then watches from its version on, each of them short.
//!
//! What can happen: a call hangs (cut off), a watch ends (the next goes on from its version) or says nothing at all, not
//! even that it ends (cut off), the server has forgotten the version (list anew), is away or refuses (a growing pause).
//! An observation is as old as the last word of the server; one that is too old is none (NEW-62).

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::seen::Seen;
use super::sent::{Pod, Pods};
use super::store::Store;
use crate::backoff::backoff;
use crate::kubernetes::{CALL, Refusal, RefusalKind};

/// Objects in one answer.
const PAGE: u32 = 500;
/// The server ends a watch after this; it is the longest that we do not notice a dead connection.
const WATCH: Duration = Duration::from_secs(30);
/// For the end of a watch to arrive.
const MARGIN: Duration = Duration::from_secs(5);
/// Whatever a watch may have missed is found after this.
const RESYNC: Duration = Duration::from_secs(10 * 60);
/// A connection that broke is there again within this time, or what is known is too old.
const BLINK: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The Pods of ours as the server last told.
pub(super) struct Observatory {
    pods: Pods,
    selector: String,
    store: Mutex<Store>,
    contact: Mutex<Contact>,
    /// Something changed, for who calls [`crate::backend::Backend::list`].
    changed: Notify,
    /// Something changed, for our own upkeep.
    stirred: Notify,
    /// The first list is complete, or something was learned about why it is not.
    synced: Notify,
}

#[derive(Default)]
struct Contact {
    /// When the server last said something; none: no list is complete so far.
    heard: Option<Instant>,
    /// Why it does not go on.
    trouble: Option<Refusal>,
}

/// Where the next watch begins, and how old the last list is.
#[derive(Default)]
struct Place {
    version: Option<String>,
    listed: Option<Instant>,
}

impl Observatory {
    pub(super) fn new(pods: Pods, selector: String) -> Self {
        Self {
            pods,
            selector,
            store: Mutex::default(),
            contact: Mutex::default(),
            changed: Notify::new(),
            stirred: Notify::new(),
            synced: Notify::new(),
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing can panic while it is held.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when something may have changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The same for our own upkeep.
    pub(super) async fn stirred(&self) {
        self.stirred.notified().await;
    }

    /// Something is known of a Pod that the API server does not tell.
    pub(super) fn nudge(&self) {
        self.changed.notify_one();
    }

    /// Wakes who waits for changes.
    pub(super) fn stir(&self) {
        self.nudge();
        self.stirred.notify_one();
    }

    /// Waits for a complete observation that is not too old.
    ///
    /// # Errors
    /// There is none, and why.
    pub(super) async fn fresh(&self) -> Result<(), Refusal> {
        let wait = async {
            loop {
                let news = self.synced.notified();
                let mut news = pin!(news);
                news.as_mut().enable();
                match self.freshness() {
                    Freshness::Fresh => return Ok(()),
                    Freshness::Stale(refusal) => return Err(refusal),
                    Freshness::Coming => news.await,
                }
            }
        };
        timeout(CALL, wait).await.unwrap_or_else(|_| Err(Refusal::silent(CALL)))
    }

    fn freshness(&self) -> Freshness {
        let contact = self.contact();
        match (contact.heard.map(|at| at.elapsed()), &contact.trouble) {
            (None, Some(refusal)) => Freshness::Stale(refusal.clone()),
            (None, None) => Freshness::Coming,
            (Some(age), Some(refusal)) if age > BLINK => Freshness::Stale(refusal.clone()),
            (Some(age), None) if age > WATCH + MARGIN + CALL => Freshness::Stale(Refusal::silent(age)),
            (Some(_), _) => Freshness::Fresh,
        }
    }

    /// Follows the server for ever.
    pub(super) async fn follow(&self) {
        let (mut place, mut pauses) = (Place::default(), backoff(FIRST_PAUSE, LONGEST_PAUSE));
        loop {
            match self.round(&mut place).await {
                Ok(()) => pauses.reset(),
                Err(refusal) => {
                    if refusal.kind == RefusalKind::Expired {
                        place = Place::default();
                    }
                    self.troubled(refusal);
                    tokio::time::sleep(pauses.pause()).await;
                }
            }
        }
    }

    /// One watch, and a list before it where it is time for one.
    async fn round(&self, place: &mut Place) -> Result<(), Refusal> {
        let recent = place.listed.is_some_and(|at| at.elapsed() < RESYNC);
        let version = match place.version.clone().filter(|_| recent) {
            Some(version) => version,
            None => {
                let version = self.list().await?;
                *place = Place { version: Some(version.clone()), listed: Some(Instant::now()) };
                version
            }
        };
        let params =
            WatchParams::default().labels(&self.selector).timeout(u32::try_from(WATCH.as_secs()).unwrap_or(30));
        let stream = self.pods.watch(&params, &version).await?;
        self.heard();
        let mut stream = pin!(stream);
        loop {
            match timeout(WATCH + MARGIN, stream.next()).await {
                Ok(Some(Ok(event))) => place.version = self.take(event)?.or(place.version.take()),
                Ok(Some(Err(refusal))) => return Err(refusal),
                Ok(None) => return Ok(()),
                Err(_) => return Err(Refusal::silent(WATCH + MARGIN)),
            }
        }
    }

    async fn list(&self) -> Result<String, Refusal> {
        self.store().begin();
        let mut params = ListParams::default().labels(&self.selector).limit(PAGE);
        loop {
            let (pods, more, version) = self.pods.page(&params).await?.into_parts();
            self.store().page(pods);
            match more {
                Some(token) => params.continue_token = Some(token),
                None => {
                    self.store().complete();
                    self.heard();
                    self.stir();
                    return Ok(version);
                }
            }
        }
    }

    /// Takes one word of a watch, and returns from where to go on after it.
    fn take(&self, event: WatchEvent<Pod>) -> Result<Option<String>, Refusal> {
        let version = match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                let version = version_of(&pod);
                self.store().put(pod);
                self.stir();
                version
            }
            WatchEvent::Deleted(pod) => {
                let version = version_of(&pod);
                self.store().remove(pod);
                self.stir();
                version
            }
            WatchEvent::Bookmark(mark) => Some(mark.metadata.resource_version),
            WatchEvent::Error(status) => return Err(Refusal::of(&kube::Error::Api(status))),
        };
        self.heard();
        Ok(version)
    }

    /// A Pod as an answer to a call of ours shows it.
    pub(super) fn put(&self, pod: Pod) -> Option<Arc<Seen>> {
        let seen = self.store().answered(pod);
        self.stir();
        seen
    }

    fn heard(&self) {
        *self.contact() = Contact { heard: Some(Instant::now()), trouble: None };
        self.synced.notify_waiters();
    }

    fn troubled(&self, refusal: Refusal) {
        tracing::debug!(component = "lifecycle", error = %refusal, "the watch of Pods goes on after a pause");
        self.contact().trouble = Some(refusal);
        self.synced.notify_waiters();
        // Whoever lists must hear of it.
        self.nudge();
    }
}

fn version_of(pod: &Pod) -> Option<String> {
    pod.metadata.as_ref()?.resource_version.clone()
}

enum Freshness {
    Fresh,
    Stale(Refusal),
    /// The first list is on its way.
    Coming,
}
