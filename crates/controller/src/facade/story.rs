//! What the waiting room has to say at the head of a job's log (NEW-28). The number of these rows is frozen at the claim.

use domain::lifecycle::{Milestones, Row};
use jiff::Timestamp;

use crate::board::View;

/// The rows before the runner's first: what the start took, step by step, as far as this process saw it.
pub(super) fn rows(view: &View, now: Timestamp) -> Vec<Row> {
    let Some(card) = &view.card else { return vec![] };
    let text = format!(
        "Executor {} of {} ({}) took the task {:.1} s after its fetch{}; its identity is {}",
        view.life.epoch(),
        card.id,
        card.backend,
        seconds(card.fetched_at, now),
        steps(card.fetched_at, view.life.milestones(), now),
        card.spiffe_id,
    );
    vec![Row { time: now, content: text }]
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// Each step from the last one that is known; nothing when none is.
fn steps(fetched: Timestamp, reached: Milestones, now: Timestamp) -> String {
    let known = [
        (reached.slot, "until there was a slot"),
        (reached.runs, "until its executor ran"),
        (reached.identity, "until that had its identity"),
    ];
    let known = known.into_iter().filter_map(|(at, what)| at.map(|at| (at, what)));
    let (mut from, mut told) = (fetched, Vec::new());
    for (at, what) in known.chain([(now, "until it asked")]) {
        told.push(format!("{:.1} s {what}", seconds(from, at)));
        from = at;
    }
    if told.len() == 1 { String::new() } else { format!(" ({})", told.join(", ")) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// NEW-28: slot, executor, identity and claim, each with its seconds; what a former process saw is left out.
    #[test]
    fn the_steps_of_a_start() {
        let at = |tenths: i64| Timestamp::from_millisecond(tenths * 100).unwrap();
        let all = Milestones { slot: Some(at(30)), runs: Some(at(32)), identity: Some(at(33)) };
        let expected = " (3.0 s until there was a slot, 0.2 s until its executor ran, 0.1 s until that had its identity, \
                        0.3 s until it asked)";
        assert_eq!(steps(at(0), all, at(36)), expected);
        let adopted = Milestones { identity: Some(at(33)), ..Milestones::default() };
        assert_eq!(steps(at(0), adopted, at(36)), " (3.3 s until that had its identity, 0.3 s until it asked)");
        assert_eq!(steps(at(0), Milestones::default(), at(36)), "");
    }
}
