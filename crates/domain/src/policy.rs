//! What an operator decides: which label means which backend (ENV-2, SCH-2, NEW-8), and who is trusted (NEW-120).

mod shares;
mod trust;

pub use self::shares::{Holding, Place, Shares};
pub use self::trust::{Ids, Judgement, Origin, Pattern, Section, TrustPolicy, Untrusted};

use serde::{Deserialize, Serialize};

use crate::id::Backend;
use crate::reason::{Reason, Refusal};

/// The label that names no backend.
const NEUTRAL: &str = "self-hosted";

/// Both mean a VM, whichever of them is declared (ENV-2).
const VM_LABELS: [&str; 2] = ["vm", "vm-dev"];

/// Label → backend, in the order in which labels are declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelMap {
    enabled: Vec<Backend>,
    labels: Vec<(String, Backend)>,
}

impl LabelMap {
    /// The map of these backends: `pod`, the VM label (`vm` or `vm-dev`), `local`, then the extra ones. An extra label
    /// never changes what a label means that is already there; `self-hosted` stays neutral.
    #[must_use]
    pub fn new(enabled: &[Backend], vm_label: &str, extra: &[(String, Backend)]) -> Self {
        let own = |backend: Backend| match backend {
            Backend::Vm => vm_label.to_owned(),
            Backend::Pod | Backend::Local => backend.to_string(),
        };
        let mut labels: Vec<(String, Backend)> =
            [Backend::Pod, Backend::Vm, Backend::Local].into_iter().map(|backend| (own(backend), backend)).collect();
        for (label, backend) in extra {
            if label != NEUTRAL && labels.iter().all(|(known, _)| known != label) {
                labels.push((label.clone(), *backend));
            }
        }
        Self { enabled: enabled.to_vec(), labels }
    }

    fn named_by(&self, label: &str) -> Option<Backend> {
        let declared = self.labels.iter().find(|(known, _)| known == label).map(|(_, backend)| *backend);
        declared.or_else(|| VM_LABELS.contains(&label).then_some(Backend::Vm))
    }

    /// The only backend that these labels name, else the default.
    ///
    /// # Errors
    ///
    /// Two backends named, none named without a default, or one that is not enabled here.
    pub fn backend_for(&self, runs_on: &[String], default: Option<Backend>) -> Result<Backend, Refusal> {
        let mut named: Vec<Backend> = runs_on.iter().filter_map(|label| self.named_by(label)).collect();
        named.sort();
        named.dedup();
        let shown = runs_on.join(", ");
        let backend = match (named.as_slice(), default) {
            (&[one], _) | ([], Some(one)) => one,
            ([], None) => {
                return Err(self.refused(Reason::UnsupportedLabels, format!("runs-on [{shown}] names no backend")));
            }
            _ => {
                let cause = format!("runs-on [{shown}] names more than one backend");
                return Err(self.refused(Reason::AmbiguousBackend, cause));
            }
        };
        if self.enabled.contains(&backend) {
            return Ok(backend);
        }
        Err(self
            .refused(Reason::BackendDisabled, format!("runs-on [{shown}] asks for {backend}, which is not enabled")))
    }

    fn refused(&self, reason: Reason, cause: String) -> Refusal {
        let labels = self.served(&self.enabled).collect::<Vec<_>>().join("`, `");
        Refusal { reason, cause, remedy: format!("Write one of `{labels}` into `runs-on`.") }
    }

    fn served<'a>(&'a self, backends: &'a [Backend]) -> impl Iterator<Item = &'a str> {
        self.labels.iter().filter(|(_, backend)| backends.contains(backend)).map(|(label, _)| label.as_str())
    }

    /// The labels to declare while these backends have room, in the order of requirements §1.1.
    #[must_use]
    pub fn declared(&self, with_room: &[Backend], self_hosted: SelfHosted) -> Vec<String> {
        let neutral = (self_hosted == SelfHosted::Declared).then_some(NEUTRAL);
        let usable: Vec<Backend> = with_room.iter().copied().filter(|backend| self.enabled.contains(backend)).collect();
        neutral.into_iter().chain(self.served(&usable)).map(str::to_owned).collect()
    }

    /// What a job without labels is served with on this backend (NEW-161).
    #[must_use]
    pub fn labels_of(&self, backend: Backend) -> Vec<String> {
        let own = self.labels.iter().find(|(_, of)| *of == backend).map(|(label, _)| label.clone());
        [NEUTRAL.to_owned()].into_iter().chain(own).collect()
    }
}

/// Whether `self-hosted` is among the declared labels (`DECLARE_SELF_HOSTED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelfHosted {
    /// It is.
    Declared,
    /// It is not: jobs that ask for nothing else stay with other runners.
    Left,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use Backend::{Local, Pod, Vm};

    fn map() -> LabelMap {
        let extra = [("gpu", Pod), ("large", Vm), ("self-hosted", Local), ("pod", Vm), ("gpu", Vm)];
        LabelMap::new(&[Pod, Vm], "vm", &extra.map(|(label, backend)| (label.to_owned(), backend)))
    }

    fn texts(labels: &[&str]) -> Vec<String> {
        labels.iter().map(|label| (*label).to_owned()).collect()
    }

    fn backend(labels: &[&str], default: Option<Backend>) -> Result<Backend, Reason> {
        map().backend_for(&texts(labels), default).map_err(|refusal| refusal.reason)
    }

    /// ENV-2, F03: the table of requirements §4.2.
    #[test]
    fn labels_name_a_backend() {
        for default in [None, Some(Pod), Some(Vm)] {
            assert_eq!(backend(&["self-hosted", "pod"], default), Ok(Pod));
            assert_eq!(backend(&["pod"], default), Ok(Pod));
            assert_eq!(backend(&["self-hosted", "vm"], default), Ok(Vm));
            assert_eq!(backend(&["self-hosted", "vm-dev"], default), Ok(Vm));
            assert_eq!(backend(&["gpu", "self-hosted"], default), Ok(Pod));
            assert_eq!(backend(&["vm", "large", "vm"], default), Ok(Vm), "one backend, named three times");
            assert_eq!(backend(&["self-hosted", "pod", "vm"], default), Err(Reason::AmbiguousBackend));
            assert_eq!(backend(&["gpu", "large"], default), Err(Reason::AmbiguousBackend));
            assert_eq!(backend(&["local"], default), Err(Reason::BackendDisabled));
            let unnamed = default.ok_or(Reason::UnsupportedLabels);
            assert_eq!(backend(&["self-hosted"], default), unnamed);
            assert_eq!(backend(&[], default), unnamed);
            assert_eq!(backend(&["Pod"], default), unnamed, "Gitea compares case-sensitively");
        }
        assert_eq!(backend(&[], Some(Local)), Err(Reason::BackendDisabled));
    }

    /// NEW-14: the refusal says which labels would do.
    #[test]
    fn a_refusal_names_the_remedy() {
        let refusal = map().backend_for(&texts(&["self-hosted"]), None).unwrap_err();
        assert_eq!(refusal.remedy, "Write one of `pod`, `vm`, `gpu`, `large` into `runs-on`.");
        assert!(refusal.cause.contains("[self-hosted]"));
    }

    /// SCH-2, NEW-8: the order of requirements §1.1, only what has room, `self-hosted` as set.
    #[test]
    fn declared_labels_are_in_order() {
        let declared = |room: &[Backend], self_hosted| map().declared(room, self_hosted).join(" ");
        assert_eq!(declared(&[Vm, Pod], SelfHosted::Declared), "self-hosted pod vm gpu large");
        assert_eq!(declared(&[Vm], SelfHosted::Declared), "self-hosted vm large");
        assert_eq!(declared(&[Pod], SelfHosted::Left), "pod gpu");
        assert_eq!(declared(&[Local], SelfHosted::Left), "", "not enabled");
        let dev = LabelMap::new(&[Vm, Local], "vm-dev", &[]);
        assert_eq!(dev.declared(&[Vm, Local], SelfHosted::Left), ["vm-dev", "local"]);
    }

    /// NEW-161, BST-3: what an unlabelled job is served with names its backend.
    #[test]
    fn labels_of_a_backend_name_it() {
        assert_eq!(map().labels_of(Pod), ["self-hosted", "pod"]);
        assert_eq!(LabelMap::new(&[Vm], "vm-dev", &[]).labels_of(Vm), ["self-hosted", "vm-dev"]);
        for of in [Pod, Vm] {
            assert_eq!(map().backend_for(&map().labels_of(of), None).unwrap(), of);
        }
    }
}
