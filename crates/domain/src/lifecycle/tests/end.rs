//! After the end: silence, the end of the log, graces, certificates.

use super::*;

/// NEW-163, NEW-159, NEW-100, F160: after a result nothing passes but a missing end of the log; the runner is answered.
#[test]
fn quiet_after_the_end() {
    let epoch = Epoch::FIRST;
    let walk = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    let walk = walk.on(Event::RunnerState { epoch, outcome: None, steps: steps(&ALL_GOOD) });
    assert_eq!(walk.last, [Action::AnswerResult(Outcome::Cancelled)]);
    let walk = walk.on(Event::RunnerLog { epoch, index: 4, count: 2, end: LogEnd::Last(Some(row("x"))) });
    assert_eq!(walk.last, [Action::ForwardRows { index: 6, tail: Tail::Closing }]);
    let walk =
        walk.on(Event::LogSealed).on(Event::RunnerLog { epoch, index: 6, count: 2, end: LogEnd::Last(Some(row("x"))) });
    assert_eq!(walk.last, [Action::AckRows { ack: 8 }]);
    assert!(walk.later(3600).last.is_empty(), "no heartbeat after the end");

    let walk =
        Walk::running().on(Event::Answered { outcome: Some(Outcome::Success) }).state(Outcome::Success, &ALL_GOOD);
    assert_eq!(walk.last, [Action::AnswerResult(Outcome::Success)], "the accepted end may be repeated");
    let walk = Walk::running().on(Event::Answered { outcome: Some(Outcome::Failure) });
    let walk = walk.state(Outcome::Success, &ALL_GOOD);
    assert_eq!(walk.last, [Action::AnswerResult(Outcome::Cancelled)], "a runner obeys no other word");
}

/// NEW-166: the runner ends its log after a cancel with a row whose first answer was lost. Gitea hears no `no_more` with a
/// row that it has, so the log counts as open, and we close it.
#[test]
fn an_end_with_a_row_that_may_be_there_is_no_end() {
    let epoch = Epoch::FIRST;
    let cancelled =
        Walk::running().on(Event::RowsSent { end: 7 }).on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    let last = |count| Event::RunnerLog { epoch, index: 4, count, end: LogEnd::Last(Some(row("x"))) };
    let again = cancelled.on(last(1));
    assert_eq!(again.last, [Action::ForwardRows { index: 6, tail: Tail::Open }]);
    let more = again.on(last(2));
    assert_eq!(more.last, [Action::ForwardRows { index: 6, tail: Tail::Closing }], "the second row is new");
    assert!(more.on(Event::LogStored { ack: 8 }).later(60).wants().closing_row);
}

/// NEW-166, F163: Gitea cancelled at once and nobody closes the log: we do, at once without a runner, else after the grace.
#[test]
fn a_cancelled_log_is_closed_by_us() {
    let waiting = Walk::fetched().on(Event::Persisted).on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    assert!(waiting.wants().closing_row);
    assert_eq!(waiting.wants().message, None, "a process that starts now knows of the log by the message only");
    assert_eq!(waiting.on(Event::LogSealed).wants().message, Some(MessageWant::Remove));
    let given_up = Walk::fetched().on(Event::Persisted).on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    assert_eq!(given_up.later(3600).wants().message, Some(MessageWant::Remove));
    let running = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    assert!(!running.wants().closing_row);
    assert!(running.later(60).wants().closing_row);
    // The folder of one that was killed is removed when its log is closed.
    let killed = Event::ExecutorEnded { epoch: Epoch::FIRST, reason: Reason::ExecutorExited, how: "gone".to_owned() };
    let ended = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) }).on(Event::Marked).on(killed);
    let ended = ended.settled(Settlement::Removed);
    assert!(ended.wants().closing_row && !ended.wants().removal);
    assert!(ended.on(Event::LogSealed).wants().removal);
}

/// NEW-63, NEW-52, WRK-8: the folder of a task that was claimed outlives its message, whatever else is over: without it
/// the next process would find a message of a task that nobody took.
#[test]
fn the_folder_of_a_claimed_task_outlives_its_message() {
    let killed = Event::ExecutorEnded { epoch: Epoch::FIRST, reason: Reason::ExecutorExited, how: "gone".to_owned() };
    let told = Event::Answered { outcome: Some(Outcome::Failure) };
    let walk = Walk::claimed().on(killed).on(Event::LogSealed).on(told).on(Event::Marked);
    assert_eq!(walk.wants().message, Some(MessageWant::Remove));
    assert!(!walk.wants().removal);
    let walk = walk.settled(Settlement::Removed);
    assert!(walk.wants().removal);
}

/// NEW-101, NEW-26, F25: an executor that fills the disk leaves no room for its own mark. Its work done, it goes without
/// one; until then the mark is tried again.
#[test]
fn what_leaves_no_room_for_its_mark_goes_without() {
    let epoch = Epoch::FIRST;
    let walk = Walk::running().on(Event::LogSealed).on(Event::Answered { outcome: Some(Outcome::Failure) });
    let walk = walk.settled(Settlement::Removed).on(Event::MarkFailed);
    assert!(walk.wants().terminal_mark && !walk.wants().removal, "its runner may still tidy up");
    let killed = Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "gone".to_owned() };
    let marked = Walk { life: walk.life.clone(), now: walk.now, last: vec![] }.on(Event::Marked).wants();
    assert!(!marked.terminal_mark && !marked.removal);
    let ended = walk.on(killed);
    assert!(ended.wants().removal && !ended.wants().terminal_mark);
    assert!(ended.wants().last_mark, "a process that ends now removes nothing more");
    assert_eq!(*ended.on(Event::ExecutorAbsent).life.phase(), Phase::Gone);
}

/// NEW-102, NEW-26, F60: the runner said its end, the answer was lost, and then it dies with all it had: Gitea is asked before
/// it is told another one.
#[test]
fn an_end_that_was_said_may_be_known() {
    let said = Walk::running().state(Outcome::Success, &ALL_GOOD);
    let killed = Event::ExecutorEnded { epoch: Epoch::FIRST, reason: Reason::ExecutorExited, how: "gone".to_owned() };
    let walk = said.on(killed.clone());
    assert!(walk.wants().certificate.is_some() && walk.life.end_may_be_known());
    assert!(!Walk::running().on(killed).life.end_may_be_known());
}

/// NEW-59, NEW-26, F48: an executor that a former leader knew may have told its end to that one, which can be cut off and live:
/// Gitea is asked before it is told another end, however much was heard here.
#[test]
fn a_former_leader_may_have_heard_an_end() {
    let gone = Event::ExecutorEnded { epoch: Epoch::FIRST, reason: Reason::ExecutorExited, how: "gone".to_owned() };
    let claim = Claim { at: at(5), log_shift: 2 };
    let found = Life::found_executor(&found_record(Some(claim)), at(20));
    let heard = Walk { life: found, now: 20, last: vec![] }.on(Event::Answered { outcome: None });
    let walk = heard.on(gone.clone());
    assert!(walk.wants().certificate.is_some() && walk.life.is_asked_before_its_end());
    assert!(!Walk::running().on(gone).life.is_asked_before_its_end());
}

/// NEW-22: the grace is for a runner that has the task. An executor that did not hand it out goes at once.
#[test]
fn an_executor_without_the_task_gets_no_grace() {
    let cancelled = |walk: Walk| walk.on(Event::Answered { outcome: Some(Outcome::Cancelled) }).on(Event::Marked);
    assert!(cancelled(Walk::offered()).wants().removal);
    let claimed = cancelled(Walk::claimed());
    assert!(!claimed.wants().removal, "its runner may still tidy up");
    assert!(claimed.later(60).wants().removal);
}

/// NEW-166, F163: a new process that finds an ended task within the grace neither swallows what its post steps write nor
/// leaves the log open.
#[test]
fn the_log_of_a_found_end_stays_open_for_the_grace() {
    let epoch = Epoch::FIRST;
    let record = ExecutorRecord { terminal: true, ..found_record(Some(Claim { at: at(0), log_shift: 2 })) };
    let walk = Walk { life: Life::found_executor(&record, at(0)), now: 0, last: vec![] };
    assert!(!walk.wants().closing_row, "the runner may still write");
    let walk = walk.on(Event::RunnerLog { epoch, index: 4, count: 1, end: LogEnd::Open });
    assert_eq!(walk.last, [Action::ForwardRows { index: 6, tail: Tail::Open }]);
    let walk = walk.later(59);
    assert!(!walk.wants().closing_row && !walk.wants().removal, "a whole grace from the start of this process");
    let wants = walk.later(1).wants();
    assert!(wants.closing_row && wants.removal, "nobody else closes it, and it goes: {wants:?}");
}

/// NEW-26, NEW-162, Gitea contract §10.3: which step gets which end.
#[test]
fn the_certificate_closes_every_step() {
    use Outcome::{Cancelled, Failure, Skipped, Success};
    let check =
        |seen: &[(Option<Outcome>, u64, u64)], outcome, expect: [Outcome; STEPS], shown: Option<(usize, u64, u64)>| {
            let mut life = Walk::running().life;
            life.steps = steps(seen);
            let ending = Ending { outcome, ..Ending::new(Reason::ExecutorExited, "exit 1".to_owned()) };
            let made = certificate(&life, &ending, at(20));
            assert_eq!(life.log.closing(&made.rows, at(20)).index, 6);
            assert!(made.rows[0].content.starts_with("##[error]executor_exited: "));
            let ends: Vec<_> = made.steps.as_slice().iter().map(|s| s.outcome.unwrap()).collect();
            assert_eq!(ends, expect);
            if let Some((step, index, length)) = shown {
                let step = made.steps.as_slice()[step];
                assert_eq!((step.log_index, step.log_length), (index, length), "the page shows our rows there");
                assert!(step.started.is_some() && step.stopped.is_some());
            }
        };
    let none = (None, 0, 0);
    let done = (Some(Success), 3, 1);
    check(&[done, (None, 4, 1), none], Failure, [Success, Failure, Skipped], Some((1, 4, 4)));
    check(&[done, (None, 4, 1), none], Cancelled, [Success, Cancelled, Cancelled], Some((1, 4, 4)));
    check(&[done, none, none], Failure, [Success, Failure, Skipped], Some((1, 6, 2)));
    check(&[done, done, done], Failure, [Success, Success, Success], None);
    check(&[none, none, none], Failure, [Skipped, Skipped, Skipped], None);
    check(&[], Failure, [Skipped, Skipped, Skipped], None);
    check(&[], Cancelled, [Cancelled, Cancelled, Cancelled], None);
}

/// NEW-26, NEW-162: the answer to the state of a certificate was lost after its rows closed the log: the repetition shows
/// the same rows, and not a place behind them.
#[test]
fn a_certificate_that_is_sent_again_shows_the_same_rows() {
    let done = (Some(Outcome::Success), 3, 1);
    let mut life = Walk::running().life;
    life.steps = steps(&[done, (None, 0, 0), (None, 0, 0)]);
    let ending = Ending::new(Reason::ExecutorExited, "exit 1".to_owned());
    let first = certificate(&life, &ending, at(20));
    life.log.stored(8);
    life.log.close();
    let again = certificate(&life, &ending, at(20));
    assert_eq!(again, first);
    assert_eq!((again.steps.as_slice()[1].log_index, again.steps.as_slice()[1].log_length), (6, 2));
}

/// NEW-163, NEW-166: a life whose log is open is not over although nothing else is left of it, for as long as anybody may
/// close it. A task that Gitea does not know has no log to be closed.
#[test]
fn an_open_log_keeps_a_life() {
    let nothing_left = || {
        let ended = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) }).on(Event::Marked);
        ended.settled(Settlement::Removed).on(Event::ExecutorAbsent)
    };
    let walk = nothing_left();
    assert!(walk.wants().closing_row);
    assert_ne!(*walk.life.phase(), Phase::Gone);
    assert_eq!(*walk.on(Event::LogSealed).life.phase(), Phase::Gone);
    assert_eq!(*nothing_left().later(3600).life.phase(), Phase::Gone);
    let unknown = Walk::running().on(Event::TaskUnknown).later(3600);
    assert_eq!(*unknown.life.phase(), Phase::Final(Outcome::Cancelled));
    assert!(!unknown.wants().closing_row);
}
