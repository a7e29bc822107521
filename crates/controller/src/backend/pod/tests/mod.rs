//! The Pod backend on the double of the Kubernetes API.

#![expect(clippy::unwrap_used, reason = "tests")]

mod cares;
mod entries;
mod lives;
mod others;
mod refusals;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::id::Backend as BackendKind;
use domain::identity::{IdentityCase, IdentityRules};
use domain::metadata::{Claim, ExecutorRecord};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tempfile::TempDir;
use testkit::kubernetes::{Kubernetes, Resource};

use super::privileged::PrivilegedPolicy;
use super::template::PodTemplate;
use super::*;
pub(super) use crate::backend::samples::{launch_of, name, state, state_after_nudge, until};
use crate::backend::{ExecutorState, contract, samples};
use crate::config::{ClusterAccess, SpiffeVolume};
use crate::identity::entry::{BoundPod, IssueError, PodKey, Standing, Swept};

/// An issuer that remembers what it was asked for.
#[derive(Default)]
pub(super) struct Issuer {
    pub(super) bound: Mutex<BTreeMap<PodKey, BoundPod>>,
    /// Every one that it ever bound.
    written: Mutex<BTreeSet<PodKey>>,
    pub(super) released: Mutex<Vec<PodKey>>,
    pub(super) answers: Mutex<Vec<Result<Standing, IssueError>>>,
    pub(super) sweeps: Mutex<Vec<BTreeSet<PodKey>>>,
}

impl IdentityIssuer for Issuer {
    fn bind(&self, pod: BoundPod) -> BoxFuture<'_, Result<Standing, IssueError>> {
        let answer = self.answers.lock().unwrap().pop().unwrap_or(Ok(Standing::Bound));
        if answer.is_ok() {
            self.written.lock().unwrap().insert(pod.key.clone());
            self.bound.lock().unwrap().insert(pod.key.clone(), pod);
        }
        futures::future::ready(answer).boxed()
    }

    fn release(&self, pod: PodKey) -> BoxFuture<'_, Result<(), IssueError>> {
        self.bound.lock().unwrap().remove(&pod);
        self.released.lock().unwrap().push(pod);
        futures::future::ready(Ok(())).boxed()
    }

    fn sweep(&self, live: Vec<PodKey>) -> BoxFuture<'_, Result<Swept, IssueError>> {
        let (written, bound) = (self.written.lock().unwrap(), self.bound.lock().unwrap());
        let amiss = live.iter().filter(|key| written.contains(key) && !bound.contains_key(key)).cloned().collect();
        self.sweeps.lock().unwrap().push(live.into_iter().collect());
        futures::future::ready(Ok(Swept { removed: 0, amiss })).boxed()
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
        let about = About {
            instance: "here".parse().unwrap(),
            rules: rules(),
            pending: Duration::from_secs(900),
            lease: Some(LEASE.to_owned()),
        };
        PodBackend::start(cluster, recipe, about, Arc::<Issuer>::clone(&self.issuer))
    }

    pub(super) fn is_bound(&self, name: &str) -> bool {
        self.issuer.bound.lock().unwrap().keys().any(|key| key.name == name)
    }

    pub(super) fn has(&self, resource: Resource, name: &str) -> bool {
        self.cluster.object(resource, name).is_some()
    }
}

/// By which the controllers of these tests would agree; it is there only where a test makes it.
pub(super) const LEASE: &str = "dynamic-runner-scheduler-here";

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
    samples::record(BackendKind::Pod, n)
}

pub(super) fn launch(n: i64) -> Launch {
    launch_of(record(n))
}

pub(super) fn claim() -> Mark {
    Mark::Claimed(Claim { at: "2026-01-02T03:05:00Z".parse().unwrap(), log_shift: 3 })
}

/// Calls until the executor is ready.
pub(super) async fn ready(backend: &PodBackend, n: i64) {
    until("ready", async || backend.ensure(launch(n)).await.unwrap() == Ensured::Ready).await;
}
