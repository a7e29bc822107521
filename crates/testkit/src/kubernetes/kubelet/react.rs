//! How the cluster's programs react to writes, and what they do when something is due.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::event::{Source, tell};
use super::plan::{Plan, Stage};
use super::pod::{self, End};
use super::{Machine, Order, container, entries};
use crate::kubernetes::deletion;
use crate::kubernetes::meta::{self, text};
use crate::kubernetes::resource::Resource;
use crate::kubernetes::store::{Change, Deed, Key, Store, grace};

impl Machine {
    /// Looks at one write.
    pub(super) fn react(&mut self, store: &Store, change: &Change) {
        let uid = meta::uid(&change.object).to_owned();
        match (change.key.0, change.deed) {
            (Resource::Pods, Deed::Added) => {
                let plan = self.plans.choose(meta::name(&change.object), &uid);
                let placed = !text(&change.object, "/spec/nodeName").is_empty();
                if placed && has_node(store, &change.object) {
                    self.later(self.timing.start, Stage::Start(uid.clone()));
                } else if !placed && plan != Plan::Ignored {
                    self.later(self.timing.schedule, Stage::Schedule(uid.clone()));
                }
            }
            (Resource::Pods, Deed::Modified) => self.pod_changed(store, &uid, change),
            (Resource::Pods, Deed::Deleted) => self.forget(&uid),
            (Resource::ClusterStaticEntries, _) => {
                self.later(self.timing.others, Stage::Judge(change.key.2.clone()));
            }
            _ => {}
        }
        if change.deed == Deed::Deleted && !store.dependents(&uid).is_empty() {
            self.later(self.timing.others, Stage::Collect(uid.clone()));
        }
        if change.deed == Deed::Added {
            let absent = |owner: &&str| store.place(owner).is_none_or(|key| key.1 != change.key.1);
            let absent: Vec<_> = meta::owners(&change.object).map(|(_, uid)| uid).filter(absent).collect();
            for owner in absent {
                self.later(self.timing.others, Stage::Collect(owner.to_owned()));
            }
        }
    }

    /// A Pod that began to go, or is to go faster, is told to end.
    fn pod_changed(&mut self, store: &Store, uid: &str, change: &Change) {
        let before = change.before.as_deref().and_then(grace);
        let now = grace(&change.object).filter(|_| meta::is_going(&change.object));
        if now.is_some() && now != before && now != Some(0) {
            self.stop(store, uid, &change.object);
        }
    }

    /// Begins to end the container of a Pod that is going, unless nobody on its node listens.
    pub(super) fn stop(&mut self, store: &Store, uid: &str, pod: &Value) {
        let nobody = self.lost.contains(text(pod, "/spec/nodeName")) || !has_node(store, pod);
        if self.stuck_deletions || nobody {
            return;
        }
        if self.alive.contains(uid) {
            let seconds = u32::try_from(grace(pod).unwrap_or_default()).unwrap_or(u32::MAX);
            self.orders.push(Order::Stop(uid.to_owned(), self.timing.second.saturating_mul(seconds)));
            return;
        }
        let started = pod::has_started(pod);
        let (after, end) = if pod::has_ended(pod) {
            (Duration::ZERO, End::exit(0))
        } else if !started {
            let message = "The container could not be located when the pod was terminated";
            (self.timing.stop, End::because(137, "ContainerStatusUnknown", message))
        } else if self.deaf {
            let seconds = u32::try_from(grace(pod).unwrap_or_default()).unwrap_or(u32::MAX);
            (self.timing.second.saturating_mul(seconds), End::exit(137))
        } else {
            (self.timing.stop, End::exit(self.on_sigterm))
        };
        self.later(after, Stage::Stop(uid.to_owned(), end));
    }

    fn forget(&mut self, uid: &str) {
        self.kill(uid);
        self.ends.remove(uid);
        self.plans.forget(uid);
    }

    /// Ends the process of a Pod, if it has one.
    pub(super) fn kill(&mut self, uid: &str) {
        if self.alive.contains(uid) {
            self.orders.push(Order::Kill(uid.to_owned()));
        }
    }

    /// The process of a Pod has ended.
    pub(crate) fn process_ended(&mut self, store: &Store, uid: &str, code: i32, message: &str) {
        self.alive.remove(uid);
        let Some(pod) = Self::pod(store, uid).and_then(|key| store.get(&key).cloned()) else { return };
        let end = match message {
            "" => End::exit(code),
            message => End::because(code, "StartError", message),
        };
        let stage = if meta::is_going(&pod) { Stage::Stop } else { Stage::End };
        self.later(Duration::ZERO, stage(uid.to_owned(), end));
    }

    /// Does what is due.
    pub(super) fn carry_out(&mut self, store: &mut Store, stage: Stage) {
        match stage {
            Stage::Collect(owner) => {
                let dependents = store.dependents(&owner);
                deletion::collect(store, &dependents);
            }
            Stage::Judge(name) => entries::judge(store, &self.entries, &name),
            Stage::Schedule(uid) => self.with_pod(store, &uid, Self::schedule),
            Stage::Start(uid) => self.with_pod(store, &uid, Self::start),
            Stage::BackOff(uid) => self.with_pod(store, &uid, Self::back_off),
            Stage::Phase(uid) => self.with_pod(store, &uid, Self::phase),
            Stage::Deadline(uid) => self.with_pod(store, &uid, |machine, store, key, pod| {
                machine.deadline_passed(store, key, pod);
            }),
            Stage::End(uid, end) => {
                self.with_pod(store, &uid, |machine, store, key, pod| machine.container_ended(store, key, pod, end));
            }
            Stage::Stop(uid, end) => {
                self.with_pod(store, &uid, |machine, store, key, pod| machine.stopped(store, key, pod, &end));
            }
            Stage::Gone(uid) => self.with_pod(store, &uid, |_, store, key, _| {
                store.edit(key, |pod| pod["metadata"]["deletionGracePeriodSeconds"] = 0.into());
            }),
        }
    }

    /// Does something to a Pod that still exists and whose node can be reached.
    fn with_pod(&mut self, store: &mut Store, uid: &str, act: impl FnOnce(&mut Self, &mut Store, &Key, &Arc<Value>)) {
        let Some(key) = Self::pod(store, uid) else { return };
        let Some(pod) = store.get(&key).cloned() else { return };
        if !self.lost.contains(text(&pod, "/spec/nodeName")) {
            act(self, store, &key, &pod);
        }
    }

    fn schedule(&mut self, store: &mut Store, key: &Key, pod: &Arc<Value>) {
        if meta::is_going(pod) || !text(pod, "/spec/nodeName").is_empty() {
            return;
        }
        let uid = meta::uid(pod);
        let node = self.choose_node(store, pod);
        let told = match (self.plans.of(uid), node) {
            (Plan::Unschedulable { scale_up }, _) => Err(("0/1 nodes are available: 1 Insufficient cpu.", scale_up)),
            (_, None) => Err(("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", false)),
            (_, Some(node)) => Ok(node),
        };
        match told {
            Ok(node) => {
                store.edit(key, |pod| pod::scheduled(pod, &node));
                let message = format!("Successfully assigned {}/{} to {node}", key.1, key.2);
                tell(store, pod, Source::Scheduler, "Normal", "Scheduled", &message);
                self.later(self.timing.start, Stage::Start(uid.to_owned()));
            }
            Err((message, scale_up)) => {
                store.edit(key, |pod| pod::unschedulable(pod, message));
                tell(store, pod, Source::Scheduler, "Warning", "FailedScheduling", message);
                if scale_up {
                    let message = "pod triggered scale-up: [{pool 1->2 (max: 5)}]";
                    tell(store, pod, Source::Autoscaler, "Normal", "TriggeredScaleUp", message);
                }
            }
        }
    }

    /// The ready node with the fewest Pods among those that its selector fits.
    fn choose_node(&self, store: &Store, pod: &Value) -> Option<String> {
        let wanted = pod["spec"]["nodeSelector"].as_object();
        let fits = |node: &Value| {
            let labels = &node["metadata"]["labels"];
            let matches = wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
            let open = node["spec"]["unschedulable"] != Value::Bool(true);
            matches && open && !self.lost.contains(meta::name(node))
        };
        let load = |node: &str| {
            let here = |pod: &&Arc<Value>| text(pod, "/spec/nodeName") == node && !pod::has_ended(pod);
            store.all(Resource::Pods, "").filter(here).count()
        };
        let mut nodes = store.all(Resource::Nodes, "").filter(|node| fits(node)).map(|node| meta::name(node));
        let first = nodes.next()?;
        let Some(second) = nodes.next() else { return Some(first.to_owned()) };
        [first, second].into_iter().chain(nodes).min_by_key(|node| load(node)).map(str::to_owned)
    }

    fn start(&mut self, store: &mut Store, key: &Key, pod: &Arc<Value>) {
        if meta::is_going(pod) || pod::has_ended(pod) {
            return;
        }
        let uid = meta::uid(pod).to_owned();
        if self.lacks_secret(store, key, pod) {
            self.later(self.timing.start, Stage::Start(uid));
            return;
        }
        let wait = |store: &mut Store, reason: &str, message: &str| {
            store.edit(key, |pod| pod::waiting(pod, reason, message));
            tell(store, pod, Source::Kubelet, "Warning", "Failed", message);
        };
        match self.plans.of(&uid) {
            Plan::Creating => {
                store.edit(key, |pod| pod::waiting(pod, "ContainerCreating", ""));
                let message = "MountVolume.SetUp failed for volume \"spire-agent-socket\"";
                tell(store, pod, Source::Kubelet, "Warning", "FailedMount", message);
            }
            Plan::ImagePull(text) => {
                wait(store, "ErrImagePull", &text);
                self.later(self.timing.back_off, Stage::BackOff(uid));
            }
            Plan::InvalidImageName => {
                wait(store, "InvalidImageName", "Failed to apply default image tag: couldn't parse image name");
            }
            Plan::ImageNeverPull => {
                wait(store, "ErrImageNeverPull", "Container image is not present with pull policy of Never");
            }
            Plan::ConfigError(text) => wait(store, "CreateContainerConfigError", &text),
            Plan::StartError(text) => {
                self.container_ended(store, key, pod, End::because(128, "StartError", &text));
            }
            plan => self.run(store, key, pod, &plan),
        }
    }

    /// A volume waits for its Secret, a variable as well; each in its own way, and the kubelet tries again.
    fn lacks_secret(&self, store: &mut Store, key: &Key, pod: &Arc<Value>) -> bool {
        let had = text(pod, "/status/containerStatuses/0/state/waiting/reason").to_owned();
        let tell_once = |store: &mut Store, reason: &str, event: &str, text: &str| {
            if had != reason {
                let words = if event == "FailedMount" { "" } else { text };
                store.edit(key, |pod| pod::waiting(pod, reason, words));
                tell(store, pod, Source::Kubelet, "Warning", event, text);
            }
        };
        if let [name, ..] = container::missing_secrets(store, pod).as_slice() {
            let message = format!("MountVolume.SetUp failed for volume: secret \"{name}\" not found");
            tell_once(store, "ContainerCreating", "FailedMount", &message);
            return true;
        }
        if let Some(message) = container::missing_key(store, pod) {
            tell_once(store, "CreateContainerConfigError", "Failed", &format!("Error: {message}"));
            return true;
        }
        false
    }

    /// Its container runs.
    pub(super) fn run(&mut self, store: &mut Store, key: &Key, pod: &Value, plan: &Plan) {
        let uid = meta::uid(pod).to_owned();
        store.edit(key, |pod| pod::running(pod, "127.0.0.1"));
        tell(store, pod, Source::Kubelet, "Normal", "Started", "Started container executor");
        if let Some(workload) = &self.workload {
            self.orders.push(Order::Start(Box::new(container::launch(store, pod, workload))));
            self.alive.insert(uid.clone());
        }
        if let Plan::End { code, after } = plan {
            self.later(*after, Stage::End(uid.clone(), End::exit(*code)));
        }
        if let Some(seconds) = pod["spec"]["activeDeadlineSeconds"].as_u64() {
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.later(self.timing.second.saturating_mul(seconds), Stage::Deadline(uid));
        }
    }

    fn back_off(&mut self, store: &mut Store, key: &Key, pod: &Arc<Value>) {
        let image = text(pod, "/spec/containers/0/image");
        let message = format!("Back-off pulling image \"{image}\"");
        store.edit(key, |pod| pod::waiting(pod, "ImagePullBackOff", &message));
        tell(store, pod, Source::Kubelet, "Normal", "BackOff", &message);
    }

    /// The container has ended; the phase follows after a while.
    pub(super) fn container_ended(&mut self, store: &mut Store, key: &Key, pod: &Value, end: End) {
        self.kill(meta::uid(pod));
        if pod::has_ended(pod) || self.ends.contains_key(meta::uid(pod)) {
            return;
        }
        store.edit(key, |pod| pod::terminated(pod, &end));
        self.ends.insert(meta::uid(pod).to_owned(), end);
        if !self.late_phases {
            self.later(self.timing.phase, Stage::Phase(meta::uid(pod).to_owned()));
        }
    }

    fn phase(&mut self, store: &mut Store, key: &Key, pod: &Arc<Value>) {
        if let Some(end) = self.ends.remove(meta::uid(pod)) {
            store.edit(key, |pod| pod::finished(pod, &end));
        }
    }

    /// Phases that were held back come after all.
    pub(super) fn release_phases(&mut self) {
        self.late_phases = false;
        let held: Vec<_> = self.ends.keys().cloned().collect();
        for uid in held {
            self.later(Duration::ZERO, Stage::Phase(uid));
        }
    }

    /// The node ends a Pod that had its time.
    pub(super) fn deadline_passed(&mut self, store: &mut Store, key: &Key, pod: &Value) {
        if pod::has_ended(pod) || self.ends.contains_key(meta::uid(pod)) {
            return;
        }
        let message = "Pod was active on the node longer than the specified deadline";
        let (end, uid) = (End::exit(137), meta::uid(pod).to_owned());
        self.kill(&uid);
        store.edit(key, |pod| {
            pod::because(pod, "DeadlineExceeded", message);
            pod::unready(pod, "PodFailed", "");
            pod::terminated(pod, &end);
        });
        tell(store, pod, Source::Kubelet, "Normal", "DeadlineExceeded", message);
        self.ends.insert(uid.clone(), end);
        if !self.late_phases {
            self.later(self.timing.phase, Stage::Phase(uid));
        }
    }

    /// A deleted Pod's containers have ended: its last phase, and then it is gone.
    fn stopped(&mut self, store: &mut Store, key: &Key, pod: &Value, end: &End) {
        let uid = meta::uid(pod).to_owned();
        if self.stuck_deletions {
            return;
        }
        let end = self.ends.remove(&uid).unwrap_or_else(|| end.clone());
        if !pod::has_ended(pod) {
            store.edit(key, |pod| {
                pod::terminated(pod, &end);
                pod::finished(pod, &end);
            });
        }
        self.later(self.timing.gone, Stage::Gone(uid));
    }
}

/// Whether its node exists.
fn has_node(store: &Store, pod: &Value) -> bool {
    store.find(Resource::Nodes, "", text(pod, "/spec/nodeName")).is_ok()
}
