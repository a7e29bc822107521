//! The double behaves as the recorded Gitea does, and every rule of it is held by evidence: a trace or a question.

#![expect(clippy::unwrap_used, reason = "tests")]

use testkit::gitea::conformance::{ask, questions};
use testkit::gitea::replay::{Compare, replay};
use testkit::gitea::{Gitea, Rules, Settings};
use testkit::traces;

/// Rules that no recorded trace contradicts when they are broken. They are held by conformance questions, which have
/// to be asked of a real Gitea as well.
const NEEDS_THE_REAL_GITEA: &[&str] = &[
    "version_gate",
    "gate_is_inequality",
    "run_bumps_once",
    "disabling_bumps",
    "finish_bumps",
    "cancel_bumps",
    "every_label_needed",
    "unlabelled_goes_anywhere",
    "oldest_first",
    "claim_is_final",
    "disabled_gets_nothing",
    "absent_steps_reset",
    "zeroes_not_written",
    "steps_stored",
    "unknown_steps_ignored",
    "stopped_at_kept",
    "outputs_insert_if_absent",
    "large_outputs_skipped",
    "terminal_leaves_steps_open",
    "ended_sends_webhooks_again",
    "ack_drops_known_rows",
    "known_rows_write_nothing",
    "gap_ignores_no_more",
    "bare_no_more_ignored",
    "archived_accepts_old_rows",
    "newlines_escaped",
    "content_cut",
    "cancelling",
    "cancel_closes_steps",
    "cancelled_freezes_steps",
    "zombie_ends_silent",
    "heartbeat_keeps_alive",
    "rows_keep_alive",
    "bare_log_keeps_nothing_alive",
    "endless_counts_from_fetch",
    "zombie_archives_rows",
    "zombie_leaves_empty_log_open",
    "zombie_closes_steps",
];

/// Contract §2–§12: the double answers the recorded requests as the real Gitea did.
#[tokio::test]
async fn the_double_answers_as_recorded() {
    for trace in traces::all().unwrap() {
        replay(&trace, Rules::default(), Compare::AnswersAndSteps).await.unwrap();
    }
}

/// Every question is answered as the contract says.
#[tokio::test]
async fn the_double_answers_every_question() {
    for question in questions() {
        let gitea = Gitea::start().await;
        ask(question, &gitea).await.unwrap();
    }
}

/// Every other rule, and where a recorded answer of Gitea contradicts the double that breaks it.
const SHOWN_BY_A_TRACE: &[(&str, &str)] = &[
    ("version_in_reply", "errors: unknown JSON field"),
    ("first_terminal_wins", "errors: terminal repeated with another result: first one wins"),
    ("cancel_wins", "job-cancelled #10 UpdateTask"),
    ("cancelled_in_reply", "job-cancelled #8 UpdateTask"),
    ("running_has_no_result", "job-cancelled #2 UpdateTask"),
    ("sent_outputs_lists_all", "job-success #24 UpdateTask"),
    ("foreign_task_refused", "errors: task of another runner"),
    ("unknown_task_refused", "errors: unknown task"),
    ("missing_state_panics", "errors: no state"),
    ("gap_writes_nothing", "errors: index above ack: no error"),
    // How that log came to be archived was not recorded, the replay uses no_more; a question asks for it as well.
    ("no_more_archives", "errors: log is archived"),
    ("archived_refuses", "errors: log is archived"),
    ("cancelled_takes_rows", "job-cancelled #9 UpdateLog"),
    ("errors_are_500", "errors: wrong token"),
    ("panic_is_text", "errors: no state"),
    ("registration_token_checked", "errors: register: unknown registration token"),
    ("name_checked", "errors: register: no name"),
    ("declare_hides_token", "fetch-unauthenticated #0 Declare"),
];

/// A broken rule is contradicted by a recorded answer, or it stands in the table of those that need the real Gitea.
#[tokio::test]
async fn a_trace_contradicts_every_mutant_that_is_not_in_the_table() {
    let traces = traces::all().unwrap();
    let (mut unseen, mut seen) = (Vec::new(), Vec::new());
    for name in Rules::NAMES {
        let mut place = None;
        for trace in &traces {
            let replayed = replay(trace, Rules::mutant(name).unwrap(), Compare::Answers).await;
            place = place.or(replayed.err().map(|difference| difference.to_string()));
        }
        match place {
            Some(place) => seen.push((*name, place)),
            None => unseen.push(*name),
        }
    }
    let seen: Vec<_> = seen.iter().map(|(name, place)| (*name, place.as_str())).collect();
    assert_eq!(unseen, NEEDS_THE_REAL_GITEA);
    assert_eq!(seen, SHOWN_BY_A_TRACE);
}

/// A rule in the table is decided by at least one question, and breaking it changes every answer that names it.
#[tokio::test]
async fn a_question_contradicts_every_mutant_in_the_table() {
    for name in NEEDS_THE_REAL_GITEA {
        let mut asked = 0;
        for question in questions().filter(|question| question.rules.contains(name)) {
            let gitea = Gitea::start_with(Rules::mutant(name).unwrap(), Settings::default()).await;
            assert!(ask(question, &gitea).await.is_err(), "breaking {name} is not seen by: {}", question.name);
            asked += 1;
        }
        assert!(asked > 0, "no question decides {name}");
    }
}

/// A question speaks only of rules that exist.
#[test]
fn questions_name_rules() {
    for question in questions() {
        for rule in question.rules {
            assert!(Rules::NAMES.contains(rule), "{}: there is no rule {rule}", question.name);
        }
    }
}
