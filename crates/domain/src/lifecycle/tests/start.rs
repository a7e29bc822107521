//! From the fetch to the claim: launches, executors that die, and what the waiting room says.

use super::*;

/// NEW-61, PRC-8, F53: an executor that ends before the claim is replaced three times, with pauses of 0, 5 and 20 s.
#[test]
fn executors_that_die_before_the_claim_are_replaced() {
    let mut walk = Walk::fetched().on(Event::Persisted);
    let mut epoch = Epoch::FIRST;
    for pause in [0, 5, 20] {
        walk = walk.on(Event::LaunchBegun { epoch }).on(Event::ExecutorReady { epoch });
        walk = walk.on(Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() });
        assert!(walk.wants().removal && !walk.wants().launch, "the dead one goes first");
        assert_eq!(
            walk.wants().message,
            Some(MessageWant::GiveBack { at: at(walk.now + pause), error: "exit 1".to_owned() })
        );
        walk = walk.settled(Settlement::GivenBack);
        assert!(!walk.wants().launch, "it is still there");
        walk = walk.on(Event::ExecutorAbsent);
        assert_eq!(walk.wants().launch, pause == 0);
        walk = walk.later(pause);
        assert!(walk.wants().launch);
        epoch = epoch.next();
    }
    walk = walk.on(Event::LaunchBegun { epoch }).on(Event::ExecutorReady { epoch });
    walk.on(Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() })
        .ends_as(Reason::ExecutorExited);
}

/// NEW-66, F60, T7: what every further executor would end of as well ends the task at once, and the executor goes.
#[test]
fn a_lasting_reason_is_not_tried_again() {
    let epoch = Epoch::FIRST;
    let lasting =
        [Reason::ImageInvalid, Reason::ImagePull, Reason::ConfigError, Reason::Unschedulable, Reason::IdentityRejected];
    for reason in lasting {
        let walk = Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch });
        let walk = walk.on(Event::ExecutorPending { epoch });
        let ended = walk.on(Event::ExecutorEnded { epoch, reason, how: "no such image".to_owned() });
        ended.ends_as(reason);
        assert!(ended.wants().removal);
    }
}

/// NEW-163, PRC-9: an end that comes while the message is being given back finds it in the queue, and removes it; and the
/// settlement of an older life's message says nothing about the message of the life in its place (NEW-3).
#[test]
fn a_message_that_was_given_back_is_still_there() {
    let epoch = Epoch::FIRST;
    let died = Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() };
    let waiting = Walk::offered().on(died);
    assert!(matches!(waiting.wants().message, Some(MessageWant::GiveBack { .. })));
    let ended = waiting.on(Event::Answered { outcome: Some(Outcome::Cancelled) }).settled(Settlement::GivenBack);
    let ended = ended.on(Event::ExecutorAbsent).on(Event::LogSealed);
    assert_eq!(ended.wants().message, Some(MessageWant::Remove));
    assert_ne!(*ended.life.phase(), Phase::Gone);
    assert_eq!(*ended.settled(Settlement::Removed).life.phase(), Phase::Gone);

    let mut newer = Walk::fetched();
    newer.life = newer.life.in_place_of(&Walk::running().life);
    let newer = newer.on(Event::Settled { epoch, how: Settlement::Removed }).on(Event::Persisted);
    let newer = newer.on(Event::Answered { outcome: Some(Outcome::Cancelled) }).on(Event::LogSealed);
    assert_eq!(newer.wants().message, Some(MessageWant::Remove));
}

/// NEW-46: a backend that refuses for ever: after 30 attempts the job fails with its words, also when a restart lies
/// between; one that waits too long after failures names them as well.
#[test]
fn attempts_are_limited() {
    let mut walk = Walk::fetched().on(Event::Persisted);
    let failed = |epoch, now| Event::LaunchFailed {
        epoch,
        permanent: None,
        cause: "no room on the disk".to_owned(),
        remedy: String::new(),
        retry_at: at(now),
    };
    for attempt in 1..30 {
        let epoch = walk.life.next_epoch();
        walk = walk.on(Event::LaunchBegun { epoch });
        let now = walk.now;
        walk = walk.on(failed(epoch, now)).settled(Settlement::GivenBack).on(Event::ExecutorAbsent);
        assert!(walk.wants().launch, "attempt {attempt}");
        if attempt == 15 {
            let found = Walk::fetched().life.found_waiting(at(0), attempt, Some("no room on the disk".to_owned()));
            walk = Walk { life: found, now: 0, last: vec![] };
        }
    }
    let given_up = Walk { life: walk.life.clone(), now: 0, last: vec![] }.later(3600);
    given_up.ends_as(Reason::QueueTimeout);
    given_up.assert_cause("29 attempts to make an executor failed, the last one with: no room on the disk");
    let epoch = walk.life.next_epoch();
    let walk = walk.on(Event::LaunchBegun { epoch }).on(failed(epoch, 0));
    walk.ends_as(Reason::BackendUnavailable);
    walk.assert_cause("30 attempts to make an executor failed, the last one with: no room on the disk");
}

/// NEW-66, NEW-28, NEW-46: a quota that is used up is waited for and no failed attempt, however often it is asked for; its row
/// stands once for the same numbers. Who waited for it too long ends with its reason, who waited for a slot then does not.
#[test]
fn a_used_up_quota_is_waited_for() {
    const FULL: &str = "exceeded quota: executors, requested: pods=1, used: pods=4, limited: pods=4";
    let used_up = |walk: Walk| {
        let (epoch, retry_at) = (walk.life.next_epoch(), at(walk.now + 60));
        let walk = walk.on(Event::LaunchBegun { epoch });
        let walk = walk.on(Event::QuotaUsedUp { epoch, cause: FULL.to_owned(), retry_at });
        assert!(walk.wants().removal, "a call without an answer may have made one");
        walk.settled(Settlement::GivenBack).on(Event::ExecutorAbsent)
    };
    let mut walk = used_up(Walk::fetched().on(Event::Persisted));
    let mut rows = vec![];
    // The first of them before anything is told of a wait.
    for pause in [2, 58].into_iter().chain([60; 57]) {
        walk = walk.later(pause);
        rows.extend(walk.last.iter().filter(|action| matches!(action, Action::Tell(_))).cloned());
        walk = used_up(walk);
        assert!(!walk.wants().launch, "not before the time that was said");
    }
    let [Action::Tell(row)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row.content, format!("Waiting for room at the backend: {FULL}"));
    let too_long = Walk { life: walk.life.clone(), now: walk.now, last: vec![] }.later(120);
    too_long.ends_as(Reason::BackendQuota);
    too_long.assert_cause(&format!("waited 3600 s for room at the backend: {FULL}; "));
    let in_line = walk.later(60).on(Event::InLine { place: 1, slots: 4 }).later(60);
    in_line.ends_as(Reason::QueueTimeout);

    let walk = used_up(Walk::fetched().on(Event::Persisted));
    let walk = (0..40).fold(walk, |walk, _| used_up(walk.later(60)));
    let (epoch, cause) = (walk.life.next_epoch(), "no answer".to_owned());
    let failed = Event::LaunchFailed { epoch, permanent: None, cause, remedy: String::new(), retry_at: at(0) };
    let walk = walk.on(Event::LaunchBegun { epoch }).on(failed);
    assert_eq!(*walk.life.phase(), Phase::Waiting, "one attempt of 42 failed");
}

/// NEW-28, F33: the wait is told in the job's log: not when it is short, changes only, at most every 30 s.
#[test]
fn the_waiting_room_speaks() {
    let told = |walk: &Walk| walk.last.iter().any(|action| matches!(action, Action::Tell(_)));
    let failed = |epoch, cause: &str| Event::LaunchFailed {
        epoch,
        permanent: None,
        cause: cause.to_owned(),
        remedy: String::new(),
        retry_at: at(0),
    };
    let walk = Walk::fetched().on(Event::Persisted).later(4);
    assert!(!told(&walk), "it may start yet");
    let walk = walk.later(1);
    let Some(Action::Tell(row)) = walk.last.first() else { panic!("{:?}", walk.last) };
    assert_eq!(row.content, "Waiting for a free slot");
    let walk = walk.later(60);
    assert!(!told(&walk), "nothing changed");
    let walk =
        walk.on(Event::LaunchBegun { epoch: Epoch::FIRST }).on(failed(Epoch::FIRST, "the backend is away")).later(1);
    assert!(told(&walk));
    let walk = walk
        .settled(Settlement::GivenBack)
        .on(Event::ExecutorAbsent)
        .on(Event::LaunchBegun { epoch: Epoch::FIRST.next() });
    let walk = walk.on(failed(Epoch::FIRST.next(), "the backend is still away")).later(29);
    assert!(!told(&walk), "not more often than every 30 s");
    assert!(told(&walk.later(1)));
    // NEW-163: a new process hears of the task before it says anything in its log.
    let found = Walk::fetched().life.found_waiting(at(0), 0, None);
    let walk = Walk { life: found, now: 0, last: vec![] }
        .on(Event::WaitsFor { what: "a free slot, at place 2".to_owned() })
        .later(60);
    assert!(!told(&walk), "it may have ended");
    let walk = walk.later(60);
    assert!(!told(&walk) && walk.life.end_may_be_known(), "asked, and not answered");
    assert!(told(&walk.on(Event::Answered { outcome: None }).later(1)));
}

/// NEW-28: a start that takes long is told step by step, with seconds, at most every 30 s, and not any more once its claim
/// is being written: then the number of our rows must stand.
#[test]
fn a_slow_start_speaks() {
    let epoch = Epoch::FIRST;
    let told = |walk: &Walk| match walk.last.first() {
        Some(Action::Tell(row)) => Some(row.content.clone()),
        _ => None,
    };
    let walk = Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch }).later(5);
    assert_eq!(told(&walk).unwrap(), "0 s after the fetch of this task: it has a slot, and its executor is being made");
    let walk = walk.later(7).on(Event::ExecutorPending { epoch }).later(3).on(Event::ExecutorReady { epoch }).later(19);
    assert_eq!(told(&walk), None, "not more often than every 30 s");
    let walk = walk.later(1);
    let latest = "15 s after the fetch of this task: its executor runs and waits for its identity";
    assert_eq!(told(&walk).unwrap(), latest, "the latest only");
    let walk = walk.later(10).on(Event::Hello { epoch });
    assert_eq!(
        walk.life.milestones(),
        Milestones { slot: Some(at(0)), runs: Some(at(15)), identity: Some(at(45)) },
        "what the row at the claim is made of"
    );
    let asked = Walk { life: walk.life.clone(), now: walk.now, last: vec![] }.on(Event::TaskAsked { epoch });
    assert!(told(&walk.later(30)).is_some());
    let asked = asked.later(30);
    assert_eq!(told(&asked), None);
    let again = asked.on(Event::Hello { epoch }).later(30);
    assert_eq!(told(&again), None, "its executor has come once more, and the claim is still not written");
    let died = again.on(Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 1".to_owned() });
    assert_eq!(told(&died.later(1)).unwrap(), "Waiting for a new executor: exit 1", "no claim comes of this one");
}

/// NEW-28: who waits for a slot is told the place in line and how many slots there are, and hears of a change only.
#[test]
fn the_place_in_line() {
    let walk = Walk::fetched().on(Event::Persisted).on(Event::InLine { place: 2, slots: 4 }).later(5);
    let Some(Action::Tell(row)) = walk.last.first() else { panic!("{:?}", walk.last) };
    assert_eq!(row.content, "Waiting for a free slot, at place 2 in line (4 of 4 taken)");
    let walk = walk.on(Event::InLine { place: 2, slots: 4 }).later(60);
    assert!(!matches!(walk.last.first(), Some(Action::Tell(_))), "{:?}", walk.last);
    let walk = walk.on(Event::InLine { place: 1, slots: 4 }).later(1);
    assert!(matches!(walk.last.first(), Some(Action::Tell(_))), "{:?}", walk.last);
}

/// NEW-46, NEW-61: what a failed launch may have left goes before the next one is made; a refusal that will not change ends
/// the task at once, with its own reason and remedy.
#[test]
fn a_failed_launch_leaves_nothing_behind() {
    let epoch = Epoch::FIRST;
    let failed = |permanent| {
        let (cause, remedy) = ("no such program".to_owned(), "install it".to_owned());
        let event = Event::LaunchFailed { epoch, permanent, cause, remedy, retry_at: at(0) };
        Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch }).on(event)
    };
    let walk = failed(None).settled(Settlement::GivenBack);
    assert!(walk.wants().removal && !walk.wants().launch);
    assert!(walk.on(Event::ExecutorAbsent).wants().launch);
    let walk = failed(Some(Reason::ConfigError));
    assert!(walk.wants().removal);
    let ending = walk.wants().certificate.unwrap();
    assert_eq!((ending.reason, ending.remedy.as_str()), (Reason::ConfigError, "install it"));
}

/// NEW-45, F32: what the queue knows to have begun or ended is refused; a message of it that could not be taken out goes at its
/// end, and what waits already is not touched.
#[test]
fn what_came_before_is_refused() {
    let refusal =
        Refusal { reason: Reason::Superseded, cause: "it came before".to_owned(), remedy: "again".to_owned() };
    let refused = Walk::fetched().on(Event::Refused(refusal.clone()));
    refused.ends_as(Reason::Superseded);
    let over = refused.on(Event::LogSealed).on(Event::Answered { outcome: Some(Outcome::Failure) });
    assert_eq!(over.wants().message, Some(MessageWant::Remove));
    let kept = Walk::fetched().on(Event::Persisted).on(Event::Refused(refusal));
    assert_eq!(*kept.life.phase(), Phase::Waiting);
}

/// NEW-16: an orderly stop ends what no queue holds, and leaves everything else to the next process.
#[test]
fn a_stop_ends_what_nobody_keeps() {
    Walk::fetched().on(Event::Stopping).ends_as(Reason::QueueUnavailable);
    let kept = Walk::fetched().on(Event::Persisted).on(Event::Stopping);
    assert_eq!(*kept.life.phase(), Phase::Waiting);
}
