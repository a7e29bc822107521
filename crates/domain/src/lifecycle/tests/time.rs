//! What passes with time alone.

use super::*;

/// NEW-62: in the first 2 min of a process nobody is judged by its silence, however short the limits are.
#[test]
fn nobody_is_judged_right_after_a_start() {
    let limits = Limits {
        identity: SignedDuration::from_secs(5),
        first_update: SignedDuration::from_secs(5),
        silence: SignedDuration::from_secs(5),
        ..Limits::default()
    };
    for claim in [None, Some(Claim { at: at(0), log_shift: 2 })] {
        let found = Life::found_executor(&found_record(claim), at(0));
        let phase = found.phase().clone();
        let (life, _) = found.step(Event::Tick, at(119), &limits);
        assert_eq!(*life.phase(), phase);
        let (life, _) = life.step(Event::Tick, at(120), &limits);
        assert_ne!(*life.phase(), phase);
    }
}

/// T35, NEW-30, §7.1: no state waits for ever. Each row: the state, how long it may last, what it ends with.
#[test]
fn every_state_has_a_deadline() {
    let epoch = Epoch::FIRST;
    Walk::fetched().later(3600).ends_as(Reason::QueueUnavailable);
    Walk::fetched().on(Event::Persisted).later(3600).ends_as(Reason::QueueTimeout);
    let mut short = Walk::fetched().on(Event::Persisted);
    short.life.deadline = at(60);
    let short = short.later(59);
    assert_eq!(*short.life.phase(), Phase::Waiting, "a short run limit is no limit of the wait");
    short.later(1).ends_as(Reason::QueueTimeout);
    Walk::claimed().later(120).ends_as(Reason::ExecutorLost);
    Walk::running().later(300).ends_as(Reason::ExecutorLost);
    let busy = (0..400).fold(Walk::running(), |walk, _| walk.later(29).on(Event::KeepAlive { epoch }));
    busy.ends_as(Reason::Deadline);
    let interrupted = Walk::running().on(Event::Interrupted { epoch });
    let interrupted = (0..13).fold(interrupted, |walk, _| walk.later(29).on(Event::KeepAlive { epoch }));
    interrupted.ends_as(Reason::Interrupted);
    let silent_before_the_claim = Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch });
    assert!(silent_before_the_claim.later(900).wants().removal);
    assert!(Walk::offered().later(120).wants().removal, "claim deadline");
    let ready =
        Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch }).on(Event::ExecutorReady { epoch });
    let greeted = ready.later(100).on(Event::Hello { epoch }).later(119);
    assert_eq!(*greeted.life.phase(), Phase::Offered, "the claim's clock starts with the identity");
    let no_identity =
        Walk::fetched().on(Event::Persisted).on(Event::LaunchBegun { epoch }).on(Event::ExecutorReady { epoch });
    assert!(no_identity.later(300).wants().removal, "identity deadline");
    let ended = Walk::running().on(Event::Answered { outcome: Some(Outcome::Success) }).on(Event::Marked);
    assert!(ended.later(60).wants().removal, "terminal grace");
    let ending = Walk::running().on(Event::ExecutorEnded { epoch, reason: Reason::ExecutorLost, how: String::new() });
    let waiting = ending.later(3 * 3600 - 1);
    assert!(waiting.wants().certificate.is_some(), "repeated for as long as Gitea may let it run");
    let left = waiting.later(1).on(Event::Marked).settled(Settlement::Removed);
    let wants = left.wants();
    assert!(wants.certificate.is_none() && !wants.closing_row && wants.removal, "then it is left to Gitea: {wants:?}");
    let gone = left.on(Event::ExecutorAbsent);
    assert_eq!(*gone.life.phase(), Phase::Gone);
}

/// NEW-29, NEW-30, NEW-159: a runner that hears CANCELLED at its deadline may end before anybody looks at the clock: the
/// reason is the deadline all the same, unless a signal came before.
#[test]
fn who_goes_at_the_deadline_goes_because_of_it() {
    let epoch = Epoch::FIRST;
    let gone = || Event::ExecutorEnded { epoch, reason: Reason::ExecutorExited, how: "exit 0".to_owned() };
    let goodbye = || Event::Goodbye { epoch, how: "exit 0".to_owned(), parting: Parting::Clean };
    let just_before = Walk { now: 9_999, ..Walk::running() };
    let at_once = || Walk { now: 10_000, ..Walk::running() };
    just_before.on(gone()).ends_as(Reason::ExecutorExited);
    at_once().on(gone()).ends_as(Reason::Deadline);
    at_once().on(goodbye()).ends_as(Reason::Deadline);
    Walk { now: 10_000, ..Walk::running().on(Event::Interrupted { epoch }) }.on(gone()).ends_as(Reason::Interrupted);
}

/// T35, NEW-31, NEW-30: Gitea's endless limit, not the run limit, decides whether a task that waited may still start.
#[test]
fn a_wait_is_judged_by_the_endless_limit_of_gitea() {
    let limits = Limits { endless: SignedDuration::from_mins(30), ..Limits::default() };
    let waiting = Walk::fetched().on(Event::Persisted).life;
    let (waiting, _) = waiting.step(Event::Tick, at(20 * 60), &limits);
    assert_eq!(*waiting.phase(), Phase::Waiting);
    let (ended, _) = waiting.step(Event::Tick, at(20 * 60 + 1), &limits);
    assert!(matches!(ended.phase(), Phase::Ending(ending) if ending.reason == Reason::QueueTimeout));
}

/// NEW-21, NEW-33, F05: every 5 s until the runner reports, then only into a silence of 30 s.
#[test]
fn the_pulse() {
    let walk = Walk::fetched().on(Event::Persisted).later(4);
    assert_eq!(walk.last, []);
    assert!(walk.later(1).last.contains(&Action::Heartbeat));
    let walk = Walk::running().on(Event::Answered { outcome: None }).later(29);
    assert_eq!(walk.last, []);
    assert_eq!(walk.later(1).last, [Action::Heartbeat]);
}

/// The limits of §1.4 as defaults.
#[test]
fn the_defaults_are_those_of_the_specification() {
    let limits = Limits::default();
    assert_eq!(limits.queue_wait, SignedDuration::from_mins(60));
    assert_eq!(limits.claim, SignedDuration::from_mins(2));
    assert_eq!(limits.silence, SignedDuration::from_mins(5));
    assert_eq!(limits.start_grace, SignedDuration::from_mins(2));
    assert_eq!((limits.launches, limits.relaunches), (30, 3));
    assert_eq!(Limits::relaunch_pause(3), SignedDuration::from_secs(20));
}

/// NEW-47, NEW-59, T43: while another process may lead no deadline is reached and nothing is told, however long; a sign of life
/// goes out every 30 s, and none of what has ended.
#[test]
fn a_rest_judges_nobody() {
    let waiting = Walk::fetched().on(Event::Persisted);
    for mut walk in [Walk::fetched(), waiting, Walk::offered(), Walk::claimed(), Walk::running()] {
        let phase = walk.life.phase().clone();
        for (seconds, expect) in [(100_000, vec![Action::Heartbeat]), (29, vec![]), (1, vec![Action::Heartbeat])] {
            walk.now += seconds;
            walk = walk.on(Event::Rest);
            assert_eq!((walk.life.phase(), &walk.last), (&phase, &expect));
        }
    }
    let mut over = Walk::running().on(Event::Answered { outcome: Some(Outcome::Cancelled) });
    over.now += 100_000;
    assert_eq!(over.on(Event::Rest).last, []);
}
