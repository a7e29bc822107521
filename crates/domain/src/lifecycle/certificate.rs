//! The failure certificate: what Gitea is told when we end a task ourselves, so that the job page alone says why
//! (NEW-26, NEW-162; Gitea contract §10.3).

use jiff::Timestamp;

use super::{Ending, Life, Outcome, Row, StepRecord, StepRecords};

/// Rows, steps and result that end a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Our rows, which close the log.
    pub rows: Vec<Row>,
    /// Every step of the job, closed.
    pub steps: StepRecords,
    /// FAILURE or CANCELLED.
    pub outcome: Outcome,
}

/// Writes the certificate of `ending` for a task whose log ends where its [`LogBook`](super::LogBook) says.
#[must_use]
pub fn certificate(life: &Life, ending: &Ending, now: Timestamp) -> Certificate {
    let row = |content: String| Row { time: now, content };
    let rows = vec![row(format!("##[error]{}: {}", ending.reason, ending.cause)), row(ending.remedy.clone())];
    let steps = closed(life, ending.outcome, life.log.place_at_the_end(&rows, now), now);
    Certificate { rows, steps, outcome: ending.outcome }
}

fn closed(life: &Life, outcome: Outcome, ours: std::ops::Range<u64>, now: Timestamp) -> StepRecords {
    let mut steps = life.steps.as_slice().to_vec();
    steps.resize(steps.len().max(life.definitions.len()), StepRecord::default());
    let running = steps.iter().position(StepRecord::is_running);
    let started = steps.iter().any(|step| step.started.is_some());
    let unstarted = steps.iter().position(|step| step.started.is_none() && step.outcome.is_none());
    if let Some(step) = running.map(|at| &mut steps[at]) {
        // The step that was cut off shows our rows at its end.
        step.outcome = Some(outcome);
        step.stopped = Some(now);
        step.log_length = ours.end.saturating_sub(step.log_index);
    } else if let (true, Some(at)) = (started, unstarted) {
        // Between two steps: without a step that carries them the page would show our rows nowhere.
        steps[at] = StepRecord {
            outcome: Some(Outcome::Failure),
            started: Some(now),
            stopped: Some(now),
            log_index: ours.start,
            log_length: ours.end - ours.start,
        };
    }
    let rest = if outcome == Outcome::Cancelled { Outcome::Cancelled } else { Outcome::Skipped };
    for step in &mut steps {
        match (step.outcome, step.started) {
            (Some(_), _) => {}
            (None, Some(_)) => (step.outcome, step.stopped) = (Some(outcome), Some(now)),
            (None, None) => step.outcome = Some(rest),
        }
    }
    StepRecords::new(steps)
}
