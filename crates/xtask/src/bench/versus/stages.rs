//! Where our own time goes, by our own log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::turn::Turn;
use crate::bench::figure::{Figure, millis};
use crate::bench::subject::since_epoch;
use crate::samples::Samples;

/// Events of one task in the order they come, and what lies between each and the one before it.
const STAGES: [(&str, &str); 9] = [
    ("fetched", ""),
    ("dispatched", "fetched → sealed, on the disk"),
    ("capacity_acquired", "on the disk → pulled for a free slot"),
    ("backend_ready", "pulled → its executor is started"),
    ("runner_claimed", "executor started → its runner has asked, the claim is on the disk"),
    ("confirmed", "claim → first report of the runner"),
    ("terminal_accepted", "first report → Gitea has the end"),
    ("executor_finished", "the end → the executor has ended"),
    ("executor_deleted", "the executor has ended → its folder is gone, the slot is free"),
];

/// Medians over all jobs of these turns.
pub(super) fn figures(log: &str, turns: &[Turn]) -> Vec<Figure> {
    let tasks: BTreeSet<i64> = turns.iter().flat_map(|turn| &turn.jobs).map(|job| job.task).collect();
    let times = times(log, &tasks);
    let row = |pair: &[(&str, &str)]| {
        let [(from, _), (to, what)] = pair else { return None };
        let took = |events: &BTreeMap<String, Duration>| Some(events.get(*to)?.saturating_sub(*events.get(*from)?));
        let samples: Samples = times.values().filter_map(took).collect();
        Some(Figure::new(format!("our part, of each of many jobs: {what}"), millis(samples.median()), ""))
    };
    STAGES.windows(2).filter_map(row).collect()
}

/// When each event of each of these tasks was told first.
fn times(log: &str, tasks: &BTreeSet<i64>) -> BTreeMap<i64, BTreeMap<String, Duration>> {
    let mut times: BTreeMap<i64, BTreeMap<String, Duration>> = BTreeMap::new();
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let task = line["task_id"].as_i64().filter(|task| tasks.contains(task));
        let time = line["timestamp"].as_str().and_then(|time| since_epoch(time.parse().ok()?).ok());
        if let (Some(task), Some(event), Some(time)) = (task, line["event"].as_str(), time) {
            times.entry(task).or_default().entry(event.to_owned()).or_insert(time);
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::super::turn::Moments;
    use super::*;

    #[test]
    fn what_lies_between_two_events() {
        let line = |second, event, task| {
            format!(r#"{{"timestamp":"2026-01-01T00:00:0{second}Z","event":"{event}","task_id":{task}}}"#)
        };
        let log = [line(1, "fetched", 4), line(3, "dispatched", 4), line(4, "dispatched", 4), line(1, "fetched", 5)];
        let jobs = vec![Moments { task: 4, ..Moments::default() }];
        let turn = Turn { jobs, cpu: Duration::ZERO, gitea_cpu: Duration::ZERO };
        let figures = figures(&log.join("\nnot JSON\n"), &[turn]);
        assert_eq!((figures.len(), figures[0].value.as_str(), figures[1].value.as_str()), (8, "2000 ms", "0 µs"));
    }
}
