//! What the controller of a run is between.

use crate::backend_kind::BackendKind;
use crate::queue_kind::QueueKind;

/// Where tasks wait and where executors are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sides {
    pub(crate) queue: QueueKind,
    pub(crate) backend: BackendKind,
}

impl Sides {
    /// Its words on the command line.
    pub(crate) fn words(self) -> String {
        format!("--queue {} --backend {}", self.queue.word(), self.backend.word())
    }

    /// The same in the name of a file.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.queue.word(), self.backend.word())
    }
}
