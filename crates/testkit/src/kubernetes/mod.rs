//! A stateful double of the Kubernetes API on the wire, with a cluster behind it whose fate a test decides.
//!
//! It keeps objects as JSON, knows nothing of our client, and answers as the real API server does; one suite of
//! questions is put to both. Pods get a node and run without further ado; [`Kubernetes::kubelet`] lets something else
//! happen. All calls are recorded.

mod admission;
mod calls;
mod client;
pub mod conformance;
mod defaults;
mod deletion;
mod fault;
mod handle;
mod kubelet;
mod meta;
mod patch;
mod refusal;
mod resource;
mod review;
mod route;
mod selector;
mod shared;
mod store;
mod tls;
mod validation;
mod watch;
mod wire;

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

pub use crate::gitea::{Away, CallEnd, Latency, Moment};
pub use crate::waiting::NotInTime;
pub use calls::{Call, Verb};
pub use client::{Client, Content, Reply, Watch};
pub use fault::{Fault, On};
pub use kubelet::{Fate, Kubelet, Plan, Timing, Workload};
pub use resource::Resource;
pub(crate) use route::named;

use crate::waiting;
use shared::{Shared, World};
use store::Key;

/// The running double; it ends when this is dropped. All methods but `start` and `wait_for` return at once.
///
/// It has the namespaces `default`, `kube-system` and `gitea-actions`, in the last the ServiceAccount
/// `gitea-task-executor`, and one ready node `node-1`.
pub struct Kubernetes {
    shared: Arc<Shared>,
    address: SocketAddr,
    ca: Option<String>,
}

impl Kubernetes {
    /// Starts on a loopback port of the kernel's choice, without TLS.
    ///
    /// # Panics
    ///
    /// If the loopback interface gives no port.
    pub async fn start() -> Self {
        Self::start_on(None, None).await
    }

    /// With TLS: the URL is `https`, and clients need [`Self::ca_pem`].
    ///
    /// # Panics
    ///
    /// If the loopback interface gives no port, or no certificate can be made.
    pub async fn start_with_tls() -> Self {
        #[expect(clippy::expect_used, reason = "a test cannot go on without a certificate")]
        let (acceptor, ca) = tls::acceptor().expect("a certificate for the loopback address");
        Self::start_on(Some(acceptor), Some(ca)).await
    }

    async fn start_on(acceptor: Option<TlsAcceptor>, ca: Option<String>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        #[expect(clippy::expect_used, reason = "a test cannot go on without a port")]
        let (listener, address) = listener.expect("a port on the loopback interface");
        let shared = Arc::new(Shared::new(World::new(Uuid::new_v4().simple().to_string())));
        tokio::spawn(wire::serve(listener, acceptor, shared.clone()));
        tokio::spawn(shared.clone().run());
        Self { shared, address, ca }
    }

    /// The URL of the API, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.ca.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The CA of its certificate; `None` without TLS.
    #[must_use]
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    /// The bearer token that opens the API; every other is 401.
    #[must_use]
    pub fn token(&self) -> String {
        self.shared.look(|world| world.token.clone())
    }

    /// Another token from now on, as when a ServiceAccount's token was rotated and the old one ran out.
    pub fn replace_token(&self) -> String {
        let token = Uuid::new_v4().simple().to_string();
        self.shared.change(|world| world.token.clone_from(&token));
        token
    }

    /// A kubeconfig (YAML) with this URL, the token, and `namespace` as the default.
    #[must_use]
    pub fn kubeconfig(&self, namespace: &str) -> String {
        use base64::Engine as _;
        let (url, token) = (self.url(), self.token());
        let encode = |ca: &String| base64::engine::general_purpose::STANDARD.encode(ca);
        let ca = self.ca.as_ref().map(|ca| format!(", certificate-authority-data: {}", encode(ca))).unwrap_or_default();
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: double, cluster: {{server: \"{url}\"{ca}}}}}]\n\
             users: [{{name: double, user: {{token: \"{token}\"}}}}]\n\
             contexts: [{{name: double, context: {{cluster: double, user: double, namespace: \"{namespace}\"}}}}]\n\
             current-context: double\n"
        )
    }

    /// The hands on scheduler, kubelet, nodes and spire-controller-manager.
    #[must_use]
    pub fn kubelet(&self) -> Kubelet<'_> {
        Kubelet { shared: &self.shared }
    }

    /// Makes a namespace with its ServiceAccount `default`.
    pub fn add_namespace(&self, name: &str) {
        self.shared.change(|world| world.add_namespace(name));
    }

    /// Makes a ServiceAccount.
    pub fn add_service_account(&self, namespace: &str, name: &str) {
        self.shared.change(|world| world.add_account(namespace, name));
    }

    /// At most so many Pods in a namespace from now on, by a ResourceQuota `executors`.
    pub fn set_quota(&self, namespace: &str, pods: u32) {
        self.set_quota_of(namespace, "pods", pods);
    }

    /// At most so much of what this key of a ResourceQuota names (`pods`, `count/pods`, `secrets`, `count/secrets`), by a
    /// ResourceQuota `executors` that says nothing else.
    pub fn set_quota_of(&self, namespace: &str, key: &str, limit: u32) {
        let spec = serde_json::json!({"hard": {key: limit.to_string()}});
        let quota = serde_json::json!({"metadata": {"name": "executors"}, "spec": spec});
        self.shared.change(|world| {
            let key = (Resource::ResourceQuotas, namespace.to_owned(), "executors".to_owned());
            if world.store.edit(&key, |quota| quota["spec"] = spec).is_none() {
                // The namespace is the test's own; without it there is nothing to limit.
                let _ = world.store.create(Resource::ResourceQuotas, namespace, quota);
            }
        });
    }

    /// All objects of a kind in all namespaces, by namespace and name.
    #[must_use]
    pub fn objects(&self, resource: Resource) -> Vec<Value> {
        self.shared.look(|world| world.store.all(resource, "").map(|object| Value::clone(object)).collect())
    }

    /// The names of all objects of a kind.
    #[must_use]
    pub fn names(&self, resource: Resource) -> Vec<String> {
        self.shared.look(|world| world.store.all(resource, "").map(|object| meta::name(object).to_owned()).collect())
    }

    /// The object of this name, in whatever namespace.
    #[must_use]
    pub fn object(&self, resource: Resource, name: &str) -> Option<Value> {
        self.shared.look(|world| {
            let found = world.store.all(resource, "").find(|object| meta::name(object) == name);
            found.map(|object| Value::clone(object))
        })
    }

    /// The Pod of this name.
    ///
    /// # Panics
    ///
    /// If there is none (any more); see [`Self::object`].
    #[must_use]
    #[track_caller]
    pub fn pod(&self, name: &str) -> Value {
        match self.object(Resource::Pods, name) {
            Some(pod) => pod,
            None => panic!("the cluster has no Pod {name}"),
        }
    }

    /// The phase of a Pod; empty if there is no such Pod.
    #[must_use]
    pub fn phase(&self, pod: &str) -> String {
        let pod = self.object(Resource::Pods, pod).unwrap_or_default();
        meta::text(&pod, "/status/phase").to_owned()
    }

    /// Somebody else creates an object, without a recorded call; `namespace` is empty where there are none.
    ///
    /// # Panics
    ///
    /// If the API would refuse it.
    #[track_caller]
    pub fn add(&self, resource: Resource, namespace: &str, object: Value) -> Value {
        match self.shared.change(|world| world.store.create(resource, namespace, object)) {
            Ok(object) => Value::clone(&object),
            Err(refusal) => panic!("{}", refusal.message),
        }
    }

    /// Somebody else changes an object, past all rules; its status as well.
    ///
    /// # Panics
    ///
    /// If there is none of this name.
    #[track_caller]
    pub fn edit(&self, resource: Resource, name: &str, change: impl FnOnce(&mut Value)) {
        let key = self.key(resource, name);
        self.shared.change(|world| drop(world.store.edit(&key, change)));
    }

    /// Somebody deletes an object as with `kubectl delete`: with its own grace and finalizers.
    ///
    /// # Panics
    ///
    /// If there is none of this name.
    #[track_caller]
    pub fn delete(&self, resource: Resource, name: &str) {
        let (_, namespace, name) = self.key(resource, name);
        let options = deletion::Options::default();
        // It was there; without preconditions nothing refuses.
        let _ = self.shared.change(|world| deletion::delete(&mut world.store, (resource, &namespace, &name), &options));
    }

    /// Somebody forces a Pod away: it is gone at once, with its phase as it was.
    ///
    /// # Panics
    ///
    /// If there is none of this name.
    #[track_caller]
    pub fn force_delete(&self, pod: &str) {
        let key = self.key(Resource::Pods, pod);
        self.shared.change(|world| {
            if let Some(object) = world.store.get(&key).cloned() {
                world.store.remove(&key, Value::clone(&object));
            }
        });
    }

    #[track_caller]
    fn key(&self, resource: Resource, name: &str) -> Key {
        let Some(object) = self.object(resource, name) else {
            panic!("the cluster has no {} {name}", resource.kind());
        };
        (resource, meta::namespace(&object).to_owned(), name.to_owned())
    }

    /// Orders a fault; the oldest that fits a call strikes it.
    pub fn fail(&self, on: On, fault: Fault) {
        self.shared.change(|world| world.faults.order(on, fault));
    }

    /// Forgets all ordered faults.
    pub fn clear_faults(&self) {
        self.shared.change(|world| world.faults.clear());
    }

    /// Takes a right away: such calls are 403, in RBAC's words.
    pub fn forbid(&self, verb: Verb, resource: Resource) {
        self.shared.change(|world| world.faults.take_right(verb, resource));
    }

    /// Gives it back.
    pub fn allow(&self, verb: Verb, resource: Resource) {
        self.shared.change(|world| world.faults.give_right(verb, resource));
    }

    /// Takes the whole API server away, or brings it back. Streams that are open stay so; see [`Self::cut_watches`].
    pub fn set_away(&self, away: Away) {
        self.shared.change(|world| world.away = away);
    }

    /// Delays every call before it takes effect.
    pub fn set_latency(&self, latency: Latency) {
        self.shared.change(|world| world.faults.latency = latency);
    }

    /// All open watches break off.
    pub fn cut_watches(&self) {
        self.shared.change(|world| world.watches.cut += 1);
    }

    /// Watches stay open and tell nothing until this is off; then they tell what they kept back.
    pub fn silence_watches(&self, silent: bool) {
        self.shared.change(|world| world.watches.silent = silent);
    }

    /// Every watch that asked for bookmarks gets one now.
    pub fn send_bookmarks(&self) {
        self.shared.change(|world| world.watches.bookmarks += 1);
    }

    /// Compacts: a watch or a list that goes on from an earlier version gets 410 Expired.
    pub fn forget_history(&self) {
        self.shared.change(|world| world.store.forget_history());
    }

    /// The version of the last write.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.look(|world| world.store.version())
    }

    /// All calls to resources so far, in order of arrival.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.look(|world| world.calls.clone())
    }

    /// The calls of one kind.
    #[must_use]
    pub fn calls_of(&self, verb: Verb, resource: Resource) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.is(verb, resource)).collect()
    }

    /// How many calls of one kind there were.
    #[must_use]
    pub fn count(&self, verb: Verb, resource: Resource) -> usize {
        self.shared.look(|world| world.calls.iter().filter(|call| call.is(verb, resource)).count())
    }

    /// The IDs that the entries which SPIRE took give to the Pod with this uid.
    pub(crate) fn identities_of(&self, uid: &str) -> Vec<String> {
        let selector = Value::from(format!("k8s:pod-uid:{uid}"));
        let about = |entry: &Value| {
            let taken = entry.pointer("/status/set") == Some(&Value::Bool(true));
            taken && entry["spec"]["selectors"].as_array().is_some_and(|selectors| selectors.contains(&selector))
        };
        self.shared.look(|world| {
            let entries = world.store.all(Resource::ClusterStaticEntries, "").filter(|entry| about(entry));
            entries.map(|entry| meta::text(entry, "/spec/spiffeID").to_owned()).collect()
        })
    }

    /// Wakes after every change of anything.
    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.changes()
    }

    /// Events about an object, as reason and message, oldest first.
    #[must_use]
    pub fn events(&self, object: &str) -> Vec<(String, String)> {
        let mut events = self.objects(Resource::Events);
        events.retain(|event| meta::text(event, "/involvedObject/name") == object);
        events.sort_by_key(|event| self.shared.look(|world| world.store.birth(meta::uid(event))));
        let words = |event: &Value| ["/reason", "/message"].map(|pointer| meta::text(event, pointer).to_owned());
        events.iter().map(|event| words(event).into()).collect()
    }

    /// Waits until a condition holds; looks again after every change. `what` completes "it is not so that …".
    ///
    /// # Errors
    ///
    /// When `deadline` (real time) passes first.
    pub async fn wait_for(
        &self,
        what: &str,
        condition: impl Fn(&Self) -> bool,
        deadline: Duration,
    ) -> Result<(), NotInTime> {
        waiting::until(self.shared.changes(), what, || condition(self), deadline).await
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
