//! What an executor says about itself, and what a list of executors shows.

use super::*;

const EPOCH: Epoch = Epoch::FIRST;

fn goodbye(parting: Parting) -> Event {
    Event::Goodbye { epoch: EPOCH, how: "exit 0".to_owned(), parting }
}

/// NEW-22, NEW-107: an executor whose task is over is told to stop; a runner that has it may go on for the grace of its post
/// steps, and no longer.
#[test]
fn who_is_over_is_told_to_stop() {
    let cancelled = || Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    let hello = cancelled().on(Event::Hello { epoch: EPOCH });
    assert_eq!(hello.last, [Action::Stop]);
    let alive = Event::KeepAlive { epoch: EPOCH };
    let walk = cancelled().on(alive.clone());
    assert_eq!(walk.last, [Action::GoOn], "its end is not marked yet");
    let walk = walk.on(Event::Marked).later(59).on(alive.clone());
    assert_eq!(walk.last, [Action::GoOn], "post steps");
    assert_eq!(walk.later(1).on(alive.clone()).last, [Action::Stop]);
    let died = Event::ExecutorEnded { epoch: EPOCH, reason: Reason::ExecutorExited, how: "exit 1".to_owned() };
    assert_eq!(Walk::running().on(died).on(alive).last, [Action::Stop], "we end it");
}

/// NEW-61, NEW-63: a list that was begun before the create proves nothing about what is being made; later it tells that the
/// executor is gone, and who had the task is not replaced.
#[test]
fn absence_proves_nothing_during_a_create() {
    let creating = Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch: EPOCH });
    let creating = creating.on(Event::ExecutorAbsent);
    assert_eq!(*creating.life.phase(), Phase::Creating);
    assert!(creating.life.occupies_slot());
    let gone = creating.on(Event::ExecutorPending { epoch: EPOCH }).on(Event::ExecutorAbsent);
    assert_eq!(*gone.life.phase(), Phase::Waiting);
    assert!(!gone.life.occupies_slot());
    Walk::claimed().on(Event::ExecutorAbsent).ends_as(Reason::ExecutorDeleted);
}

/// NEW-107, NEW-112, NEW-158: what a goodbye leaves of the job is the reason of its end; a signal that was announced comes
/// before all others.
#[test]
fn a_goodbye_tells_what_became_of_the_job() {
    let reasons = [
        (Parting::Clean, Reason::ExecutorExited),
        (Parting::CutOff, Reason::Interrupted),
        (Parting::Undelivered, Reason::ResultLost),
    ];
    for (parting, reason) in reasons {
        Walk::running().on(goodbye(parting)).ends_as(reason);
        Walk::running().on(Event::Interrupted { epoch: EPOCH }).on(goodbye(parting)).ends_as(Reason::Interrupted);
    }
}

/// NEW-158: a new process knows from the object that a signal cut the job off.
#[test]
fn a_found_interruption_forbids_success() {
    let claim = Some(Claim { at: at(0), log_shift: 2 });
    for interrupted_at in [None, Some(at(0))] {
        let record = ExecutorRecord { interrupted_at, ..found_record(claim.clone()) };
        let walk = Walk { life: Life::found_executor(&record, at(0)), now: 0, last: vec![] };
        let walk = walk.state(Outcome::Success, &ALL_GOOD);
        assert_eq!(walk.last[0], Action::AskAgain, "its log first");
        let walk = walk.state(Outcome::Success, &ALL_GOOD);
        match interrupted_at {
            None => assert_eq!(walk.last[0], Action::ForwardState { close: Some(vec![]) }),
            Some(_) => walk.ends_as(Reason::Interrupted),
        }
    }
}
