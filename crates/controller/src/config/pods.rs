//! What Pods are made of and where, and how replicas in a cluster agree on a leader.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use domain::identity::{Segment, SpiffeId};
use http::Uri;

use super::WorkloadEndpoint;
use super::setting::Problem;
use super::value::invalid;
use crate::backend::pod::privileged::PrivilegedPolicy;
use crate::backend::pod::template::{PodTemplate, TemplateError};
use crate::gitea::OnCancel;

/// Executors in Pods.
pub struct Pods {
    /// How the API is reached.
    pub access: ClusterAccess,
    /// Where Pods, their Secrets and the Lease are.
    pub namespace: String,
    /// The executors' image.
    pub image: String,
    /// The executors' service account; its token is not mounted.
    pub service_account: String,
    /// Slots.
    pub capacity: NonZeroU32,
    /// The user that jobs run as.
    pub uid: NonZeroU32,
    /// Longest time without a running container.
    pub pending: Duration,
    /// A Pod template merged under our fixed fields.
    pub template: Option<PodTemplate>,
    /// Who may have privileged Pods; none: nobody.
    pub privileged: Option<PrivilegedPolicy>,
    /// How a Pod reaches the Workload API.
    pub volume: SpiffeVolume,
    /// Version of the official runner in the image.
    pub runner_version: RunnerVersion,
    /// How Pods get their identities.
    pub identity: PodIdentity,
    /// Where this process gets its own identity.
    pub endpoint: WorkloadEndpoint,
}

/// How the Kubernetes API is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    /// The API server; none: as a Pod finds it.
    pub api: Option<Uri>,
    /// The authority of its certificate; none: the system's.
    pub ca: Option<PathBuf>,
    /// A file with a bearer token, read again by itself.
    pub token: Option<PathBuf>,
}

/// Who gives Pods their identities.
pub struct PodIdentity {
    /// Through what.
    pub means: IdentityMeans,
    /// What an entry's parent is.
    pub parent: EntryParent,
}

/// Through what identity entries are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityMeans {
    /// ClusterStaticEntry objects of this class, which the SPIRE controller manager turns into entries.
    Entries {
        /// `className`.
        class: String,
    },
    /// The admin API of the SPIRE server behind this socket.
    Server {
        /// An absolute path.
        socket: PathBuf,
    },
}

/// Which agent may hand an identity out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryParent {
    /// The same for every node: one node, or an alias of all of them.
    Fixed(SpiffeId),
    /// The agent of the Pod's node, attested by `k8s_psat` in this cluster (NEW-67).
    OfNode {
        /// SPIRE's name of the cluster.
        cluster: Segment,
    },
}

/// How a Pod reaches the Workload API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpiffeVolume {
    /// The SPIFFE CSI driver.
    Csi,
    /// A folder of the node with the agent's socket.
    HostPath(PathBuf),
}

impl SpiffeVolume {
    /// Reads `csi` or `hostpath:/absolute/folder`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        match text.split_once(':') {
            None if text == "csi" => Ok(Self::Csi),
            Some(("hostpath", path)) if path.starts_with('/') && path.len() > 1 => Ok(Self::HostPath(path.into())),
            _ => Err(Problem::Breaks),
        }
    }
}

/// `major.minor.patch` of the official runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunnerVersion(pub [u32; 3]);

impl RunnerVersion {
    /// What it does when its job is cancelled.
    #[must_use]
    pub fn on_cancel(self) -> OnCancel {
        OnCancel::of_major(self.0[0].into())
    }

    /// Reads `1.0.8` or `v1.0.8`.
    ///
    /// # Errors
    /// It is not three numbers.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let numbers: Option<Vec<u32>> =
            text.strip_prefix('v').unwrap_or(text).split('.').map(|part| part.parse().ok()).collect();
        numbers.and_then(|numbers| numbers.try_into().ok()).map(Self).ok_or(Problem::Breaks)
    }
}

/// How replicas agree on who works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Election {
    /// By a lock in the state folder: one host.
    File,
    /// By a key in NATS.
    Nats,
    /// By a Lease in Kubernetes.
    Kubernetes,
}

/// The Pod template in the file at an absolute path (NEW-68).
pub(super) fn template(text: &str) -> Result<PodTemplate, Problem> {
    PodTemplate::read(&super::value::absolute(text)?).map_err(|error| match error {
        TemplateError::Unreadable(why) => Problem::Unreadable(why),
        TemplateError::Refused(_) => Problem::Invalid(error.to_string()),
    })
}

/// The policy in the file at an absolute path (NEW-70).
pub(super) fn privileged(text: &str) -> Result<PrivilegedPolicy, Problem> {
    PrivilegedPolicy::read(&super::value::absolute(text)?).map_err(Problem::Invalid)
}

/// A name that Kubernetes takes for a namespace, a service account or a label's part (RFC 1123).
pub(super) fn dns_label(text: &str) -> Result<String, Problem> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    let legal = bytes.len() <= 63 && edge(bytes.first().copied()) && edge(bytes.last().copied());
    if legal && bytes.iter().copied().all(inner) { Ok(text.to_owned()) } else { Err(Problem::Breaks) }
}

/// `name@sha256:…` or, where it is permitted, `name:tag`; the registry's host is part of the name.
pub(super) fn image(text: &str) -> Result<String, Problem> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b);
    if text.is_empty() || !text.bytes().all(legal) {
        return invalid("it is not the name of an image");
    }
    Ok(text.to_owned())
}

/// Whether an image reference names its content.
pub(super) fn has_digest(image: &str) -> bool {
    let hex = |digest: &str| digest.len() == 64 && digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    image.rsplit_once("@sha256:").is_some_and(|(name, digest)| !name.is_empty() && hex(digest))
}

/// `https://host[:port]`, or `http://` for loopback: the address of an API server.
pub(super) fn api_server(text: &str) -> Result<Uri, Problem> {
    let Ok(uri) = text.parse::<Uri>() else { return Err(Problem::Breaks) };
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(uri),
        (Some("http"), Some(host)) if super::address::is_loopback(host) => Ok(uri),
        (Some("http"), Some(_)) => invalid("it would carry our token in clear text"),
        _ => Err(Problem::Breaks),
    }
}
