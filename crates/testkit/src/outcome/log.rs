//! The rows of a task's log: ours, then the runner's, then ours again (NEW-28, NEW-26).

use super::ends::reasons;
use super::{Rule, TaskRecord, Violation};
use crate::gitea::Status;

pub(super) fn broken(task: &TaskRecord) -> Vec<Violation> {
    let mut broken = Vec::new();
    if task.status.is_end() && !task.archived {
        broken.push(Violation::of(task, Rule::LogOpen, format!("the last rows: {:?}", last(&task.log))));
    }
    broken.extend(rows(task).err().map(|evidence| Violation::of(task, Rule::Rows, evidence)));
    broken
}

/// The rows that the runner wrote, as far as it told them; each was told before it could be sent.
fn written(task: &TaskRecord) -> Vec<String> {
    task.told("rows").filter_map(|rows| serde_json::from_str::<Vec<String>>(rows).ok()).flatten().collect()
}

fn rows(task: &TaskRecord) -> Result<(), String> {
    if let Some(lost) = task.told("rows-lost").next() {
        return Err(format!("the runner's rows were refused: {lost}"));
    }
    let written = written(task);
    // The first row of a runner names it and the task: it is like no other.
    let Some(first) = written.first() else { return Ok(()) };
    let start = task.log.iter().position(|row| row == first);
    let stored = start.map_or(&[][..], |start| &task.log[start..]);
    let count = stored.iter().zip(&written).take_while(|(stored, written)| stored == written).count();
    let acknowledged = task.told("acked").filter_map(|count| count.parse::<usize>().ok()).max().unwrap_or(0);
    // A runner that is killed after its job ended says so to nobody: then the end is ours, with a reason.
    let ended = task.told("ended").any(|ended| ended == crate::stand_in::name(task.status.result()));
    let its_own = ended && task.status != Status::Cancelled && reasons(&task.log).is_empty();
    let due = if its_own { written.len() } else { acknowledged };
    if count < due {
        let (have, want) = (stored.get(count), written.get(count));
        return Err(format!(
            "row {count} of {due} is {have:?} instead of {want:?}; {} rows are stored",
            task.log.len()
        ));
    }
    let again = stored.iter().skip(count).find(|row| !row.is_empty() && written.contains(row));
    again.map_or(Ok(()), |row| Err(format!("{row:?} stands after the runner's {count} rows: {:?}", last(&task.log))))
}

fn last(log: &[String]) -> &[String] {
    &log[log.len().saturating_sub(5)..]
}
