//! The stream of a watch: what was written since, what is written from now on, bookmarks, and its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::refusal::Refusal;
use super::review::to_newer;
use super::route::Route;
use super::selector::Selector;
use super::shared::{Shared, World};
use super::store::{Change, Deed};
use super::wire::{Body, Cut};

/// The server ends a watch after 30 to 60 min if nobody names a time.
const LONGEST: Duration = Duration::from_secs(1800);
/// Bookmarks come about once a minute, and shortly before the end.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// One watch that is being answered.
struct Stream {
    shared: Arc<Shared>,
    changes: Receiver<u64>,
    route: Route,
    selector: Selector,
    /// The last write that was told or passed over.
    seen: u64,
    waiting: VecDeque<Value>,
    cut: u64,
    bookmarks: u64,
    next_bookmark: Instant,
    end: Instant,
    over: bool,
}

/// Begins a watch.
pub(crate) fn open(shared: &Arc<Shared>, route: &Route) -> Result<Body, Refusal> {
    let selector = Selector::parse(route.asked("labelSelector"), route.asked("fieldSelector"))?;
    let from = match route.asked("resourceVersion") {
        "" => 0,
        text => text.parse().map_err(|_| Refusal::bad_version(text))?,
    };
    let seconds = route.asked("timeoutSeconds").parse().ok().filter(|seconds| *seconds > 0);
    let now = Instant::now();
    let changes = shared.changes();
    let mut stream = shared.look(|world| Stream {
        shared: shared.clone(),
        changes,
        route: route.clone(),
        selector,
        seen: from,
        waiting: VecDeque::new(),
        cut: world.watches.cut,
        bookmarks: world.watches.bookmarks,
        next_bookmark: now + BOOKMARKS,
        end: now + seconds.map_or(LONGEST, Duration::from_secs),
        over: false,
    });
    let initial = route.wants("sendInitialEvents") || (from == 0 && route.asked("sendInitialEvents").is_empty());
    if initial {
        stream.begin();
    }
    let frames = stream::unfold(stream, |mut stream| async move {
        let frame = stream.next().await?;
        Some((frame, stream))
    });
    Ok(StreamBody::new(frames).boxed_unsync())
}

/// A watch that is accepted and never says anything.
pub(crate) fn silence() -> Body {
    StreamBody::new(stream::pending::<Result<Frame<Bytes>, Cut>>()).boxed_unsync()
}

impl Stream {
    /// Everything that exists comes first, as if it had just been added.
    fn begin(&mut self) {
        let shared = self.shared.clone();
        shared.look(|world| {
            for object in world.store.all(self.route.resource, &self.route.namespace) {
                if self.selector.fits(object) {
                    self.tell("ADDED", object);
                }
            }
            self.seen = world.store.version();
        });
        if self.route.wants("sendInitialEvents") && self.route.wants("allowWatchBookmarks") {
            let mut bookmark = self.bookmark();
            bookmark["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            self.waiting.push_back(bookmark);
        }
    }

    /// The next lines, or `None` at the end of the stream.
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, Cut>> {
        loop {
            self.changes.borrow_and_update();
            let shared = self.shared.clone();
            if shared.look(|world| world.watches.cut != self.cut) {
                return Some(Err(Cut));
            }
            if !shared.look(|world| world.watches.silent) {
                if !self.over {
                    shared.look(|world| self.gather(world));
                }
                if !self.waiting.is_empty() {
                    let lines: String = self.waiting.drain(..).map(|line| format!("{line}\n")).collect();
                    return Some(Ok(Frame::data(lines.into())));
                }
            }
            if self.over || self.shared.stop.is_cancelled() {
                return None;
            }
            self.wait().await;
        }
    }

    async fn wait(&mut self) {
        let stop = self.shared.stop.clone();
        tokio::select! {
            () = stop.cancelled() => self.over = true,
            _ = self.changes.changed() => {}
            () = tokio::time::sleep_until(self.next_bookmark.min(self.end)) => {
                self.over = Instant::now() >= self.end;
                self.next_bookmark = Instant::now() + BOOKMARKS;
                self.add_bookmark();
            }
        }
    }

    /// Takes over what was written since the last look.
    fn gather(&mut self, world: &World) {
        match world.store.since(self.seen) {
            Ok(changes) => {
                let ours = |change: &&Change| {
                    let Route { resource, namespace, .. } = &self.route;
                    change.key.0 == *resource && (namespace.is_empty() || change.key.1 == *namespace)
                };
                let ours: Vec<_> = changes.filter(ours).cloned().collect();
                for change in &ours {
                    self.show(change);
                }
                self.seen = world.store.version().max(self.seen);
            }
            Err(refusal) => {
                self.waiting.push_back(json!({"type": "ERROR", "object": refusal.status()}));
                self.over = true;
            }
        }
        if world.watches.bookmarks != self.bookmarks {
            self.bookmarks = world.watches.bookmarks;
            self.add_bookmark();
        }
    }

    /// A selector decides what a watch sees of a change: an object that no longer fits is gone for it.
    fn show(&mut self, change: &Change) {
        let before = change.before.as_deref().is_some_and(|before| self.selector.fits(before));
        let now = self.selector.fits(&change.object);
        match (change.deed, before, now) {
            (Deed::Added, _, true) | (Deed::Modified, false, true) => self.tell("ADDED", &change.object),
            (Deed::Modified, true, true) => self.tell("MODIFIED", &change.object),
            (Deed::Deleted, true, _) => self.tell("DELETED", &change.object),
            // What it was when it still fitted, under the version of the change.
            (Deed::Modified, true, false) => {
                let mut last = change.before.as_deref().cloned().unwrap_or_default();
                last["metadata"]["resourceVersion"] = change.version.to_string().into();
                self.tell("DELETED", &last);
            }
            _ => {}
        }
    }

    fn tell(&mut self, kind: &str, object: &Value) {
        let mut object = object.clone();
        if self.route.newer_events {
            to_newer(&mut object);
        }
        self.waiting.push_back(json!({"type": kind, "object": object}));
    }

    fn add_bookmark(&mut self) {
        if self.route.wants("allowWatchBookmarks") {
            let bookmark = self.bookmark();
            self.waiting.push_back(bookmark);
        }
    }

    fn bookmark(&self) -> Value {
        let mut object = json!({
            "kind": self.route.resource.kind(), "apiVersion": self.route.resource.api_version(),
            "metadata": {"resourceVersion": self.seen.to_string(), "creationTimestamp": null},
        });
        if self.route.resource == super::Resource::Pods {
            object["spec"] = json!({"containers": null});
            object["status"] = json!({});
        }
        json!({"type": "BOOKMARK", "object": object})
    }
}
