//! What the waiting room has to say at the head of a job's log (NEW-28). The number of these rows is frozen at the claim.

use domain::lifecycle::Row;
use jiff::Timestamp;

use crate::board::View;

/// The rows before the runner's first.
pub(super) fn rows(view: &View, now: Timestamp) -> Vec<Row> {
    let Some(card) = &view.card else { return vec![] };
    let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64().max(0.0);
    let text = format!(
        "Executor {} of {} ({}) took the task {:.1} s after its fetch; its identity is {}",
        view.life.epoch(),
        card.id,
        card.backend,
        seconds(card.fetched_at, now),
        card.spiffe_id,
    );
    vec![Row { time: now, content: text }]
}
