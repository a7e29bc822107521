//! The Pod backend on the double of the Kubernetes API.

#![expect(clippy::unwrap_used, reason = "tests")]

mod lives;
mod others;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::capability::{Capability, Key, KeyRing};
use domain::id::{AssignmentId, Backend as BackendKind, Epoch, PayloadDigest, TaskId};
use domain::identity::{IdentityCase, IdentityRules};
use domain::metadata::{Claim, ExecutorRecord};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tempfile::TempDir;
use testkit::kubernetes::{Kubernetes, Resource};

use super::privileged::PrivilegedPolicy;
use super::template::PodTemplate;
use super::*;
use crate::backend::{ExecutorState, contract};
use crate::config::{ClusterAccess, SpiffeVolume};
use crate::identity::entry::{BoundPod, IssueError, PodKey, Standing};

/// Enough for a machine under load; nothing waits for so long when all is well.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// An issuer that remembers what it was asked for.
#[derive(Default)]
pub(super) struct Issuer {
    pub(super) bound: Mutex<BTreeMap<PodKey, BoundPod>>,
    pub(super) released: Mutex<Vec<PodKey>>,
    pub(super) answers: Mutex<Vec<Result<Standing, IssueError>>>,
    pub(super) sweeps: Mutex<Vec<BTreeSet<PodKey>>>,
}

impl IdentityIssuer for Issuer {
    fn bind(&self, pod: BoundPod) -> BoxFuture<'_, Result<Standing, IssueError>> {
        let answer = self.answers.lock().unwrap().pop().unwrap_or(Ok(Standing::Bound));
        if answer.is_ok() {
            self.bound.lock().unwrap().insert(pod.key.clone(), pod);
        }
        futures::future::ready(answer).boxed()
    }

    fn release(&self, pod: PodKey) -> BoxFuture<'_, Result<(), IssueError>> {
        self.bound.lock().unwrap().remove(&pod);
        self.released.lock().unwrap().push(pod);
        futures::future::ready(Ok(())).boxed()
    }

    fn sweep(&self, live: Vec<PodKey>) -> BoxFuture<'_, Result<usize, IssueError>> {
        self.sweeps.lock().unwrap().push(live.into_iter().collect());
        futures::future::ready(Ok(0)).boxed()
    }
}

/// A cluster, and what a controller in it would be made with.
pub(super) struct World {
    pub(super) cluster: Kubernetes,
    pub(super) issuer: Arc<Issuer>,
    folder: TempDir,
}

impl World {
    pub(super) async fn start() -> Self {
        Self { cluster: Kubernetes::start().await, issuer: Arc::default(), folder: tempfile::tempdir().unwrap() }
    }

    /// A controller that starts now.
    pub(super) fn controller(&self) -> PodBackend {
        self.controller_with(recipe())
    }

    pub(super) fn controller_with(&self, recipe: Recipe) -> PodBackend {
        let token = self.folder.path().join("token");
        std::fs::write(&token, self.cluster.token()).unwrap();
        let access = ClusterAccess { api: Some(self.cluster.url().parse().unwrap()), ca: None, token: Some(token) };
        let cluster = Cluster::connect(&access, "gitea-actions").unwrap();
        let about = About { instance: "here".parse().unwrap(), rules: rules(), pending: Duration::from_secs(900) };
        PodBackend::start(cluster, recipe, about, Arc::<Issuer>::clone(&self.issuer))
    }

    pub(super) fn is_bound(&self, name: &str) -> bool {
        self.issuer.bound.lock().unwrap().keys().any(|key| key.name == name)
    }

    pub(super) fn has(&self, resource: Resource, name: &str) -> bool {
        self.cluster.object(resource, name).is_some()
    }
}

pub(super) fn rules() -> IdentityRules {
    IdentityRules { trust_domain: "example.org".parse().unwrap(), prefix: None, case: IdentityCase::Lower }
}

pub(super) fn recipe() -> Recipe {
    Recipe {
        image: format!("registry.example.org/executor@sha256:{}", "a".repeat(64)),
        service_account: "gitea-task-executor".to_owned(),
        uid: 2000,
        volume: SpiffeVolume::Csi,
        facade_url: "https://facade.example.org:8443".to_owned(),
        facade_spiffe_id: "spiffe://example.org/facade".parse().unwrap(),
        template: PodTemplate::default(),
        privileged: PrivilegedPolicy::default(),
    }
}

pub(in crate::backend::pod) fn record(n: i64) -> ExecutorRecord {
    ExecutorRecord {
        id: AssignmentId::of(TaskId::try_from(n).unwrap()),
        instance: "here".parse().unwrap(),
        backend: BackendKind::Pod,
        epoch: Epoch::FIRST,
        digest: PayloadDigest::of(format!("task {n}").as_bytes()),
        repository: "owner/name".parse().unwrap(),
        job_key: "build".parse().unwrap(),
        spiffe_id: "spiffe://example.org/ci/owner/name/build".parse().unwrap(),
        fetched_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        deadline: "2026-01-02T06:04:05Z".parse().unwrap(),
        claim: None,
        interrupted_at: None,
        steps: None,
        terminal: false,
    }
}

pub(super) fn name(n: i64) -> String {
    format!("gitea-task-{n}-here-e1")
}

pub(super) fn launch(n: i64) -> Launch {
    launch_of(record(n))
}

pub(super) fn launch_of(record: ExecutorRecord) -> Launch {
    let capability = capability(&record);
    Launch { record, labels: vec!["self-hosted".to_owned(), "pod".to_owned()], capability }
}

pub(super) fn capability(record: &ExecutorRecord) -> Capability {
    let key = Key::new("k".repeat(32).as_bytes()).unwrap();
    KeyRing::new(key, None).issue(&record.instance, record.id, record.epoch, record.deadline)
}

pub(super) fn claim() -> Mark {
    Mark::Claimed(Claim { at: "2026-01-02T03:05:00Z".parse().unwrap(), log_shift: 3 })
}

pub(super) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Calls until the executor is ready.
pub(super) async fn ready(backend: &PodBackend, n: i64) {
    until("ready", async || backend.ensure(launch(n)).await.unwrap() == Ensured::Ready).await;
}

pub(super) async fn state(backend: &PodBackend, name: &str) -> Option<ExecutorState> {
    backend.list().await.unwrap().into_iter().find(|observed| observed.name == name).map(|observed| observed.state)
}

/// Lists at every nudge until the executor is in a state like that.
pub(super) async fn state_after_nudge(
    backend: &PodBackend,
    name: &str,
    wanted: impl Fn(&ExecutorState) -> bool,
) -> ExecutorState {
    let nudged = async {
        loop {
            if let Some(state) = state(backend, name).await.filter(&wanted) {
                return state;
            }
            backend.changed().await;
        }
    };
    tokio::time::timeout(PATIENCE, nudged).await.unwrap()
}
