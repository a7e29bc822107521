//! The objects, their history, and the rules of writing that hold for every resource.
//!
//! Invariant: the resource version grows with every write and with nothing else; a write that changes nothing is no
//! write. What was written stands in the history until [`Store::forget_history`], so a watch misses nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::meta::{self, has_finalizers, is_going, table, text};
use super::refusal::Refusal;
use super::resource::Resource;
use super::{admission, defaults, validation};

/// Where an object is: resource, namespace (empty where there are none) and name.
pub(crate) type Key = (Resource, String, String);

/// What a write did to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Added,
    Modified,
    Deleted,
}

/// One write.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) deed: Deed,
    pub(crate) object: Arc<Value>,
    /// What it was before; a selector may fit only one of the two.
    pub(crate) before: Option<Arc<Value>>,
}

/// Which part of an object a replacement or patch reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status, where that has a path of its own.
    Main,
    Status,
}

/// All objects.
#[derive(Default)]
pub(crate) struct Store {
    version: u64,
    /// A watch from before this version has missed something.
    oldest: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    /// Where each uid is, and the version of its creation.
    places: BTreeMap<String, (Key, u64)>,
    /// Who named this uid as an owner, now or once.
    owned: BTreeMap<String, BTreeSet<Key>>,
}

impl Store {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    pub(crate) fn find(&self, resource: Resource, namespace: &str, name: &str) -> Result<&Arc<Value>, Refusal> {
        let key = (resource, namespace.to_owned(), name.to_owned());
        self.objects.get(&key).ok_or_else(|| Refusal::not_found(resource, name))
    }

    /// The objects of a resource, of all namespaces if `namespace` is empty, by namespace and name.
    pub(crate) fn all(&self, resource: Resource, namespace: &str) -> impl Iterator<Item = &Arc<Value>> + use<'_> {
        let from = (resource, namespace.to_owned(), String::new());
        let ours = move |key: &Key, namespace: &str| key.0 == resource && (namespace.is_empty() || key.1 == namespace);
        let namespace = namespace.to_owned();
        self.objects.range(from..).take_while(move |(key, _)| ours(key, &namespace)).map(|(_, object)| object)
    }

    /// The place of the object with this uid.
    pub(crate) fn place(&self, uid: &str) -> Option<&Key> {
        self.places.get(uid).map(|(key, _)| key)
    }

    /// The resource version of the creation of this uid: creation times have whole seconds only.
    pub(crate) fn birth(&self, uid: &str) -> u64 {
        self.places.get(uid).map(|(_, version)| *version).unwrap_or_default()
    }

    /// Who may have been left behind by this uid.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.owned.get(uid).into_iter().flatten().cloned().collect()
    }

    /// The writes after a version, oldest first; an error if some of them are forgotten.
    pub(crate) fn since(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Refusal> {
        if version < self.oldest {
            return Err(Refusal::expired(version, self.oldest));
        }
        let start = self.history.partition_point(|change| change.version <= version);
        Ok(self.history.range(start..))
    }

    /// Throws the history away: a watch that did not see all of it gets 410.
    pub(crate) fn forget_history(&mut self) {
        self.history.clear();
        self.oldest = self.version;
    }

    pub(crate) fn create(&mut self, resource: Resource, namespace: &str, object: Value) -> Result<Arc<Value>, Refusal> {
        let mut object = object;
        generate_name(&mut object);
        let name = meta::name(&object).to_owned();
        let key = (resource, namespace.to_owned(), name.clone());
        admission::before_create(self, resource, namespace, &name)?;
        prepare(resource, namespace, &mut object);
        validation::created(resource, &object)?;
        match self.objects.get(&key) {
            Some(object) if is_going(object) => return Err(Refusal::going(resource, &name)),
            Some(_) => return Err(Refusal::exists(resource, &name)),
            None => {}
        }
        admission::create(self, resource, namespace, &object)?;
        Ok(self.put(key, object))
    }

    /// Replaces an object, or its status alone.
    pub(crate) fn replace(
        &mut self,
        (resource, namespace, name): (Resource, &str, &str),
        part: Part,
        new: Value,
    ) -> Result<Arc<Value>, Refusal> {
        if meta::name(&new) != name {
            let sent = meta::name(&new);
            return Err(Refusal::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({name})"
            )));
        }
        let old = self.find(resource, namespace, name)?.clone();
        self.rewrite((resource, namespace, name), part, &old, new)
    }

    /// Writes the outcome of a replacement or patch.
    pub(crate) fn rewrite(
        &mut self,
        (resource, namespace, name): (Resource, &str, &str),
        part: Part,
        old: &Value,
        mut new: Value,
    ) -> Result<Arc<Value>, Refusal> {
        match meta::version(&new) {
            Some(version) if Some(version) != meta::version(old) => return Err(Refusal::modified(resource, name)),
            None if resource.wants_version() => return Err(Refusal::version_missing(resource, name)),
            _ => {}
        }
        let sent = meta::uid(&new);
        if !sent.is_empty() && sent != meta::uid(old) {
            let had = meta::uid(old);
            let why = format!("Precondition failed: UID in precondition: {sent}, UID in object meta: {had}");
            return Err(Refusal::conflict(resource, name, &why));
        }
        keep(resource, part, old, &mut new);
        validation::updated(resource, part, old, &new)?;
        Ok(self.put((resource, namespace.to_owned(), name.to_owned()), new))
    }

    /// Changes an object past all rules, as the cluster's own programs do; `None` if it is not there.
    pub(crate) fn edit(&mut self, key: &Key, change: impl FnOnce(&mut Value)) -> Option<Arc<Value>> {
        let mut object = Value::clone(self.objects.get(key)?);
        change(&mut object);
        Some(self.put(key.clone(), object))
    }

    /// Stores an object and lets it go if nothing holds it any more.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        let before = self.objects.get(&key).cloned();
        if before.as_deref() == Some(&object) {
            return before.unwrap_or_default();
        }
        if is_going(&object) && !has_finalizers(&object) && grace(&object) == Some(0) {
            return self.remove(&key, object);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(object);
        let version = self.version;
        self.places.entry(meta::uid(&object).to_owned()).or_insert_with(|| (key.clone(), version));
        for (_, owner) in meta::owners(&object) {
            self.owned.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        self.objects.insert(key.clone(), object.clone());
        let deed = if before.is_some() { Deed::Modified } else { Deed::Added };
        self.history.push_back(Change { version: self.version, key, deed, object: object.clone(), before });
        object
    }

    /// Takes an object away; its last state is what watchers are told.
    pub(crate) fn remove(&mut self, key: &Key, mut last: Value) -> Arc<Value> {
        let before = self.objects.remove(key);
        self.places.remove(meta::uid(&last));
        self.version += 1;
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let object = Arc::new(last);
        let change =
            Change { version: self.version, key: key.clone(), deed: Deed::Deleted, object: object.clone(), before };
        self.history.push_back(change);
        object
    }
}

/// The grace period of an object that is going.
pub(crate) fn grace(object: &Value) -> Option<u64> {
    object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64)
}

fn generate_name(object: &mut Value) {
    let start = text(object, "/metadata/generateName").to_owned();
    if meta::name(object).is_empty() && !start.is_empty() {
        let id = Uuid::new_v4().simple().to_string();
        table(object, "metadata")["name"] = format!("{start}{}", &id[..5]).into();
    }
}

/// What the server writes into a new object itself.
fn prepare(resource: Resource, namespace: &str, object: &mut Value) {
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind().into();
    let metadata = table(object, "metadata");
    for own in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
        meta::strip(metadata, own);
    }
    metadata["uid"] = Uuid::new_v4().to_string().into();
    metadata["creationTimestamp"] = meta::time(Timestamp::now()).into();
    if resource.has_generation() {
        metadata["generation"] = 1.into();
    }
    if resource.namespaced() {
        metadata["namespace"] = namespace.into();
    }
    if resource.has_status_path() && resource != Resource::Nodes {
        meta::strip(object, "status");
    }
    defaults::fill(resource, object);
}

/// Carries over what a writer cannot change.
fn keep(resource: Resource, part: Part, old: &Value, new: &mut Value) {
    if part == Part::Status {
        let status = new["status"].take();
        *new = old.clone();
        new["status"] = status;
        return;
    }
    new["apiVersion"] = old["apiVersion"].clone();
    new["kind"] = old["kind"].clone();
    let metadata = table(new, "metadata");
    for own in
        ["uid", "creationTimestamp", "namespace", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        match old["metadata"].get(own) {
            Some(value) => metadata[own] = value.clone(),
            None => drop(meta::strip(metadata, own)),
        }
    }
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
    for empty in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let nothing = |value: &Value| value.is_null() || *value == json!({}) || *value == json!([]);
        if metadata.get(empty).is_some_and(nothing) {
            meta::strip(metadata, empty);
        }
    }
    if resource.has_status_path() {
        match old.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => drop(meta::strip(new, "status")),
        }
    }
    defaults::fill(resource, new);
    if resource.has_generation() && new["spec"] != old["spec"] {
        let generation = old["metadata"]["generation"].as_u64().unwrap_or_default();
        new["metadata"]["generation"] = (generation + 1).into();
    }
}
