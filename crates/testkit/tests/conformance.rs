//! The real Gitea, its double and the recorded traces say the same, and every rule of the double is held by evidence: a
//! trace or a question. Needs `cargo xtask provision gitea`.

#![expect(clippy::unwrap_used, reason = "tests")]

use testkit::conformance::{Outcome, ask, double_for, judge, questions};
use testkit::gitea::Rules;
use testkit::gitea::replay::{Compare, replay};
use testkit::traces;

/// Contract §2–§12: the double answers the recorded requests as the real Gitea did.
#[tokio::test]
async fn the_double_answers_as_recorded() {
    for trace in traces::all().unwrap() {
        replay(&trace, Rules::default(), Compare::AnswersAndSteps).await.unwrap();
    }
}

/// The real Gitea 1.26.0 and the double answer every question alike, as the contract says. What is newer than that
/// server is answered by the double alone; nothing else may go unasked.
#[tokio::test]
async fn the_real_gitea_and_the_double_answer_every_question_alike() {
    let verdicts = judge("").await.unwrap();
    let wrong: Vec<_> = verdicts.iter().filter(|verdict| !verdict.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let unasked = verdicts.iter().filter(|verdict| matches!(verdict.real, Outcome::Absent { .. })).count();
    assert_eq!((verdicts.len(), unasked), (questions().count(), NEWER), "questions, and those of newer servers");
}

/// The questions about newer servers than can be installed.
const NEWER: usize = 13;

/// Rules that a recorded answer shows too, and where it
/// contradicts the double that breaks them.
const SHOWN_BY_A_TRACE: &[(&str, &str)] = &[
    ("version_in_reply", "errors: unknown JSON field"),
    ("declare_replaces_labels", "fetch-unauthenticated #0 Declare"),
    ("tokens_in_secrets", "job-cancelled #0 FetchTask"),
    ("needs_release", "job-failure #0 FetchTask"),
    ("outputs_reach_dependents", "job-failure #0 FetchTask"),
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

/// Where a recorded answer contradicts the double that breaks a rule.
async fn contradiction(rule: &str) -> Option<String> {
    for trace in traces::all().unwrap() {
        if let Err(difference) = replay(&trace, Rules::mutant(rule).unwrap(), Compare::Answers).await {
            return Some(difference.to_string());
        }
    }
    None
}

/// The recorded answers contradict the mutants of the table, there and no others.
#[tokio::test]
async fn traces_contradict_the_mutants_of_the_table() {
    let mut seen = Vec::new();
    for name in Rules::NAMES {
        seen.extend(contradiction(name).await.map(|place| (*name, place)));
    }
    let seen: Vec<_> = seen.iter().map(|(name, place)| (*name, place.as_str())).collect();
    assert_eq!(seen, SHOWN_BY_A_TRACE);
}

/// Every mutant gives another answer to every question that names its rule; and no mutant goes unseen.
#[tokio::test]
async fn every_mutant_is_caught() {
    let (mut uncaught, mut blind) = (Vec::new(), Vec::new());
    for rule in Rules::NAMES {
        let mut seen = SHOWN_BY_A_TRACE.iter().any(|(shown, _)| shown == rule);
        for question in questions().filter(|question| question.rules.contains(rule)) {
            let mutant = double_for(question, Rules::mutant(rule).unwrap()).await;
            match ask(question, &mutant).await {
                Ok(()) => blind.push((*rule, question.name)),
                Err(_) => seen = true,
            }
        }
        uncaught.extend((!seen).then_some(*rule));
    }
    assert!(uncaught.is_empty() && blind.is_empty(), "nobody catches {uncaught:?}; not seen by {blind:?}");
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
