//! Which parts of the controller run in this process (CMP-1 to CMP-5).

use std::fmt;

use domain::id::Backend;

/// A part of the controller that can be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Fetches tasks, holds them, reports for them; owns the facade.
    Scheduler,
    /// Makes Kubernetes Pods.
    PodWorker,
    /// Makes OpenSandbox VMs.
    VmWorker,
    /// Makes processes on this host; never part of `all`.
    LocalWorker,
}

impl Component {
    /// What `all` means, in this order.
    pub const ALL: [Self; 3] = [Self::Scheduler, Self::PodWorker, Self::VmWorker];

    /// The word in settings, logs and status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::PodWorker => "pod-worker",
            Self::VmWorker => "vm-worker",
            Self::LocalWorker => "local-worker",
        }
    }

    /// The backend a worker serves; none for the scheduler.
    #[must_use]
    pub fn backend(self) -> Option<Backend> {
        match self {
            Self::Scheduler => None,
            Self::PodWorker => Some(Backend::Pod),
            Self::VmWorker => Some(Backend::Vm),
            Self::LocalWorker => Some(Backend::Local),
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A selection, in the order of first mention, without duplicates. It holds the scheduler and at least one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components(Vec<Component>);

/// Why a selection is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// CMP-3.
    #[error("unknown controller component {0:?}")]
    Unknown(String),
    /// CMP-4.
    #[error(
        "workers without scheduler are refused: splitting is not safe, because a claim lives in the process that owns \
         the facade, and a worker elsewhere could hand one task to two executors"
    )]
    WorkersAlone,
    /// CMP-5.
    #[error("the scheduler needs at least one backend: select a worker as well")]
    NoWorker,
}

impl Components {
    /// Reads a comma list. Empty, blank and `all` select everything but `local-worker`.
    pub fn parse(text: &str) -> Result<Self, SelectionError> {
        let selected = Self::words(text)?;
        if !selected.0.contains(&Component::Scheduler) {
            return Err(SelectionError::WorkersAlone);
        }
        if selected.backends().next().is_none() {
            return Err(SelectionError::NoWorker);
        }
        Ok(selected)
    }

    fn words(text: &str) -> Result<Self, SelectionError> {
        if matches!(text.trim(), "" | "all") {
            return Ok(Self(Component::ALL.to_vec()));
        }
        let mut selected = Vec::new();
        for word in text.split(',').map(str::trim) {
            let known = Component::ALL.into_iter().chain([Component::LocalWorker]).find(|c| c.as_str() == word);
            let component = known.ok_or_else(|| SelectionError::Unknown(word.to_owned()))?;
            if !selected.contains(&component) {
                selected.push(component);
            }
        }
        Ok(Self(selected))
    }

    /// Whether this component was selected.
    #[must_use]
    pub fn has(&self, component: Component) -> bool {
        self.0.contains(&component)
    }

    /// The selection in its order.
    pub fn iter(&self) -> impl Iterator<Item = Component> + '_ {
        self.0.iter().copied()
    }

    /// The backends whose workers are selected, in that order.
    pub fn backends(&self) -> impl Iterator<Item = Backend> + '_ {
        self.iter().filter_map(Component::backend)
    }
}

impl fmt::Display for Components {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Component::as_str).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<&str, &str>) {
        let got = Components::parse(text).map(|c| c.to_string()).map_err(|e| e.to_string());
        match expect {
            Ok(words) => assert_eq!(got.as_deref(), Ok(words), "{text:?}"),
            Err(part) => assert!(got.as_ref().is_err_and(|e| e.contains(part)), "{text:?}: {got:?}"),
        }
    }

    /// CMP-1, CMP-2.
    #[test]
    fn selections() {
        for everything in ["", "  ", "all", " all "] {
            check(everything, Ok("scheduler,pod-worker,vm-worker"));
        }
        check(" vm-worker, scheduler ,vm-worker", Ok("vm-worker,scheduler"));
        check("scheduler,local-worker", Ok("scheduler,local-worker"));
    }

    /// CMP-3, CMP-4, CMP-5.
    #[test]
    fn refusals() {
        check("scheduler,,pod-worker", Err("unknown controller component \"\""));
        check("webhook", Err("unknown controller component \"webhook\""));
        check("foo", Err("unknown controller component \"foo\""));
        check("all,scheduler", Err("unknown controller component \"all\""));
        check("pod-worker", Err("splitting is not safe"));
        check("scheduler", Err("needs at least one backend"));
    }
}
