//! The place where one question is asked: a namespace of its own, and a notebook.

use std::time::Duration;

use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kubernetes::{Client, Kubernetes, Plan, Reply, Resource, Verb};
use crate::real::kubernetes::{Cluster, Service};

/// What happens in the background is done by then.
const BACKGROUND: Duration = Duration::from_secs(60);

/// An API server that can be asked.
pub trait Side {
    /// A client that may do anything.
    fn client(&self) -> Client;
    /// Makes a namespace.
    fn namespace<'a>(&'a mut self, name: &'a str) -> LocalBoxFuture<'a, anyhow::Result<()>>;
    /// A client that may do nothing to Pods, Secrets and entries.
    fn stranger<'a>(&'a mut self, namespace: &'a str) -> LocalBoxFuture<'a, anyhow::Result<Client>>;
    /// Sees to it that a watch from version 1 comes too late.
    fn forget_history(&mut self) -> LocalBoxFuture<'_, anyhow::Result<()>>;
}

impl Side for Kubernetes {
    fn client(&self) -> Client {
        // Its certificate is its own, and that is all that can fail.
        #[expect(clippy::expect_used, reason = "see above")]
        Client::new(&self.url(), &self.token(), self.ca_pem()).expect("a client that trusts the double")
    }

    fn namespace<'a>(&'a mut self, name: &'a str) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        // The real server is asked without a scheduler.
        self.kubelet().usually(Plan::Ignored);
        for resource in Resource::ALL {
            Verb::ALL.into_iter().for_each(|verb| self.allow(verb, resource));
        }
        self.add_namespace(name);
        Box::pin(std::future::ready(Ok(())))
    }

    fn stranger<'a>(&'a mut self, _namespace: &'a str) -> LocalBoxFuture<'a, anyhow::Result<Client>> {
        for resource in [Resource::Pods, Resource::Secrets, Resource::ClusterStaticEntries] {
            Verb::ALL.into_iter().for_each(|verb| self.forbid(verb, resource));
        }
        Box::pin(std::future::ready(Ok(self.client())))
    }

    fn forget_history(&mut self) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Self::forget_history(self);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Side for Cluster {
    fn client(&self) -> Client {
        self.admin().clone()
    }

    fn namespace<'a>(&'a mut self, name: &'a str) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move { Ok(Self::namespace(self, name).await?) })
    }

    fn stranger<'a>(&'a mut self, namespace: &'a str) -> LocalBoxFuture<'a, anyhow::Result<Client>> {
        Box::pin(async move { Ok(self.admin().with_token(&self.token(namespace, "stranger").await?)) })
    }

    /// A new API server knows nothing of what was before it.
    fn forget_history(&mut self) -> LocalBoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            self.kill_service(Service::ApiServer).await?;
            self.start_service(Service::ApiServer).await?;
            Ok(self.api_ready().await?)
        })
    }
}

/// A side with a namespace for one question.
pub struct Bench<'s> {
    pub(super) client: Client,
    pub(super) namespace: String,
    side: &'s mut dyn Side,
    notes: Vec<String>,
    uids: Vec<String>,
}

impl<'s> Bench<'s> {
    pub(super) async fn new(side: &'s mut dyn Side, namespace: &str) -> anyhow::Result<Self> {
        side.namespace(namespace).await?;
        let client = side.client();
        Ok(Self { client, namespace: namespace.to_owned(), side, notes: Vec::new(), uids: Vec::new() })
    }

    pub(super) async fn stranger(&mut self) -> anyhow::Result<Client> {
        self.side.stranger(&self.namespace).await
    }

    pub(super) async fn forget_history(&mut self) -> anyhow::Result<()> {
        self.side.forget_history().await
    }

    pub(super) fn into_notes(self) -> Vec<String> {
        self.notes
    }

    /// The path of a core resource of this namespace.
    pub(super) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// The path of a Lease of this namespace.
    pub(super) fn leases(&self, rest: &str) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases{rest}", self.namespace)
    }

    /// Entries have no namespace: their names carry this one's.
    pub(super) fn entries(&self, rest: &str) -> String {
        let rest = rest.strip_prefix('/').map(|rest| format!("/{}-{rest}", self.namespace)).unwrap_or_default();
        format!("/apis/spire.spiffe.io/v1alpha1/clusterstaticentries{rest}")
    }

    /// Notes an answer: its status, a Status as a whole, and of an object the parts at these pointers.
    pub(super) fn note(&mut self, what: &str, reply: &Reply, pointers: &[&str]) {
        let body = if reply.body["kind"] == "Status" {
            reply.body.clone()
        } else {
            pointers.iter().map(|at| reply.body.pointer(at).cloned().unwrap_or(Value::Null)).collect()
        };
        let again = reply.retry_after().map(|seconds| format!(" retry after {seconds}")).unwrap_or_default();
        self.write(&format!("{what}: {}{again} {body}", reply.status));
    }

    /// Notes an event of a watch: its kind, and the parts of its object at these pointers.
    pub(super) fn note_event(&mut self, event: Option<&Value>, pointers: &[&str]) {
        let Some(event) = event else { return self.write("the end") };
        if event["object"]["kind"] == "Status" {
            return self.write(&format!("{} {}", event["type"], event["object"]));
        }
        let parts: Value =
            pointers.iter().map(|at| event["object"].pointer(at).cloned().unwrap_or(Value::Null)).collect();
        self.write(&format!("{} {parts}", event["type"]));
    }

    /// Notes a line, without what differs from run to run.
    pub(super) fn write(&mut self, line: &str) {
        let line = line.replace(&self.namespace, "NAMESPACE");
        let mut text = String::new();
        for word in split(&line) {
            text.push_str(&self.plain(word));
        }
        self.notes.push(text);
    }

    fn plain(&mut self, word: &str) -> String {
        let hex = |each: char| each.is_ascii_hexdigit();
        if word.len() == 36
            && word.chars().filter(|each| *each == '-').count() == 4
            && word.split('-').all(|part| part.chars().all(hex))
        {
            let known = self.uids.iter().position(|uid| uid == word);
            let number = known.unwrap_or_else(|| {
                self.uids.push(word.to_owned());
                self.uids.len() - 1
            });
            return format!("UID{number}");
        }
        if word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T' {
            return "TIME".to_owned();
        }
        word.to_owned()
    }

    /// Looks again until a condition holds of the answer to a GET; then the answer.
    pub(super) async fn until(&mut self, path: &str, condition: impl Fn(&Reply) -> bool) -> anyhow::Result<Reply> {
        let end = Instant::now() + BACKGROUND;
        loop {
            let reply = self.client.get(path).await?;
            if condition(&reply) {
                return Ok(reply);
            }
            anyhow::ensure!(Instant::now() < end, "GET {path} still says {} {}", reply.status, reply.body);
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Looks until it is gone.
    pub(super) async fn gone(&mut self, path: &str) -> anyhow::Result<()> {
        self.until(path, |reply| reply.status == 404).await.map(drop)
    }

    /// A secret with labels.
    pub(super) fn secret(&self, name: &str, labels: Value) -> Value {
        json!({"metadata": {"name": name, "labels": labels}, "stringData": {"key": "value"}})
    }

    /// A Pod that no scheduler looks at.
    pub(super) fn pod(&self, name: &str) -> Value {
        let container = json!({"name": "executor", "image": "registry.invalid/executor:1"});
        json!({"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}})
    }

    pub(super) fn lease(&self, name: &str, holder: &str) -> Value {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}})
    }

    pub(super) fn entry(&self, name: &str) -> Value {
        let name = format!("{}-{name}", self.namespace);
        let spec = json!({"className": "nobody", "spiffeID": "spiffe://td.test/a", "parentID": "spiffe://td.test/node",
            "selectors": ["k8s:pod-uid:1"], "x509SVIDTTL": "60s"});
        json!({"apiVersion": "spire.spiffe.io/v1alpha1", "kind": "ClusterStaticEntry", "metadata": {"name": name},
            "spec": spec})
    }
}

/// Cuts a line where words end; what uids and times are made of stays together.
fn split(line: &str) -> impl Iterator<Item = &str> {
    let inner = |each: char| each.is_ascii_alphanumeric() || each == '-' || each == ':';
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = if inner(first) {
            rest.find(|each| !inner(each)).unwrap_or(rest.len())
        } else {
            rest.find(inner).unwrap_or(rest.len())
        };
        let (word, tail) = rest.split_at(end);
        rest = tail;
        Some(word)
    })
}
