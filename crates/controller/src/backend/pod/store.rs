//! Every Pod of ours as far as the API server has told, kept by a list and a watch (NEW-65).
//!
//! It is never behind our own writes: what a call of ours is answered with is put in at once, and absence is known from
//! the watch, from a complete list, or from a 404 alone (NEW-62). An answer that arrives after its Pod was told gone
//! does not bring it back: nobody would ever tell its end again, and it would hold its slot.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::seen::Seen;
use super::sent::Pod;
use crate::kubernetes::CALL;

/// An answer that is later than this is none: whoever called has given up.
const LATE: Duration = CALL.saturating_mul(2);

/// The Pods.
#[derive(Default)]
pub(super) struct Store {
    pods: BTreeMap<String, Arc<Seen>>,
    /// The last word of Pods that are gone and that no observation has shown so far, by UID.
    farewells: BTreeMap<String, Arc<Seen>>,
    /// UIDs that were told gone lately, oldest first.
    gone: VecDeque<(Instant, String)>,
    /// A list that is being read.
    incoming: Option<Incoming>,
    /// The UIDs of Pods that were there and had not started when the first list was complete; none before that.
    inherited: Option<BTreeSet<String>>,
}

#[derive(Default)]
struct Incoming {
    listed: BTreeMap<String, Arc<Seen>>,
    /// What changed since the list was begun, and which it need not show.
    since: BTreeMap<String, Option<Arc<Seen>>>,
}

impl Store {
    /// A list is begun.
    pub(super) fn begin(&mut self) {
        self.incoming = Some(Incoming::default());
    }

    /// One page of it.
    pub(super) fn page(&mut self, pods: Vec<Pod>) {
        let Some(incoming) = &mut self.incoming else { return };
        let pods = pods.into_iter().filter_map(Seen::of);
        incoming.listed.extend(pods.map(|pod| (pod.name.clone(), Arc::new(pod))));
    }

    /// It is complete: what it does not show is gone.
    pub(super) fn complete(&mut self) {
        let Some(Incoming { mut listed, since }) = self.incoming.take() else { return };
        for (name, pod) in since {
            match pod {
                Some(pod) if listed.get(&name).is_none_or(|known| supersedes(&pod, known)) => {
                    listed.insert(name, pod);
                }
                Some(_) => {}
                None => drop(listed.remove(&name)),
            }
        }
        for (name, pod) in std::mem::replace(&mut self.pods, listed) {
            if self.pods.get(&name).is_none_or(|now| now.uid != pod.uid) {
                self.note_gone(&pod.uid);
                self.farewells.insert(pod.uid.clone(), pod);
            }
        }
        if self.inherited.is_none() {
            let waiting = self.pods.values().filter(|pod| !pod.has_started());
            self.inherited = Some(waiting.map(|pod| pod.uid.clone()).collect());
        }
    }

    /// Whether an earlier process made this Pod, and left it before it started: nothing is made before the first list.
    pub(super) fn is_inherited(&self, uid: &str) -> bool {
        self.inherited.as_ref().is_some_and(|inherited| inherited.contains(uid))
    }

    /// A Pod as the answer to a call of ours shows it: one that was told gone meanwhile stays gone.
    pub(super) fn answered(&mut self, pod: Pod) -> Option<Arc<Seen>> {
        let pod = Arc::new(Seen::of(pod)?);
        if self.gone.iter().any(|(_, uid)| *uid == pod.uid) {
            return Some(pod);
        }
        Some(self.enter(pod))
    }

    /// A Pod as the watch tells it.
    pub(super) fn put(&mut self, pod: Pod) -> Option<Arc<Seen>> {
        Some(self.enter(Arc::new(Seen::of(pod)?)))
    }

    /// A Pod as the API server has it now, or had it a moment ago: what is older than what is known changes nothing.
    fn enter(&mut self, pod: Arc<Seen>) -> Arc<Seen> {
        match self.pods.get(&pod.name) {
            Some(known) if !supersedes(&pod, known) => return Arc::clone(known),
            Some(known) if known.uid != pod.uid => {
                self.farewells.insert(known.uid.clone(), Arc::clone(known));
            }
            _ => {}
        }
        if let Some(incoming) = &mut self.incoming {
            incoming.since.insert(pod.name.clone(), Some(Arc::clone(&pod)));
        }
        self.pods.insert(pod.name.clone(), Arc::clone(&pod));
        pod
    }

    /// The watch tells its end, with its last word.
    pub(super) fn remove(&mut self, pod: Pod) {
        let Some(last) = Seen::of(pod) else { return };
        if self.leave(&last.name, &last.uid).is_some() {
            self.farewells.insert(last.uid.clone(), Arc::new(last));
        }
    }

    /// A call of ours was answered that it is not there; what is known of it is its last word.
    pub(super) fn forget(&mut self, name: &str, uid: &str) {
        if let Some(known) = self.leave(name, uid) {
            self.farewells.insert(uid.to_owned(), known);
        }
    }

    /// Who is not known has left before: that was told, and the life it was told to may be over.
    fn leave(&mut self, name: &str, uid: &str) -> Option<Arc<Seen>> {
        self.note_gone(uid);
        self.pods.get(name).filter(|known| known.uid == uid)?;
        if let Some(incoming) = &mut self.incoming {
            incoming.since.insert(name.to_owned(), None);
        }
        self.pods.remove(name)
    }

    fn note_gone(&mut self, uid: &str) {
        while self.gone.front().is_some_and(|(at, _)| at.elapsed() > LATE) {
            self.gone.pop_front();
        }
        self.gone.push_back((Instant::now(), uid.to_owned()));
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Seen>> {
        self.pods.get(name).cloned()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Seen>> {
        self.pods.values().cloned().collect()
    }

    /// Who went since the last time, each told once.
    pub(super) fn farewells(&mut self) -> Vec<Arc<Seen>> {
        std::mem::take(&mut self.farewells).into_values().collect()
    }
}

/// Whether `new` takes the place of `known`. Versions of one server are numbers that grow; what is no number is taken as
/// it comes.
fn supersedes(new: &Seen, known: &Seen) -> bool {
    match (new.version.parse::<u64>(), known.version.parse::<u64>()) {
        (Ok(new), Ok(known)) => new >= known,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str, version: u64) -> Pod {
        let metadata = json!({"name": name, "uid": uid, "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn listed(store: &mut Store, pods: Vec<Pod>) {
        store.begin();
        store.page(pods);
        store.complete();
    }

    fn names(store: &Store) -> Vec<String> {
        store.pods().iter().map(|pod| format!("{}@{}", pod.name, pod.version)).collect()
    }

    fn gone(store: &mut Store) -> Vec<String> {
        store.farewells().iter().map(|pod| pod.uid.clone()).collect()
    }

    /// NEW-62: until a list is complete it takes nothing away, and what we made while it was read stays.
    #[test]
    fn a_list_in_progress_proves_nothing() {
        let mut store = Store::default();
        listed(&mut store, vec![pod("a", "1", 1), pod("b", "2", 2)]);
        store.begin();
        store.page(vec![pod("a", "1", 5)]);
        assert_eq!(names(&store), ["a@1", "b@2"]);
        store.put(pod("c", "3", 7)).unwrap();
        store.complete();
        assert_eq!(names(&store), ["a@5", "c@7"]);
        assert_eq!(gone(&mut store), ["2"]);
        assert!(store.farewells().is_empty(), "told once");
    }

    /// NEW-62: an event that is older than the answer to our own write does not undo it.
    #[test]
    fn what_is_older_changes_nothing() {
        let mut store = Store::default();
        store.put(pod("a", "1", 9)).unwrap();
        store.put(pod("a", "1", 10)).unwrap();
        assert_eq!(store.put(pod("a", "1", 9)).unwrap().version, "10");
        assert_eq!(names(&store), ["a@10"]);
    }

    /// NEW-55, NEW-62: the answer to a call that was under way when its Pod went does not bring it back; whatever the watch
    /// tells later does.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_brings_nothing_back() {
        let mut store = Store::default();
        listed(&mut store, vec![pod("a", "1", 1), pod("b", "2", 2), pod("c", "3", 3)]);
        store.remove(pod("a", "1", 4));
        store.forget("b", "2");
        listed(&mut store, vec![]);
        for late in [pod("a", "1", 1), pod("b", "2", 5), pod("c", "3", 6)] {
            assert!(store.answered(late).is_some());
        }
        assert!(names(&store).is_empty());
        store.answered(pod("a", "9", 7)).unwrap();
        store.put(pod("b", "2", 8)).unwrap();
        assert_eq!(names(&store), ["a@7", "b@8"]);
        tokio::time::advance(LATE * 2).await;
        store.forget("b", "2");
        assert_eq!(store.gone.len(), 1, "it does not grow");
    }

    /// NEW-65, NEW-163, F109, T10: whoever is gone is told once, also when its name was taken again, or when a 404 said it and the
    /// watch says it later.
    #[test]
    fn an_end_is_told_once() {
        let mut store = Store::default();
        listed(&mut store, vec![pod("a", "1", 1), pod("b", "2", 2), pod("c", "3", 3)]);
        store.remove(pod("a", "1", 4));
        store.put(pod("b", "9", 5)).unwrap();
        store.forget("c", "another");
        assert_eq!(gone(&mut store), ["1", "2"]);
        assert_eq!(names(&store), ["b@5", "c@3"]);
        store.forget("c", "3");
        assert_eq!(names(&store), ["b@5"]);
        assert_eq!(gone(&mut store), ["3"]);
        store.remove(pod("c", "3", 6));
        assert!(store.farewells().is_empty(), "told by the call before");
    }
}
