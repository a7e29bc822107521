//! What may still refuse a task that could run: it is too large to wait, or came before (NEW-37, NEW-45). Nothing is asked
//! for it: until the queue has the task, a crash loses it (SCH-15).

use domain::assignment::{Assignment, largest_part};
use domain::envelope::SealError;
use domain::reason::{Reason, Refusal};

use super::Fetch;

impl Fetch {
    /// The sealed envelope of a task that may wait.
    ///
    /// # Errors
    ///
    /// A refusal that Gitea is told.
    pub(super) fn admit(&self, assignment: &Assignment, task: &[u8]) -> Result<Vec<u8>, Refusal> {
        let sealed = self.sealing.seal(assignment, task).map_err(|error| match error {
            SealError::TooLarge => too_large(task, None),
            SealError::NoRandomness => Refusal {
                reason: Reason::Internal,
                cause: format!("the task cannot be stored: {error}"),
                remedy: "Run the job again; the operator finds more in this runner's log.".to_owned(),
            },
        })?;
        let largest = self.queue.largest_message();
        if sealed.len() > largest { Err(too_large(task, Some((sealed.len(), largest)))) } else { Ok(sealed) }
    }
}

/// The queue knows it.
pub(super) fn came_before() -> Refusal {
    Refusal {
        reason: Reason::Superseded,
        cause: "this very task has begun or ended on this runner before; a job is started at most once".to_owned(),
        remedy: "Run the job again: that makes a new task.".to_owned(),
    }
}

/// `sizes`: of the sealed task, and of the largest that the queue takes.
fn too_large(task: &[u8], sizes: Option<(usize, usize)>) -> Refusal {
    let (part, bytes) = largest_part(task);
    let stored = sizes.map_or_else(String::new, |(sealed, largest)| {
        format!(", {sealed} bytes compressed and sealed; the queue takes {largest} bytes")
    });
    Refusal {
        reason: Reason::TooLarge,
        cause: format!("the task has {} bytes{stored}; most of it are its {part} with {bytes} bytes", task.len()),
        remedy: format!("Make its {part} smaller: pass large data as an artifact instead."),
    }
}
