//! What shall befall a Pod, and how long each step takes.

use std::time::Duration;

use super::pod::End;

/// What happens to a Pod after its creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Plan {
    /// It gets a node and runs until the test, or its deadline, ends it.
    #[default]
    Run,
    /// It gets a node, runs, and ends by itself with this exit code after so long.
    End {
        /// The exit code of the container.
        code: i32,
        /// From Running to the end of the container.
        after: Duration,
    },
    /// No scheduler looks at it: Pending, without any condition.
    Ignored,
    /// `PodScheduled=False/Unschedulable`, until [`super::Kubelet::release`].
    Unschedulable {
        /// Whether a cluster autoscaler says that it adds a node.
        scale_up: bool,
    },
    /// It gets a node and stays in ContainerCreating, as with a volume that cannot be mounted; only an event
    /// (`FailedMount`) tells why.
    Creating,
    /// ErrImagePull, and ImagePullBackOff from then on; the text is the registry's answer.
    ImagePull(String),
    /// `InvalidImageName`, at once and for ever.
    InvalidImageName,
    /// `ErrImageNeverPull`.
    ImageNeverPull,
    /// `CreateContainerConfigError` with this message.
    ConfigError(String),
    /// The container cannot be started: Failed, `StartError`, exit code 128. Running is never seen.
    StartError(String),
}

/// How long the steps take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Creation to node.
    pub schedule: Duration,
    /// Node to Running, or to the first image error.
    pub start: Duration,
    /// ErrImagePull to ImagePullBackOff.
    pub back_off: Duration,
    /// End of the container to the final phase.
    pub phase: Duration,
    /// SIGTERM to the end of a container that heeds it.
    pub stop: Duration,
    /// Final phase of a deleted Pod to its disappearance.
    pub gone: Duration,
    /// The collector and spire-controller-manager.
    pub others: Duration,
    /// One second of a grace period or deadline.
    pub second: Duration,
}

impl Default for Timing {
    /// Milliseconds: for tests that do not look at time.
    fn default() -> Self {
        let milliseconds = Duration::from_millis;
        Self {
            schedule: milliseconds(2),
            start: milliseconds(5),
            back_off: milliseconds(20),
            phase: milliseconds(15),
            stop: milliseconds(10),
            gone: milliseconds(2),
            others: milliseconds(5),
            second: Duration::from_secs(1),
        }
    }
}

impl Timing {
    /// What was measured on a real node.
    #[must_use]
    pub fn real() -> Self {
        let milliseconds = Duration::from_millis;
        Self {
            schedule: milliseconds(30),
            start: milliseconds(1000),
            back_off: milliseconds(13_000),
            phase: milliseconds(1250),
            stop: milliseconds(1500),
            gone: milliseconds(10),
            others: milliseconds(40),
            second: Duration::from_secs(1),
        }
    }
}

/// A step that is due at some time; `String` is the Pod's uid.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    Schedule(String),
    Start(String),
    BackOff(String),
    /// The container ends.
    End(String, End),
    /// The phase says what the container did.
    Phase(String),
    /// The deadline of the Pod is over.
    Deadline(String),
    /// What a deletion does to the containers.
    Stop(String, End),
    Gone(String),
    /// What this uid owned.
    Collect(String),
    /// A ClusterStaticEntry, by name.
    Judge(String),
}

impl super::Plans {
    /// Chooses what befalls a new Pod.
    pub(super) fn choose(&mut self, name: &str, uid: &str) -> Plan {
        let plan = self.named.remove(name).or_else(|| self.next.pop_front()).unwrap_or_else(|| self.usual.clone());
        self.chosen.insert(uid.to_owned(), plan.clone());
        plan
    }

    pub(super) fn of(&self, uid: &str) -> Plan {
        self.chosen.get(uid).cloned().unwrap_or_default()
    }

    pub(super) fn replace(&mut self, uid: &str, plan: Plan) {
        self.chosen.insert(uid.to_owned(), plan);
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.chosen.remove(uid);
    }
}
