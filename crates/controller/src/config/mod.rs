//! Settings: texts become validated values with units and types, or every error at once.
//!
//! Two stages: [`raw::Raw`] (what was said, and where) and [`Config`] (what it means). A [`Config`] is complete; nobody
//! downstream parses, defaults or checks a setting again. Invariant 7: only this module reads environment and files
//! for settings.

pub mod address;
mod allow;
pub mod components;
pub mod effective;
pub mod nats;
pub mod pods;
pub mod raw;
pub mod secret;
pub mod setting;
mod spelling;
pub mod table;
#[cfg(test)]
mod tests;
mod trust;
mod validate;
pub mod value;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use domain::id::{Backend, InstanceId};
use domain::identity::{IdentityRules, SpiffeId, TrustDomain};
use domain::policy::TrustPolicy;

use crate::backend::local::isolation::{Shared, UserRange};

pub use address::{FacadeUrl, GiteaUrl, WorkloadEndpoint};
pub use allow::{AllowError, AllowList};
pub use components::{Component, Components};
pub use nats::Nats;
pub use pods::{ClusterAccess, Election, EntryParent, IdentityMeans, PodIdentity, Pods, RunnerVersion, SpiffeVolume};
pub use secret::{SecretFile, SecretRule};
pub use setting::{ConfigErrors, SettingError};
pub use validate::{Supplied, check_given, local_jobs, validate};

/// The validated configuration of a controller. No `Debug`: it holds secrets.
pub struct Config {
    /// What runs in this process.
    pub components: Components,
    /// Names everything we own.
    pub instance: InstanceId,
    /// Folder of the embedded queue, the local executors, the built-in issuer and the lock.
    pub state_dir: PathBuf,
    /// Whether anything is kept there: not by a process that makes Pods only, has its queue in NATS and a Lease of
    /// Kubernetes, unless STATE_DIR names the folder. Its image has no place that can be written (IMG-1).
    pub keeps_files: bool,
    /// The Gitea and our registration there.
    pub gitea: Gitea,
    /// Whose identities, and who issues them.
    pub identity: Identity,
    /// The server that executors talk to.
    pub facade: Facade,
    /// What holds a task between fetch and start.
    pub queue: Queue,
    /// What seals tasks in the queue.
    pub envelope: Keys,
    /// Which jobs are taken.
    pub labels: Labels,
    /// How many.
    pub capacity: Capacity,
    /// How long.
    pub limits: Limits,
    /// How local jobs are kept apart.
    pub local: LocalJobs,
    /// Executors in Pods, with `pod-worker`.
    pub pods: Option<Box<Pods>>,
    /// How replicas agree on who works.
    pub election: Election,
    /// The official runner of this host.
    pub runner: Runner,
    /// Health, metrics and status.
    pub ops: Ops,
    /// The log.
    pub log: Log,
    /// Whether tokens may cross a network in clear text; warned about at each start.
    pub allow_plaintext: bool,
}

impl Config {
    /// The one backend of this process.
    #[must_use]
    pub fn kind(&self) -> Backend {
        if self.pods.is_some() { Backend::Pod } else { Backend::Local }
    }

    /// Its slots.
    #[must_use]
    pub fn slots(&self) -> NonZeroU32 {
        self.pods.as_ref().map_or(self.capacity.local, |pods| pods.capacity)
    }
}

/// The Gitea this controller serves.
pub struct Gitea {
    /// Its address.
    pub url: GiteaUrl,
    /// UUID of our one registration.
    pub uuid: SecretFile,
    /// Token of our one registration.
    pub token: SecretFile,
    /// The server's limit for a task that runs, from its fetch.
    pub endless_task_timeout: Duration,
    /// The server's limit for a task that is silent.
    pub zombie_task_timeout: Duration,
}

/// Whose identities, and who issues them.
pub struct Identity {
    /// How a job's SPIFFE ID is made; holds the trust domain.
    pub rules: IdentityRules,
    /// Folder with the keys of our own certificate authority, for executors of this host.
    pub authority: PathBuf,
    /// Our own SPIFFE ID, which executors accept the facade by. Inside the trust domain.
    pub facade_id: SpiffeId,
    /// Whose jobs count as trusted, and what becomes of the others (NEW-120, NEW-121).
    pub trust: TrustPolicy,
    /// Lifetime of an issued identity, whole seconds.
    pub svid_ttl: Duration,
}

impl Identity {
    /// The trust domain of every identity here.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.rules.trust_domain
    }
}

/// The server that executors talk to.
pub struct Facade {
    /// Where executors reach it.
    pub url: FacadeUrl,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Keys of the capabilities.
    pub capability: Keys,
    /// What jobs may reach of Gitea.
    pub paths: AllowList,
}

/// A key and, while it is replaced, the one before.
pub struct Keys {
    /// Signs and seals.
    pub current: SecretFile,
    /// Only verifies and opens.
    pub previous: Option<SecretFile>,
}

/// Which jobs are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    /// Backend of jobs whose `runs-on` names none; without it they fail with a reason.
    pub default_backend: Option<Backend>,
    /// Whether `self-hosted` is declared.
    pub declare_self_hosted: bool,
    /// Further labels, in the order given; each names an enabled backend.
    pub extra: Vec<(String, Backend)>,
}

/// How many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Slots of `local-worker`.
    pub local: NonZeroU32,
    /// Tasks held per backend beyond its free slots, 0 to 32.
    pub look_ahead: u32,
    /// Most executors of one owner.
    pub per_owner: Option<NonZeroU32>,
    /// Most executors of one repository.
    pub per_repository: Option<NonZeroU32>,
}

/// How long (requirements §1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest wait for a slot.
    pub queue_wait: Duration,
    /// Longest time between a running executor and its claim.
    pub claim: Duration,
    /// Longest run; Gitea's endless limit less 5 min holds in any case.
    pub run: Option<Duration>,
    /// Time for a cancelled job to end; without it 6 min when `cancelling` was declared, else 60 s.
    pub cancel_grace: Option<Duration>,
    /// Time for an executor to go after Gitea accepted its result.
    pub terminal_grace: Duration,
}

/// How local jobs are kept apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalJobs {
    /// Whether they are.
    pub isolation: IsolationKind,
    /// Uids for them, where we are root.
    pub users: UserRange,
    /// Most processes and threads of one.
    pub processes: NonZeroU32,
    /// What they see beside what they must.
    pub shared: Vec<Shared>,
    /// The home of whoever runs us.
    pub home: Option<PathBuf>,
    /// Files with secrets of ours, which none of them may read.
    pub secrets: Vec<PathBuf>,
}

/// Whether local jobs are kept from each other and from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationKind {
    /// By namespaces, and as root by users of their own; nothing starts where that is not possible.
    Full,
    /// Not at all.
    None,
}

impl IsolationKind {
    /// The word of the setting.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::None => "none",
        }
    }
}

/// The official runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// A program's name in PATH, or a path; none: the names it is known by, in PATH.
    pub binary: Option<String>,
    /// A configuration merged under ours.
    pub config: Option<PathBuf>,
    /// What jobs see of our own environment.
    pub environment: BTreeMap<String, String>,
}

impl Runner {
    /// The folders in which a program is looked for by its name.
    #[must_use]
    pub fn path(&self) -> &str {
        self.environment.get("PATH").map_or("", String::as_str)
    }
}

/// Health, metrics and status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ops {
    /// Where they are served; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Where the address that was bound is written (0600), for `status --state`.
    pub address_file: PathBuf,
}

/// The log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Its form.
    pub format: LogFormat,
    /// Least severity.
    pub level: LogLevel,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Least severity that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// And what is strange.
    Warn,
    /// And what happens.
    Info,
    /// And how.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    pub(crate) const WORDS: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// The word of the setting.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize].0
    }
}

/// Who issues identities, as the setting says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issuer {
    /// A Workload API.
    WorkloadApi,
    /// Our own.
    BuiltIn,
}

/// What holds a task between fetch and start. No `Debug`: it may hold passwords.
pub enum Queue {
    /// A file below the state folder.
    Embedded,
    /// A stream of NATS.
    JetStream(Box<Nats>),
}

/// Through what Pods get their identities, as the setting says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// Objects of the SPIRE controller manager.
    Entries,
    /// The SPIRE server's admin API.
    Server,
}

/// What holds a task between fetch and start, as the setting says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// NATS.
    JetStream,
    /// A file below the state folder.
    Embedded,
}
