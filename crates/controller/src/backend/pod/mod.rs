//! Executors as Kubernetes Pods.
//!
//! What exists is known by a list and a watch ([`watching`]); what must be done for a Pod beyond its making (identity
//! entry, Secret, what its events say) is done by its [`upkeep`], so that a Pod of a former process is cared for like one
//! of ours. The Pod is made first and its Secret, which belongs to it, second: whatever crash comes between, nothing is
//! left that the cluster does not remove with the Pod.

mod care;
mod ending;
mod events;
mod making;
mod object;
pub mod privileged;
mod seen;
mod sent;
mod store;
pub mod template;
mod trouble;
mod upkeep;
mod watching;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::{Backend as Kind, InstanceId};
use domain::identity::IdentityRules;
use domain::metadata::{ExecutorRecord, Mark, Unreadable};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Api;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::care::Care;
use self::object::Recipe;
use self::seen::Seen;
use self::sent::{Pod, Pods};
use self::watching::Observatory;
use super::{Backend, BackendError, Ensured, Launch, Marked, Observed};
use crate::config::{Config, Election};
use crate::identity::entry::IdentityIssuer;
use crate::kubernetes::{Cluster, Refusal, RefusalKind};
use crate::lease::KubernetesLease;

/// For a call of the issuer.
const ISSUER: Duration = Duration::from_secs(30);
/// Calls of the upkeep at a time.
const CALLS: usize = 32;

/// Makes Pods.
pub struct PodBackend {
    shared: Arc<Shared>,
    _stop: DropGuard,
}

/// What the backend and its upkeep have in common.
struct Shared {
    cluster: Cluster,
    pods: Pods,
    secrets: Api<Secret>,
    events: Api<Event>,
    recipe: Recipe,
    rules: IdentityRules,
    instance: InstanceId,
    pending: Duration,
    /// The Lease by which controllers agree, where they do by one.
    lease: Option<String>,
    issuer: Arc<dyn IdentityIssuer>,
    observatory: Observatory,
    /// By UID.
    care: Mutex<BTreeMap<String, Care>>,
    calls: Arc<Semaphore>,
    notes: Sender<events::Note>,
}

impl PodBackend {
    /// The backend of these settings, which follows the cluster from now on. Needs a tokio runtime.
    ///
    /// # Errors
    /// There is no `pod-worker` in the settings.
    pub fn new(cluster: Cluster, config: &Config, issuer: Arc<dyn IdentityIssuer>) -> anyhow::Result<Self> {
        let Some(pods) = &config.pods else { anyhow::bail!("COMPONENTS: pod-worker is not among them") };
        let recipe = Recipe {
            image: pods.image.clone(),
            service_account: pods.service_account.clone(),
            uid: pods.uid.get(),
            volume: pods.volume.clone(),
            facade_url: config.facade.url.as_str().to_owned(),
            facade_spiffe_id: config.identity.facade_id.clone(),
            template: pods.template.clone().unwrap_or_default(),
            privileged: pods.privileged.clone().unwrap_or_default(),
        };
        let about = About {
            instance: config.instance.clone(),
            rules: config.identity.rules.clone(),
            pending: pods.pending,
            lease: (config.election == Election::Kubernetes).then(|| KubernetesLease::name_of(&config.instance)),
        };
        Ok(Self::start(cluster, recipe, about, issuer))
    }

    /// The longest that a Pod may not run yet, whatever it waits for in turn: longer than each of the waits that the backend
    /// judges itself, with their reasons, so that this one is the last resort.
    #[must_use]
    pub fn longest_wait(pending: Duration) -> Duration {
        trouble::longest_placing(pending) + Duration::from_secs(60)
    }

    fn start(cluster: Cluster, recipe: Recipe, about: About, issuer: Arc<dyn IdentityIssuer>) -> Self {
        let (client, namespace) = (cluster.client(), cluster.namespace().to_owned());
        let selector = ExecutorRecord::selector(&about.instance);
        let selector: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let (notes, desk) = events::desk();
        let shared = Arc::new(Shared {
            observatory: Observatory::new(Pods::new(cluster.clone()), selector.join(",")),
            pods: Pods::new(cluster.clone()),
            secrets: Api::namespaced(client.clone(), &namespace),
            events: Api::namespaced(client, &namespace),
            cluster,
            recipe,
            rules: about.rules,
            instance: about.instance,
            pending: about.pending,
            lease: about.lease,
            issuer,
            care: Mutex::default(),
            calls: Arc::new(Semaphore::new(CALLS)),
            notes,
        });
        let stop = CancellationToken::new();
        let (running, stopped) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            let (follow, care) = (running.observatory.follow(), upkeep::run(&running));
            let work = async { tokio::join!(follow, care, events::write(&running, desk)) };
            stopped.run_until_cancelled(work).await;
        });
        Self { shared, _stop: stop.drop_guard() }
    }
}

/// What it is told beside the recipe.
struct About {
    instance: InstanceId,
    rules: IdentityRules,
    pending: Duration,
    lease: Option<String>,
}

impl Shared {
    fn care(&self) -> MutexGuard<'_, BTreeMap<String, Care>> {
        // Nothing can panic while it is held.
        self.care.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of this Pod, with a change.
    fn with_care<T>(&self, uid: &str, change: impl FnOnce(&mut Care) -> T) -> T {
        change(care_of(&mut self.care(), uid, Instant::now()))
    }

    /// Reads a Pod: its executor, where it is one of ours in every respect (NEW-2, NEW-56, POD-1).
    fn record<'a>(&self, pod: &'a Seen) -> Result<&'a ExecutorRecord, Unreadable> {
        self.shared_record(pod).map(|record| &**record)
    }

    fn shared_record<'a>(&self, pod: &'a Seen) -> Result<&'a Arc<ExecutorRecord>, Unreadable> {
        let record = pod.record.as_ref().map_err(Clone::clone)?;
        let unreadable =
            |key: &str, problem: &str| Err(Unreadable { key: key.to_owned(), problem: problem.to_owned() });
        if record.backend != Kind::Pod || record.instance != self.instance {
            return unreadable("its labels", "are those of another backend or instance");
        }
        if !pod.is_named {
            return unreadable("metadata.name", "is not that of its labels");
        }
        Ok(record)
    }

    /// The Pod of this name, asked for where it is not known.
    async fn find(&self, name: &str) -> Result<Option<Arc<Seen>>, Refusal> {
        if let Some(pod) = self.observatory.store().get(name) {
            return Ok(Some(pod));
        }
        match self.pods.get(name).await {
            Ok(pod) => Ok(self.seen(pod)),
            Err(refusal) if refusal.is_not_found() => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// A Pod that was asked for by its name; a foreign one does not come into the store.
    fn seen(&self, pod: Pod) -> Option<Arc<Seen>> {
        let labels = pod.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        if labels.is_some_and(|labels| self.selects(labels)) {
            return self.observatory.put(pod);
        }
        Seen::of(pod).map(Arc::new)
    }

    /// Whether a Pod is of this instance (NEW-2).
    fn owns(&self, pod: &Seen) -> bool {
        match &pod.record {
            Ok(record) => record.instance == self.instance,
            Err(_) => self.selects(&pod.labels),
        }
    }

    /// Whether an object with these labels is of this instance.
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        ExecutorRecord::selector(&self.instance).iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    async fn list(self: &Arc<Self>) -> Result<Vec<Observed>, Refusal> {
        self.observatory.fresh().await?;
        Ok(self.observe())
    }

    fn observe(self: &Arc<Self>) -> Vec<Observed> {
        let (pods, farewells) = {
            let mut store = self.observatory.store();
            (store.pods(), store.farewells())
        };
        let at = (Instant::now(), Timestamp::now());
        let mut care = self.care();
        // Each Pod that is known is cared for, if only from here on: where there is more care, some of it is for none.
        if care.len() > pods.len() {
            let known: BTreeSet<&str> = pods.iter().chain(&farewells).map(|pod| pod.uid.as_str()).collect();
            care.retain(|uid, _| known.contains(uid.as_str()));
        }
        let (mut observed, mut told) = (Vec::with_capacity(pods.len()), Vec::new());
        for (pod, gone) in pods.iter().map(|pod| (pod, false)).chain(farewells.iter().map(|pod| (pod, true))) {
            let care = care_of(&mut care, &pod.uid, at.0);
            care.watch(pod, at.0);
            // The end of what we remove ourselves is no news.
            if gone && care.dismissed {
                continue;
            }
            let record = self.shared_record(pod);
            if gone {
                ending::bury(self, pod);
                if record.is_err() {
                    continue;
                }
            }
            let state = match gone {
                true => trouble::farewell(pod, at.1),
                false => care.state(pod, record.as_ref().ok().map(|record| &***record), self.pending, at),
            };
            let news = if care.dismissed { None } else { events::of_state(&record, &state) };
            told.extend(news.map(|(word, how)| (Arc::clone(pod), word, how)));
            observed.push(Observed { name: pod.name.clone(), record: record.cloned(), state });
        }
        drop(care);
        for (pod, word, how) in told {
            events::tell(self, &pod, word, &how);
        }
        observed
    }

    async fn mark(&self, name: &str, mark: &Mark) -> Result<Marked, Refusal> {
        let Some(pod) = self.find(name).await? else { return Ok(Marked::Gone) };
        if self.record(&pod).is_err() {
            return Ok(Marked::Gone);
        }
        let metadata = json!({"uid": pod.uid, "labels": mark.labels(), "annotations": mark.annotations()});
        match self.pods.patch(name, &json!({"metadata": metadata})).await {
            Ok(marked) => {
                self.observatory.put(marked);
                Ok(Marked::Written)
            }
            Err(refusal) if refusal.is_not_found() => {
                self.observatory.store().forget(name, &pod.uid);
                Ok(Marked::Gone)
            }
            // Its UID may not be the one that was looked up (422). A conflict (409) alone is one of versions, and no end.
            Err(refusal) if self.is_replaced(&pod, &refusal).await => {
                self.observatory.store().forget(name, &pod.uid);
                Ok(Marked::Gone)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether a call about this Pod was refused because it is gone and another may have its name: the API is asked, since
    /// the same words are said of others' writes. Without an answer it is there still (NEW-62).
    async fn is_replaced(&self, pod: &Seen, refusal: &Refusal) -> bool {
        if !matches!(refusal.kind, RefusalKind::Conflict | RefusalKind::Invalid) {
            return false;
        }
        match self.pods.get(&pod.name).await {
            Ok(now) => self.seen(now).is_some_and(|now| now.uid != pod.uid),
            Err(refusal) => refusal.is_not_found(),
        }
    }
}

impl Backend for PodBackend {
    fn ensure(&self, launch: Launch) -> BoxFuture<'_, Result<Ensured, BackendError>> {
        async move { making::ensure(&self.shared, &launch).await }.boxed()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Observed>, BackendError>> {
        async move { self.shared.list().await.map_err(|refusal| transient("list Pods", refusal)) }.boxed()
    }

    fn mark(&self, name: &str, mark: Mark) -> BoxFuture<'_, Result<Marked, BackendError>> {
        let name = name.to_owned();
        async move {
            let marked = self.shared.mark(&name, &mark).await;
            if marked == Ok(Marked::Written) {
                events::marked(&self.shared, &name, &mark);
            }
            marked.map_err(|refusal| transient(&format!("mark Pod {name}"), refusal))
        }
        .boxed()
    }

    fn delete(&self, name: &str) -> BoxFuture<'_, Result<(), BackendError>> {
        let name = name.to_owned();
        async move { ending::delete(&self.shared, &name).await }.boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.shared.observatory.changed().boxed()
    }
}

#[expect(clippy::expect_used, reason = "it was put there a line before")]
fn care_of<'a>(all: &'a mut BTreeMap<String, Care>, uid: &str, now: Instant) -> &'a mut Care {
    // No key is made for one that is there, as nearly all are.
    if !all.contains_key(uid) {
        all.insert(uid.to_owned(), Care::new(now));
    }
    all.get_mut(uid).expect("care of every Pod")
}

/// Worth a retry; T77: what the rights do not include is named by the server's own words.
fn transient(doing: &str, refusal: Refusal) -> BackendError {
    let Refusal { message, retry_after, .. } = refusal;
    BackendError::Transient { cause: format!("{doing}: {message}"), retry_after }
}
