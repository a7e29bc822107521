//! Entries through ClusterStaticEntry objects, which the SPIRE controller manager turns into entries of its server.
//!
//! | what happens | what follows |
//! |---|---|
//! | a create is not answered | the next call finds the object and compares it |
//! | an object of that name is there | compared: the same is success, other content of ours is replaced on its version, somebody else's is refused |
//! | it changed in between (409) | later, on what is there then |
//! | the server takes the object and SPIRE does not | the status says no more than [`object::judge`] makes of it; all that can be known before is checked before (NEW-76) |
//! | a delete names the UID and finds another object | that one is not ours to delete: looked at anew |
//! | a list fails, or ends early | nothing is deleted, and nothing is counted |
//! | somebody deletes or changes an object of a Pod that runs | the next sweep tells, and whoever asks for it again has it put right |
//! | the list of what an earlier process left fails | each object is asked for by itself, as later |

mod object;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::InstanceId;
use domain::metadata::entry;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::DynamicObject;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::content::EntryRules;
use super::known::Known;
use super::orphans::Orphans;
use super::parent::Parents;
use super::{BoundPod, IdentityIssuer, IssueError, PodKey, Standing, Swept};
use crate::kubernetes::{Cluster, Refusal, RefusalKind, only_this};
use object::Found;

/// Entries in one page of a list.
const PAGE: u32 = 500;
/// For how long a list tells what an earlier process left.
const FRESH: Duration = Duration::from_secs(30);

/// Writes objects.
pub(super) struct StaticEntries {
    cluster: Cluster,
    instance: InstanceId,
    class: String,
    rules: EntryRules,
    parents: Parents,
    /// With the UIDs of the objects. It saves a look as well.
    known: Mutex<Known<String>>,
    /// What an earlier process left, read once and as a whole: asking for each would be two calls for each of the thousands
    /// of Pods that a start may find.
    left: OnceCell<Mutex<Left>>,
    orphans: Mutex<Orphans>,
}

/// What is kept of an object that a list showed.
struct Listed {
    uid: String,
    /// In short; nothing that counts of one that is being deleted.
    said: Option<u64>,
}

/// Objects as a list showed them, by name.
struct Left {
    objects: BTreeMap<String, DynamicObject>,
    listed: Instant,
}

impl StaticEntries {
    pub(super) fn new(
        cluster: Cluster,
        instance: &InstanceId,
        class: &str,
        rules: EntryRules,
        parents: Parents,
    ) -> Self {
        Self {
            cluster,
            instance: instance.clone(),
            class: class.to_owned(),
            rules,
            parents,
            known: Mutex::default(),
            left: OnceCell::new(),
            orphans: Mutex::default(),
        }
    }

    async fn bind_pod(&self, pod: BoundPod) -> Result<Standing, IssueError> {
        self.rules.permit(&pod)?;
        let content = self.rules.content(&pod, self.parents.of(&pod.node).await?);
        let wanted = object::wanted(&pod, &content, &self.class, &self.instance);
        let name = object::name(&pod.key);
        let is_known = self.known().contains(&name);
        if !is_known && let Some(there) = self.left_behind(&name).await {
            return self.compare(&name, there, wanted).await;
        }
        if !is_known && let Some(standing) = self.create(&name, &wanted).await? {
            return Ok(standing);
        }
        match self.find(&name).await? {
            Some(there) => self.compare(&name, there, wanted).await,
            None => {
                self.known().forget(&name);
                let made = self.create(&name, &wanted).await?;
                made.ok_or_else(|| later(&name, "it came and went"))
            }
        }
    }

    /// Makes it; none when an object of that name is there.
    async fn create(&self, name: &str, wanted: &DynamicObject) -> Result<Option<Standing>, IssueError> {
        match self.cluster.within(self.api().create(&PostParams::default(), wanted)).await {
            Ok(made) => {
                self.note(name, &made);
                Ok(Some(Standing::Pending))
            }
            Err(refusal) if refusal.kind == RefusalKind::Exists => Ok(None),
            Err(refusal) => Err(refused(name, &refusal)),
        }
    }

    async fn compare(&self, name: &str, there: DynamicObject, wanted: DynamicObject) -> Result<Standing, IssueError> {
        match object::judge(&there, &wanted, &self.instance) {
            Found::Same(standing) => {
                self.note(name, &there);
                Ok(standing)
            }
            Found::Going => Err(later(name, "it is being deleted")),
            Found::Foreign => Err(IssueError::Refused {
                cause: format!(
                    "ClusterStaticEntry {name} is there and is not ours: it does not carry the labels of instance {}",
                    self.instance
                ),
                remedy: "Find out who made it and delete it, then run the job again.".to_owned(),
            }),
            Found::Other => {
                let new = object::replacement(there, wanted);
                match self.cluster.within(self.api().replace(name, &PostParams::default(), &new)).await {
                    Ok(made) => {
                        self.note(name, &made);
                        tracing::info!(
                            component = "identity",
                            entry = name,
                            "a SPIRE entry with other content was replaced"
                        );
                        // Its status is of what it said before.
                        Ok(Standing::Pending)
                    }
                    Err(refusal) => Err(refused(name, &refusal)),
                }
            }
        }
    }

    async fn release_pod(&self, pod: PodKey) -> Result<(), IssueError> {
        let name = object::name(&pod);
        let known = self.known().forget(&name);
        if let Some(left) = self.left.get() {
            left.lock().unwrap_or_else(PoisonError::into_inner).objects.remove(&name);
        }
        if let Some(uid) = known
            && self.delete(&name, &uid).await?
        {
            return Ok(());
        }
        let Some(there) = self.find(&name).await? else { return Ok(()) };
        let uid = there.metadata.uid.clone().unwrap_or_default();
        // Somebody else's is not what was to be taken away.
        if !entry::is_ours(&object::labels(&there), &self.instance) || self.delete(&name, &uid).await? {
            return Ok(());
        }
        Err(later(&name, "another one took its place"))
    }

    /// Whether no object of that name and UID is left; else another object has the name.
    async fn delete(&self, name: &str, uid: &str) -> Result<bool, IssueError> {
        match self.cluster.within(self.api().delete(name, &only_this(Some(uid.to_owned())))).await {
            Ok(_) => Ok(true),
            Err(refusal) if refusal.is_not_found() => Ok(true),
            Err(refusal) if refusal.kind == RefusalKind::Conflict => Ok(false),
            Err(refusal) => Err(refused(name, &refusal)),
        }
    }

    async fn sweep_entries(&self, live: Vec<PodKey>) -> Result<Swept, IssueError> {
        let moment = self.known().moment();
        let ours = self.list().await?;
        let mut live: BTreeMap<String, PodKey> = live.into_iter().map(|pod| (object::name(&pod), pod)).collect();
        let without_pod = ours.iter().filter(|(name, _)| !live.contains_key(*name));
        let without_pod = without_pod.map(|(_, listed)| listed.uid.clone()).collect();
        let twice = self.orphans.lock().unwrap_or_else(PoisonError::into_inner).again(without_pod);
        {
            let known = self.known();
            live.retain(|name, _| known.is_amiss(name, moment, ours.get(name).and_then(|listed| listed.said)));
        }
        let removed = self.delete_all(ours.into_iter().filter(|(_, listed)| twice.contains(&listed.uid))).await;
        Ok(Swept { removed, amiss: live.into_values().collect() })
    }

    /// Those that go.
    async fn delete_all(&self, orphans: impl Iterator<Item = (String, Listed)>) -> usize {
        let mut gone = 0;
        for (name, Listed { uid, .. }) in orphans {
            match self.delete(&name, &uid).await {
                Ok(true) => {
                    gone += 1;
                    self.known().forget(&name);
                    tracing::info!(component = "identity", entry = name, "removed stale SPIRE entry");
                }
                Ok(false) => {}
                // It affects this one only, and the next sweep sees it again.
                Err(error) => {
                    tracing::warn!(component = "identity", entry = name, "a stale SPIRE entry stays: {error}")
                }
            }
        }
        gone
    }

    /// An object that an earlier process made. What it says is compared, and what is written over it names its version, so
    /// that a list which is old by now costs another call at most (POD-6).
    async fn left_behind(&self, name: &str) -> Option<DynamicObject> {
        let read = || async {
            let objects = self.objects().await.unwrap_or_default();
            let named = objects.into_iter().filter_map(|there| Some((there.metadata.name.clone()?, there)));
            Mutex::new(Left { objects: named.collect(), listed: Instant::now() })
        };
        let mut left = self.left.get_or_init(read).await.lock().unwrap_or_else(PoisonError::into_inner);
        if left.listed.elapsed() > FRESH {
            left.objects.clear();
        }
        left.objects.remove(name)
    }

    /// Every object of ours by name: the whole list, or an error.
    async fn list(&self) -> Result<BTreeMap<String, Listed>, IssueError> {
        let named = |there: DynamicObject| {
            let stays = there.metadata.deletion_timestamp.is_none();
            let said = stays.then(|| object::short(&there));
            Some((there.metadata.name?, Listed { uid: there.metadata.uid?, said }))
        };
        Ok(self.objects().await?.into_iter().filter_map(named).collect())
    }

    /// Every object of ours: the whole list, or an error.
    async fn objects(&self) -> Result<Vec<DynamicObject>, IssueError> {
        let mut params = ListParams::default().labels(&entry::selector(&self.instance)).limit(PAGE);
        let mut ours = Vec::new();
        loop {
            let page = self.cluster.within(self.api().list(&params)).await.map_err(|refusal| IssueError::Later {
                cause: format!("ClusterStaticEntry objects were not listed: {refusal}"),
            })?;
            let found = page.items.into_iter().filter(|there| entry::is_ours(&object::labels(there), &self.instance));
            ours.extend(found.map(|mut there| {
                there.metadata.managed_fields = None;
                there
            }));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(ours),
            }
        }
    }

    async fn find(&self, name: &str) -> Result<Option<DynamicObject>, IssueError> {
        self.cluster.within(self.api().get_opt(name)).await.map_err(|refusal| refused(name, &refusal))
    }

    fn note(&self, name: &str, there: &DynamicObject) {
        if let Some(uid) = &there.metadata.uid {
            self.known().note(name, uid.clone(), object::short(there));
        }
    }

    fn known(&self) -> MutexGuard<'_, Known<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::all_with(self.cluster.client(), &object::resource())
    }
}

impl IdentityIssuer for StaticEntries {
    fn bind(&self, pod: BoundPod) -> BoxFuture<'_, Result<Standing, IssueError>> {
        self.bind_pod(pod).boxed()
    }

    fn release(&self, pod: PodKey) -> BoxFuture<'_, Result<(), IssueError>> {
        self.release_pod(pod).boxed()
    }

    fn sweep(&self, live: Vec<PodKey>) -> BoxFuture<'_, Result<Swept, IssueError>> {
        self.sweep_entries(live).boxed()
    }
}

fn later(name: &str, why: &str) -> IssueError {
    IssueError::Later { cause: format!("ClusterStaticEntry {name}: {why}") }
}

/// What a refusal of one object's call means.
fn refused(name: &str, refusal: &Refusal) -> IssueError {
    match refusal.kind {
        RefusalKind::Invalid => IssueError::Refused {
            cause: format!("ClusterStaticEntry {name}: {refusal}"),
            remedy:
                "Make the cluster's CustomResourceDefinition and admission policies accept entries of this controller."
                    .to_owned(),
        },
        RefusalKind::NotFound => later(name, &format!("{refusal}; is the CustomResourceDefinition installed?")),
        _ => later(name, &refusal.message),
    }
}
