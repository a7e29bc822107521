//! What a test does to Pods and nodes.

use serde_json::{Value, json};

use super::event::{Source, tell};
use super::plan::{Plan, Stage, Timing};
use super::pod::{self, End};
use super::{Machine, Workload};
use crate::kubernetes::deletion::{self, Options};
use crate::kubernetes::meta::{self, table, text};
use crate::kubernetes::resource::Resource;
use crate::kubernetes::shared::Shared;
use crate::kubernetes::store::{Key, Store};
use crate::real::leash::Leash;

/// What somebody else does to a Pod, or the node that it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// `kubectl delete`: its container is told to end, and gets its grace.
    Deleted,
    /// `kubectl delete --force`: it is gone at once, with its phase as it was.
    Forced,
    /// The kubelet evicts it.
    Evicted,
    /// The kernel ends its container for want of memory.
    OutOfMemory,
    /// A more important Pod takes its place.
    Preempted,
}

/// The hands on the cluster's own programs. Methods that name a Pod panic if it does not exist.
#[derive(Clone, Copy)]
pub struct Kubelet<'a> {
    pub(crate) shared: &'a Shared,
}

impl Kubelet<'_> {
    /// What befalls every Pod from now on that nothing else was planned for.
    pub fn usually(&self, plan: Plan) {
        self.machine(|machine| machine.plans.usual = plan);
    }

    /// What befalls the next Pod; several queue up.
    pub fn next(&self, plan: Plan) {
        self.machine(|machine| machine.plans.next.push_back(plan));
    }

    /// What befalls the next Pod of this name.
    pub fn plan(&self, name: &str, plan: Plan) {
        self.machine(|machine| drop(machine.plans.named.insert(name.to_owned(), plan)));
    }

    /// From now on each container is a process of this program, with the environment, arguments and Secrets that its Pod
    /// says. It ends when its Pod is deleted, when a test ends it, or by itself; then the Pod tells its exit code.
    /// Nothing of it outlives this process.
    ///
    /// # Panics
    ///
    /// If `/bin/sh` cannot be started, which holds that promise.
    pub fn runs(&self, workload: Workload) {
        let leash = Leash::tie(0, Some(&workload.folder), None);
        #[expect(clippy::expect_used, reason = "a test cannot go on without a shell")]
        let leash = leash.expect("a shell that watches over the processes");
        self.machine(|machine| {
            machine.workload = Some(workload);
            machine.leash = Some(leash);
        });
    }

    /// How long the steps take from now on.
    pub fn timing(&self, timing: Timing) {
        self.machine(|machine| machine.timing = timing);
    }

    /// Whether final phases are held back after containers ended; what was held comes when it is off.
    pub fn late_phases(&self, late: bool) {
        self.machine(|machine| if late { machine.late_phases = true } else { machine.release_phases() });
    }

    /// Whether containers ignore SIGTERM, so that a deletion takes the whole grace period and ends in 137.
    pub fn ignores_sigterm(&self, deaf: bool) {
        self.machine(|machine| machine.deaf = deaf);
    }

    /// With which exit code a container ends that heeds SIGTERM; 143 unless changed.
    pub fn on_sigterm(&self, code: i32) {
        self.machine(|machine| machine.on_sigterm = code);
    }

    /// Whether deleted Pods stay Terminating; those that wait go when it is off.
    pub fn stuck_deletions(&self, stuck: bool) {
        self.shared.change(|world| {
            world.machine.stuck_deletions = stuck;
            if !stuck {
                world.machine.stop_all(&world.store);
            }
        });
    }

    /// A Pod whose plan held it back goes on and runs: a node was added, the image can be had.
    pub fn release(&self, name: &str) {
        self.on(name, |machine, _, _, pod| {
            let uid = meta::uid(pod).to_owned();
            machine.plans.replace(&uid, Plan::Run);
            let placed = !text(pod, "/spec/nodeName").is_empty();
            let stage = if placed { Stage::Start(uid) } else { Stage::Schedule(uid) };
            machine.later(std::time::Duration::ZERO, stage);
        });
    }

    /// The container of a Pod ends with this exit code.
    pub fn exit(&self, name: &str, code: i32) {
        self.end(name, End::exit(code));
    }

    /// The kernel kills something in the container for want of memory, and the container ends with this code: 137
    /// where its first process was hit, else whatever that made of it, even 0 in a Pod that then is *Succeeded*.
    pub fn out_of_memory(&self, name: &str, code: i32) {
        self.end(name, End::because(code, "OOMKilled", ""));
    }

    /// The container ends with a termination message.
    pub fn exit_with_message(&self, name: &str, code: i32, message: &str) {
        self.end(name, End { message: message.to_owned(), ..End::exit(code) });
    }

    /// The kubelet evicts a Pod: Failed, and it stays.
    pub fn evict(&self, name: &str, message: &str) {
        self.on(name, |machine, store, key, pod| evict(machine, store, key, pod, message));
    }

    /// `activeDeadlineSeconds` of a Pod are over now.
    pub fn deadline(&self, name: &str) {
        self.on(name, |machine, store, key, pod| machine.deadline_passed(store, key, pod));
    }

    /// A more important Pod takes its place: `DisruptionTarget`, then an ordinary deletion.
    pub fn preempt(&self, name: &str) {
        self.on(name, |_, store, key, pod| preempt(store, key, pod));
    }

    /// Something befalls a Pod that runs; false: there is none of this name (any more).
    #[must_use]
    pub fn befalls(&self, name: &str, fate: Fate) -> bool {
        self.try_on(name, |machine, store, key, pod| {
            if !pod::has_started(pod) || meta::is_going(pod) {
                return false;
            }
            match fate {
                Fate::Deleted => drop(deletion::delete(store, (key.0, &key.1, &key.2), &Options::default())),
                Fate::Forced => drop(store.remove(key, pod.clone())),
                Fate::Evicted => evict(machine, store, key, pod, "The node was low on resource: memory."),
                Fate::OutOfMemory => {
                    machine.container_ended(store, key, pod, End::because(137, "OOMKilled", ""));
                }
                Fate::Preempted => preempt(store, key, pod),
            }
            true
        })
        .unwrap_or_default()
    }

    /// Adds an empty, ready node.
    pub fn add_node(&self, name: &str) {
        self.shared.change(|world| world.machine.add_node(&mut world.store, name));
    }

    /// The kubelet of a node is not heard of any more: the node is NotReady, its Pods are not ready and stay as they
    /// are, and deletions there do not end.
    pub fn lose_node(&self, node: &str) {
        self.shared.change(|world| {
            world.machine.lost.insert(node.to_owned());
            let (reason, message) = ("NodeStatusUnknown", "Kubelet stopped posting node status.");
            let place = (Resource::Nodes, String::new(), node.to_owned());
            world.store.edit(&place, |object| pod::condition(object, "Ready", "Unknown", reason, message));
            for key in pods_of(&world.store, node) {
                world.store.edit(&key, |pod| pod::condition(pod, "Ready", "False", "", ""));
            }
        });
    }

    /// The tolerations of a lost node's Pods are over: `DisruptionTarget` and a deletion that nobody carries out.
    pub fn evict_from_node(&self, node: &str) {
        self.shared.change(|world| {
            for key in pods_of(&world.store, node) {
                let message = "Taint manager: deleting due to NoExecute taint";
                let pod = disrupt(&mut world.store, &key, "DeletionByTaintManager", message);
                tell(&mut world.store, &pod, Source::NodeController, "Normal", "TaintManagerEviction", message);
            }
        });
    }

    /// The kubelet is back; what waited for it goes on.
    pub fn node_back(&self, node: &str) {
        self.shared.change(|world| {
            world.machine.lost.remove(node);
            let place = (Resource::Nodes, String::new(), node.to_owned());
            let (reason, message) = ("KubeletReady", "kubelet is posting ready status");
            world.store.edit(&place, |object| pod::condition(object, "Ready", "True", reason, message));
            world.machine.stop_all(&world.store);
        });
    }

    /// The Node object is deleted, and its Pods with it, at once and without a word, as after the loss of a machine.
    pub fn delete_node(&self, node: &str) {
        self.shared.change(|world| {
            let place = (Resource::Nodes, String::new(), node.to_owned());
            for key in pods_of(&world.store, node).into_iter().chain([place]) {
                if let Some(object) = world.store.get(&key).cloned() {
                    world.store.remove(&key, Value::clone(&object));
                }
            }
        });
    }

    /// Which entries spire-controller-manager takes: those of this class; `None` is that it is away.
    pub fn entry_manager(&self, class: Option<&str>) {
        self.machine(|machine| machine.entries.class = class.map(str::to_owned));
    }

    fn end(&self, name: &str, end: End) {
        self.on(name, |machine, store, key, pod| machine.container_ended(store, key, pod, end));
    }

    fn machine(&self, change: impl FnOnce(&mut Machine)) {
        self.shared.change(|world| change(&mut world.machine));
    }

    fn on(&self, name: &str, act: impl FnOnce(&mut Machine, &mut Store, &Key, &Value)) {
        assert!(self.try_on(name, act).is_some(), "the cluster has no Pod {name}");
    }

    /// None where there is no Pod of this name.
    fn try_on<T>(&self, name: &str, act: impl FnOnce(&mut Machine, &mut Store, &Key, &Value) -> T) -> Option<T> {
        self.shared.change(|world| {
            let pod = world.store.all(Resource::Pods, "").find(|pod| meta::name(pod) == name).cloned()?;
            let key = (Resource::Pods, meta::namespace(&pod).to_owned(), name.to_owned());
            Some(act(&mut world.machine, &mut world.store, &key, &pod))
        })
    }
}

fn evict(machine: &mut Machine, store: &mut Store, key: &Key, pod: &Value, message: &str) {
    machine.kill(meta::uid(pod));
    store.edit(key, |pod| {
        pod::because(pod, "Evicted", message);
        pod::condition(pod, "DisruptionTarget", "True", "TerminationByKubelet", message);
        pod::terminated(pod, &End::exit(137));
        pod::finished(pod, &End::exit(137));
    });
    tell(store, pod, Source::Kubelet, "Warning", "Evicted", message);
}

fn preempt(store: &mut Store, key: &Key, pod: &Value) {
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    disrupt(store, key, "PreemptionByScheduler", message);
    tell(store, pod, Source::Scheduler, "Normal", "Preempted", message);
}

impl Machine {
    pub(crate) fn add_node(&mut self, store: &mut Store, name: &str) {
        let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {},
            "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}}});
        let _ = store.create(Resource::Nodes, "", node);
        let place = (Resource::Nodes, String::new(), name.to_owned());
        let (reason, message) = ("KubeletReady", "kubelet is posting ready status");
        store.edit(&place, |node| pod::condition(node, "Ready", "True", reason, message));
    }

    /// Deletions that were not carried out go on.
    fn stop_all(&mut self, store: &Store) {
        let going = store.all(Resource::Pods, "").filter(|pod| meta::is_going(pod));
        let going: Vec<_> = going.map(|pod| (meta::uid(pod).to_owned(), pod.clone())).collect();
        for (uid, pod) in going {
            self.stop(store, &uid, &pod);
        }
    }
}

/// The Pods of a node that have not ended.
fn pods_of(store: &Store, node: &str) -> Vec<Key> {
    let here = |pod: &&std::sync::Arc<Value>| text(pod, "/spec/nodeName") == node && !pod::has_ended(pod);
    let key =
        |pod: &std::sync::Arc<Value>| (Resource::Pods, meta::namespace(pod).to_owned(), meta::name(pod).to_owned());
    store.all(Resource::Pods, "").filter(here).map(key).collect()
}

/// Marks a Pod as disrupted and deletes it.
fn disrupt(store: &mut Store, key: &Key, reason: &str, message: &str) -> Value {
    let pod = store.edit(key, |pod| {
        table(pod, "status");
        pod::condition(pod, "DisruptionTarget", "True", reason, message);
    });
    let _ = deletion::delete(store, (key.0, &key.1, &key.2), &Options::default());
    pod.map_or(Value::Null, |pod| Value::clone(&pod))
}
