//! Containers that a kubelet cannot start: the executor's, and the template's init containers before it.

use std::time::Duration;

use domain::reason::Reason;

use super::{Standstill, failed, held_up, words};
use crate::backend::ExecutorState;
use crate::backend::pod::seen::{Container, Seen, Waiting};

/// From the first failed pull (requirements §1.4).
const PULL: Duration = Duration::from_secs(5 * 60);
/// The registry says that there is no such image, or that it is not for us.
const NO_SUCH_IMAGE: Duration = Duration::from_secs(30);
/// A Secret or ConfigMap of the template may be on its way.
const CONFIGURATION: Duration = Duration::from_secs(30);

/// A container that does not start, and why.
pub(super) struct Trouble<'a> {
    kind: Kind,
    /// The init container's name; none is the executor.
    init: Option<&'a str>,
    told: &'a Waiting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Pull,
    Configuration,
}

/// What keeps the executor of a Pod from starting. While an init container does not start, nothing is said of the executor but
/// that the Pod is being initialized.
pub(super) fn trouble(pod: &Seen) -> Option<Trouble<'_>> {
    let inits = pod.waiting_inits.iter().map(|(name, told)| (Some(name.as_str()), told));
    let executor = match &pod.executor {
        Container::Waiting(told) => Some((None, told)),
        _ => None,
    };
    inits.chain(executor).find_map(|(init, told)| Some(Trouble { kind: kind(&told.reason)?, init, told }))
}

fn kind(reason: &str) -> Option<Kind> {
    match reason {
        "InvalidImageName" => Some(Kind::Name),
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "ImageInspectError" | "RegistryUnavailable" => {
            Some(Kind::Pull)
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" | "PreCreateHookError" => {
            Some(Kind::Configuration)
        }
        _ => None,
    }
}

impl Trouble<'_> {
    pub(super) fn standstill(&self) -> Standstill {
        match self.kind {
            Kind::Name | Kind::Pull => Standstill::Pulling,
            Kind::Configuration => Standstill::Configuring,
        }
    }

    /// What becomes of its executor when it has stood still like this for so long.
    pub(super) fn state(&self, stands: Duration) -> ExecutorState {
        let Waiting { reason, message } = self.told;
        let image =
            self.init.map_or_else(|| "its image".to_owned(), |init| format!("the image of its init container {init}"));
        match self.kind {
            Kind::Name => failed(Reason::ImageInvalid, words(&format!("the name of {image} is invalid"), message)),
            Kind::Pull => {
                let what = words(&format!("{image} is not there ({reason})"), message);
                held_up(stands, patience(self.told), Reason::ImagePull, &what)
            }
            Kind::Configuration => {
                let ours =
                    self.init.map_or_else(|| reason.clone(), |init| format!("its init container {init}: {reason}"));
                held_up(stands, CONFIGURATION, Reason::ConfigError, &words(&ours, message))
            }
        }
    }
}

fn patience(told: &Waiting) -> Duration {
    // The registry's words, which every runtime passes on.
    let hopeless = ["not found", "manifest unknown", "unauthorized", "denied", "forbidden"];
    let lower = told.message.to_ascii_lowercase();
    match told.reason.as_str() {
        "ErrImageNeverPull" => NO_SUCH_IMAGE,
        _ if hopeless.iter().any(|word| lower.contains(word)) => NO_SUCH_IMAGE,
        _ => PULL,
    }
}
