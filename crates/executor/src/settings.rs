//! What one executor works with, parsed and checked.

use std::path::PathBuf;

use http::uri::Authority;
use jiff::Timestamp;
use zeroize::Zeroizing;

use crate::limits::Limits;
use crate::runner::launch::Starter;
use crate::runner::orphans::Orphans;

/// The settings of one executor.
pub struct Settings {
    /// The assignment's id: the runner's name and uuid.
    pub assignment: String,
    /// The capability. No `Debug` here for its sake.
    pub capability: Zeroizing<String>,
    /// Where the capability came from; the spool's file goes beside it (NEW-112).
    pub capability_file: Option<PathBuf>,
    /// Where the facade is.
    pub authority: Authority,
    /// The job's SPIFFE ID, told to its steps.
    pub spiffe_id: String,
    /// `unix:///…` of the Workload API, told to the job's steps.
    pub workload_socket: String,
    /// `pod`, `vm` or `local`, told to the job's steps.
    pub backend: String,
    /// Labels of the job, without schema.
    pub labels: Vec<String>,
    /// When the job's run time ends.
    pub deadline: Timestamp,
    /// The official runner.
    pub runner_binary: PathBuf,
    /// Base configuration that ours is laid over.
    pub runner_config: Option<PathBuf>,
    /// How the runner is started.
    pub starter: Starter,
    /// Whether what the job leaves behind is ours to end.
    pub orphans: Orphans,
    /// Time limits.
    pub limits: Limits,
}
