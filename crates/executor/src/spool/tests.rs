//! What is sent when, and what is left when nothing can be sent.

use super::*;
use Item::{Interruption, Log, State};
use Outcome::{Accepted, Away, Refused, Unauthenticated, Unavailable};

fn spool() -> Spool {
    Spool::new(Patience::default())
}

fn body(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// Delivers with the given outcomes and returns what was sent, in order.
#[track_caller]
fn deliver(spool: &mut Spool, now: Instant, outcomes: &[Outcome]) -> Vec<Item> {
    outcomes
        .iter()
        .map_while(|outcome| {
            let item = spool.due()?;
            spool.settle(item, *outcome, now);
            Some(item)
        })
        .collect()
}

/// NEW-112: with everything well, nothing is kept back and nothing is owed.
#[test]
fn all_well() {
    let (mut spool, now) = (spool(), Instant::now());
    assert_eq!(spool.offer(Log, body("l")), Handling::Forward);
    assert_eq!(spool.forwarded(Log, Accepted, now), Reply::Theirs);
    assert_eq!(spool.offer(State, body("s")), Handling::Forward);
    assert_eq!(spool.forwarded(State, Accepted, now), Reply::Theirs);
    assert!(!spool.owes() && !spool.lost());
}

/// NEW-112, F110: a failed log is kept, the state after it too, and both go out in order.
#[test]
fn log_then_state() {
    for failure in [Away, Unavailable, Unauthenticated] {
        let (mut spool, now) = (spool(), Instant::now());
        spool.offer(Log, body("l"));
        assert_eq!(spool.forwarded(Log, failure, now), Reply::Ours);
        assert_eq!(spool.offer(State, body("s")), Handling::Keep);
        assert_eq!(deliver(&mut spool, now, &[Away, Unavailable, Accepted, Accepted]), [Log, Log, Log, State]);
        assert!(!spool.owes() && !spool.lost());
    }
}

/// NEW-112: `unavailable` on the state asks for the log again, as a facade that was restarted does.
#[test]
fn state_brings_the_log_back() {
    let (mut spool, now) = (spool(), Instant::now());
    spool.offer(Log, body("l"));
    spool.forwarded(Log, Accepted, now);
    spool.offer(State, body("s"));
    assert_eq!(spool.forwarded(State, Unavailable, now), Reply::Ours);
    assert_eq!(spool.body(Log), Some(body("l")));
    let sent = deliver(&mut spool, now, &[Accepted, Unavailable, Accepted, Accepted, Accepted]);
    assert_eq!(sent, [Log, State, Log, State]);
    assert!(!spool.owes());
}

/// NEW-158, F156: nothing of the end leaves before the announcement was accepted, though the facade is well.
#[test]
fn interruption_first() {
    let (mut spool, now) = (spool(), Instant::now());
    spool.interrupt();
    assert_eq!(spool.offer(Log, body("l")), Handling::Keep);
    assert_eq!(spool.offer(State, body("s")), Handling::Keep);
    let sent = deliver(&mut spool, now, &[Away, Unavailable, Accepted, Accepted, Accepted]);
    assert_eq!(sent, [Interruption, Interruption, Interruption, Log, State]);
    assert!(spool.announced());
    // Once accepted it is never announced again, and later calls pass.
    spool.interrupt();
    assert_eq!(spool.offer(State, body("s")), Handling::Forward);
}

/// NEW-158: an interruption that comes while the end is already owed still goes first.
#[test]
fn interruption_overtakes() {
    let (mut spool, now) = (spool(), Instant::now());
    spool.offer(Log, body("l"));
    spool.forwarded(Log, Away, now);
    spool.interrupt();
    assert_eq!(deliver(&mut spool, now, &[Accepted, Accepted]), [Interruption, Log]);
}

/// NEW-112: 15 min of silence, 2 h of `unavailable`, and any accepted call starts anew.
#[test]
fn patience() {
    const MINUTE: Duration = Duration::from_secs(60);
    let start = Instant::now();
    let cases: &[(&[(u32, Outcome)], u32)] = &[
        (&[(0, Away)], 15),
        (&[(0, Away), (10, Away)], 15),
        (&[(0, Away), (10, Unavailable)], 25),
        (&[(0, Unavailable), (110, Unavailable)], 120),
        (&[(0, Unauthenticated), (5, Unauthenticated)], 15),
    ];
    for (failures, end) in cases {
        let mut spool = spool();
        spool.offer(Log, body("l"));
        for (minute, outcome) in *failures {
            spool.settle(Log, *outcome, start + MINUTE * *minute);
        }
        spool.tick(start + MINUTE * *end - Duration::from_secs(1));
        assert!(!spool.lost(), "{failures:?} too early");
        spool.tick(start + MINUTE * *end);
        assert!(spool.lost(), "{failures:?} too late");
        assert_eq!(spool.due(), None);
    }
    let mut spool = spool();
    spool.offer(Log, body("l"));
    spool.forwarded(Log, Away, start);
    spool.offer(State, body("s"));
    spool.settle(Log, Accepted, start + MINUTE * 14);
    spool.settle(State, Away, start + MINUTE * 14);
    spool.tick(start + MINUTE * 28);
    assert!(!spool.lost());
}

/// A refusal reaches the runner, is not repeated, and counts as undelivered until another call comes.
#[test]
fn refused() {
    let (mut spool, now) = (spool(), Instant::now());
    spool.offer(State, body("foreign"));
    assert_eq!(spool.forwarded(State, Refused, now), Reply::Theirs);
    assert!(spool.lost() && !spool.owes());
    assert_eq!(spool.offer(State, body("s")), Handling::Forward);
    assert_eq!(spool.forwarded(State, Accepted, now), Reply::Theirs);
    assert!(!spool.lost());
}

/// A refused log does not keep the state back, but the end counts as not delivered.
#[test]
fn refused_log() {
    let (mut spool, now) = (spool(), Instant::now());
    spool.offer(Log, body("l"));
    spool.forwarded(Log, Away, now);
    spool.offer(State, body("s"));
    assert_eq!(deliver(&mut spool, now, &[Refused, Accepted, Accepted]), [Log, State]);
    assert!(spool.lost() && !spool.owes());
}

/// A refused announcement is asked again: without it nothing may follow.
#[test]
fn refused_announcement() {
    let (mut spool, now) = (spool(), Instant::now());
    spool.interrupt();
    spool.offer(State, body("s"));
    assert_eq!(deliver(&mut spool, now, &[Refused, Accepted, Accepted]), [Interruption, Interruption, State]);
}
