//! Why a task was ended by us: the closed list of requirements §7.2 (NEW-29), the same in log rows, events, metrics
//! and `why`.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($variant:ident = $word:literal, $doc:literal;)*) => {
        /// The closed list of reasons.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Reason { $(#[doc = $doc] $variant,)* }

        impl Reason {
            /// Every reason, in the order of the specification.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word that logs, metrics and job pages show.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

reasons! {
    UnsupportedLabels = "unsupported_labels", "No backend serves the job's `runs-on`.";
    AmbiguousBackend = "ambiguous_backend", "The job's `runs-on` names two backends.";
    InvalidJobKey = "invalid_job_key", "The job key is not a legal identity segment.";
    InvalidRepository = "invalid_repository", "The repository is not `owner/name` of legal segments.";
    InvalidWorkflow = "invalid_workflow", "The payload is not one readable job.";
    TooLarge = "too_large", "The task exceeds what the queue can hold.";
    PolicyRefused = "policy_refused", "An operator's policy refuses the task.";
    IdentityPinChanged = "identity_pin_changed", "Another repository stands behind a pinned name.";
    PrivilegedNotAllowed = "privileged_not_allowed", "The policy does not allow a privileged executor.";
    BackendDisabled = "backend_disabled", "The backend the job asks for is not enabled here.";
    QueueTimeout = "queue_timeout", "The task waited too long for a slot.";
    QueueUnavailable = "queue_unavailable", "The queue could not take the task.";
    BackendUnavailable = "backend_unavailable", "The backend could not make an executor.";
    BackendQuota = "backend_quota", "A quota of the backend is used up.";
    PoolExhausted = "pool_exhausted", "The pool has no free sandbox.";
    Unschedulable = "unschedulable", "No node can take the Pod.";
    ImageInvalid = "image_invalid", "The image's name is invalid.";
    ImagePull = "image_pull", "The image cannot be pulled.";
    ConfigError = "config_error", "The executor's configuration is refused.";
    IdentityRejected = "identity_rejected", "The identity entry was refused.";
    IdentityTimeout = "identity_timeout", "The executor never received its identity.";
    ClaimTimeout = "claim_timeout", "The executor runs but never asked for its task.";
    ExecutorExited = "executor_exited", "The executor ended without a final report.";
    ExecutorOom = "executor_oom", "The executor ran out of memory.";
    ExecutorEvicted = "executor_evicted", "The executor was evicted.";
    ExecutorDeleted = "executor_deleted", "The executor was deleted from outside.";
    NodeLost = "node_lost", "The executor's node went away.";
    SandboxLost = "sandbox_lost", "The sandbox lost its Pod.";
    SandboxExpired = "sandbox_expired", "The sandbox reached the end of its lifetime.";
    ExecutorLost = "executor_lost", "The executor is gone or silent without a word.";
    Interrupted = "interrupted", "A signal cut the job off.";
    Deadline = "deadline", "The job ran into its deadline.";
    Cancelled = "cancelled", "The job was cancelled.";
    CancelDeadline = "cancel_deadline", "The job was cancelled and did not end in time.";
    ResultLost = "result_lost", "The job ended but its result never arrived.";
    Superseded = "superseded", "An older life of the same task id.";
    Operator = "operator", "An operator ended it.";
    Internal = "internal", "A fault of ours.";
}

impl Reason {
    /// Another executor made in the same way would end in the same way, or was waited for long enough (NEW-66).
    #[must_use]
    pub fn is_lasting(self) -> bool {
        matches!(
            self,
            Self::ImageInvalid
                | Self::ImagePull
                | Self::ConfigError
                | Self::Unschedulable
                | Self::IdentityRejected
                | Self::PrivilegedNotAllowed
        )
    }

    /// What a reader of the job page can do about it, where no more is known than the word.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::UnsupportedLabels | Self::AmbiguousBackend => {
                "Name exactly one label in `runs-on` that this runner declares."
            }
            Self::QueueTimeout | Self::QueueUnavailable => {
                "Run the job again later; the operator can raise the capacity."
            }
            Self::BackendQuota => "Run the job again later; the operator can raise the quota.",
            Self::ExecutorExited | Self::ExecutorLost | Self::ExecutorDeleted | Self::NodeLost | Self::SandboxLost => {
                "Run the job again; if it happens again, the operator finds more in this runner's log."
            }
            Self::ExecutorOom => "Let the job use less memory, or ask the operator for more.",
            Self::Interrupted => "Run the job again; the operator finds what ended it in this runner's log.",
            Self::Deadline | Self::SandboxExpired => "Split the job, or ask the operator for a longer limit.",
            Self::ResultLost => "Run the job again; its result could not be delivered.",
            Self::IdentityTimeout | Self::ClaimTimeout | Self::BackendUnavailable => {
                "Run the job again; if it happens again, the operator finds the cause with `gitea-dynamic-runner status`."
            }
            Self::Cancelled => "Run the job again if it was not meant.",
            Self::CancelDeadline => {
                "Let what runs after a cancel end sooner, or ask the operator for a longer CANCEL_GRACE."
            }
            _ => "Ask the operator of this runner.",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a task can never run here (NEW-14): the reason, and what the author of the workflow reads on the job page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {cause}")]
pub struct Refusal {
    /// The word of the closed list.
    pub reason: Reason,
    /// One sentence with the thing and the rule it breaks. No secret and no payload text beyond names.
    pub cause: String,
    /// One sentence that says what to do.
    pub remedy: String,
}
