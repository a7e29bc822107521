//! What a standby does about what it sees, and a holder about what it hears, at given times.

use super::*;

const TIMES: Times =
    Times { lease: Duration::from_secs(15), renew_deadline: Duration::from_secs(10), retry: Duration::from_secs(2) };

fn at(seconds: f64) -> BootTime {
    BootTime::at(Duration::from_secs_f64(1000.0 + seconds))
}

fn theirs(revision: u64) -> Seen {
    Seen::Theirs { revision, holder: "b".to_owned(), place: Some("elsewhere".to_owned()) }
}

fn wait(seconds: f64) -> Move {
    Move::Wait(Duration::from_secs_f64(seconds))
}

/// What a standby does at these times about what it sees.
#[track_caller]
fn check(looks: &[(f64, Seen, Move)]) {
    let mut standby = Standby::default();
    for (time, seen, expect) in looks {
        assert_eq!(standby.see(seen.clone(), Some("here"), at(*time), &TIMES), *expect, "at {time} s: {seen:?}");
    }
}

const fn take(expected: u64) -> Move {
    Move::Take { expected }
}

/// SCH-10, NEW-59: nobody waits for what nobody holds.
#[test]
fn what_is_free_is_taken_at_once() {
    check(&[(0.0, Seen::Nothing, take(0))]);
    check(&[(0.0, Seen::Free { revision: 7 }, take(7))]);
    check(&[(0.0, theirs(7), wait(2.0)), (2.0, Seen::Free { revision: 8 }, take(8))]);
    // Written by this session, and the answer was lost.
    check(&[(0.0, Seen::Nothing, take(0)), (2.0, Seen::Ours { revision: 1 }, take(1))]);
}

/// NEW-59, SCH-10: what a process left whose place is ours now is nobody's; one without a place is waited for.
#[test]
fn what_was_left_at_our_place_is_taken_at_once() {
    let left = Seen::Theirs { revision: 7, holder: "a".to_owned(), place: Some("here".to_owned()) };
    check(&[(0.0, left.clone(), take(7))]);
    let nowhere = Seen::Theirs { revision: 7, holder: "a".to_owned(), place: None };
    check(&[(0.0, nowhere.clone(), wait(2.0)), (2.0, left.clone(), take(7))]);
    let mut placeless = Standby::default();
    for seen in [nowhere, left] {
        assert_eq!(placeless.see(seen, None, at(0.0), &TIMES), wait(2.0));
    }
}

/// SCH-10, NEW-59, F48: a holder is taken for dead when its revision stayed the same for the length of a lease, as
/// long as we looked on, and every renewal begins the wait anew.
#[test]
fn a_silent_holder_is_replaced_after_the_lease() {
    let looks = [(0.0, theirs(7), wait(2.0)), (2.0, theirs(7), wait(2.0)), (14.5, theirs(7), wait(0.5))];
    check(&[&looks[..], &[(15.0, theirs(7), take(7))]].concat());
    let renewed = [(14.9, theirs(8), wait(2.0)), (15.0, theirs(8), wait(2.0)), (29.9, theirs(8), take(8))];
    check(&[&looks[..], &renewed[..]].concat());
    // A look that failed for a long time changes nothing: no revision comes twice.
    check(&[(0.0, theirs(7), wait(2.0)), (100.0, theirs(7), take(7))]);
    // Two who take turns do not add up.
    let another = Seen::Theirs { revision: 7, holder: "c".to_owned(), place: None };
    check(&[(0.0, theirs(7), wait(2.0)), (14.0, another, wait(2.0)), (16.0, theirs(7), wait(2.0))]);
}

/// NEW-59: what was removed by hand may still be led by its holder, which learns of it with its next renewal.
#[test]
fn what_was_removed_is_waited_for() {
    let removed = Seen::Removed { revision: 8 };
    check(&[(0.0, removed.clone(), wait(2.0)), (15.0, removed.clone(), take(8))]);
    check(&[(0.0, theirs(7), wait(2.0)), (14.0, removed.clone(), wait(2.0)), (29.0, removed, take(8))]);
    check(&[(0.0, theirs(7), wait(2.0)), (14.0, Seen::Nothing, wait(2.0)), (29.0, Seen::Nothing, take(0))]);
}

const WRITE_5: Next = Next::Do(Call::Write { expected: 5 });

fn expired() -> Next {
    Next::End(Lost::Expired)
}

fn sleep(seconds: f64) -> Next {
    Next::Sleep(Duration::from_secs_f64(seconds))
}

/// A term that began at 0 s with revision 5.
fn term() -> Term {
    Term::new(TIMES, 5, at(0.0))
}

/// SCH-10: renewed every 2 s; each confirmed write counts from its sending.
#[test]
fn a_holder_renews() {
    let mut term = term();
    assert_eq!(term.next(at(0.1)), sleep(1.9));
    assert_eq!(term.next(at(2.0)), WRITE_5);
    term.hear(Heard::Stored { revision: 6 }, at(2.0), at(3.0));
    assert_eq!((term.revision(), term.end()), (6, at(12.0)));
    assert_eq!(term.next(at(3.0)), sleep(1.0));
    assert_eq!(term.next(at(4.0)), Next::Do(Call::Write { expected: 6 }));
}

/// SCH-11, F49, T16: without a confirmed write it is over at the deadline, and nothing brings it back: neither an answer
/// that was on its way, nor one that a frozen process finds when it thaws.
#[test]
fn an_end_is_final() {
    let mut silent = term();
    silent.hear(Heard::Nothing, at(2.0), at(5.3));
    assert_eq!(silent.next(at(5.3)), Next::Do(Call::Look));
    assert_eq!(silent.next(at(10.0)), expired());
    silent.hear(Heard::Stored { revision: 6 }, at(9.9), at(10.1));
    assert_eq!((silent.next(at(10.1)), silent.end()), (expired(), at(10.0)));

    let mut frozen = term();
    assert_eq!(frozen.next(at(2.0)), WRITE_5);
    frozen.hear(Heard::Stored { revision: 6 }, at(2.0), at(62.0));
    assert_eq!(frozen.next(at(62.0)), expired());
    assert_eq!(term().next(at(60.0)), expired());
}

/// NEW-60: what fails at once is not tried in a hurry, and nothing sleeps past the deadline.
#[test]
fn a_failure_is_followed_by_a_pause() {
    let mut term = term();
    term.hear(Heard::Nothing, at(2.0), at(2.0));
    assert_eq!((term.next(at(2.0)), term.next(at(2.5))), (sleep(0.5), Next::Do(Call::Look)));
    // Not stored: written again.
    term.hear(Heard::Found(Seen::Ours { revision: 5 }), at(2.5), at(2.6));
    assert_eq!((term.next(at(2.6)), term.next(at(3.0))), (sleep(0.4), WRITE_5));
    term.hear(Heard::Nothing, at(9.8), at(9.8));
    assert_eq!(term.next(at(9.8)), Next::Sleep(term.end().after(at(9.8))));
}

/// NEW-59, F49: a write that was stored without an answer is found by its session, and prolongs nothing by itself.
#[test]
fn a_lost_answer_is_found_again() {
    let mut term = term();
    term.hear(Heard::Nothing, at(2.0), at(5.3));
    assert_eq!(term.next(at(5.3)), Next::Do(Call::Look));
    // Stored after that look, and found with the next try.
    term.hear(Heard::Found(Seen::Ours { revision: 5 }), at(5.3), at(5.3));
    term.hear(Heard::Refused, at(5.3), at(5.4));
    assert_eq!(term.next(at(5.4)), Next::Do(Call::Look));
    // The question was lost as well.
    term.hear(Heard::Nothing, at(5.4), at(6.0));
    assert_eq!(term.next(at(6.0)), Next::Do(Call::Look));
    term.hear(Heard::Found(Seen::Ours { revision: 6 }), at(6.0), at(6.1));
    assert_eq!((term.next(at(6.1)), term.end()), (Next::Do(Call::Write { expected: 6 }), at(10.0)));
    term.hear(Heard::Stored { revision: 7 }, at(6.1), at(6.2));
    assert_eq!((term.revision(), term.end()), (7, at(16.1)));
}

/// SCH-11, F49, T16: what is not ours any more is lost at once.
#[test]
fn what_another_wrote_ends_it() {
    let taken = Next::End(Lost::Taken { by: "b".to_owned() });
    let removed = Next::End(Lost::Removed);
    for (seen, expect) in [
        (theirs(6), &taken),
        (Seen::Removed { revision: 6 }, &removed),
        (Seen::Free { revision: 6 }, &removed),
        (Seen::Nothing, &removed),
    ] {
        let mut term = term();
        term.hear(Heard::Refused, at(2.0), at(2.1));
        term.hear(Heard::Found(seen.clone()), at(2.1), at(2.2));
        assert_eq!(term.next(at(2.2)), *expect, "{seen:?}");
        term.hear(Heard::Stored { revision: 9 }, at(2.2), at(2.3));
        assert_eq!(term.next(at(2.3)), *expect, "{seen:?}");
    }
}

/// A replica that has missed the latest writes is not believed, and not asked in a hurry.
#[test]
fn what_is_older_than_confirmed_is_no_news() {
    let mut term = term();
    for seen in [theirs(4), Seen::Free { revision: 3 }, Seen::Ours { revision: 4 }] {
        term.hear(Heard::Refused, at(2.0), at(2.0));
        term.hear(Heard::Found(seen), at(2.0), at(2.0));
        assert_eq!((term.next(at(2.0)), term.next(at(2.5))), (sleep(0.5), Next::Do(Call::Look)));
    }
    term.hear(Heard::Found(Seen::Ours { revision: 5 }), at(3.0), at(3.0));
    assert_eq!((term.next(at(3.0)), term.next(at(3.5))), (sleep(0.5), WRITE_5));
}

/// NEW-47, T43, F34: who has another proof of being the only one leads on while nobody confirms anything, however long; he
/// renews when he is heard again, and ends like everybody else when another one is seen.
#[test]
fn who_is_alone_anyway_outlasts_an_outage() {
    let mut term = Term::new(TIMES, 5, at(0.0)).when(Unconfirmed::GoesOn);
    for second in [2.0, 20.0, 7200.0] {
        assert!(matches!(term.next(at(second)), Next::Do(_)), "at {second} s");
        term.hear(Heard::Nothing, at(second), at(second + 3.0));
    }
    assert_eq!(term.next(at(7210.0)), Next::Do(Call::Look));
    term.hear(Heard::Found(Seen::Ours { revision: 6 }), at(7210.0), at(7210.1));
    assert_eq!(term.next(at(7210.1)), Next::Do(Call::Write { expected: 6 }));
    term.hear(Heard::Refused, at(7210.1), at(7210.2));
    term.hear(Heard::Found(theirs(7)), at(7210.2), at(7210.3));
    assert_eq!(term.next(at(7210.3)), Next::End(Lost::Taken { by: "b".to_owned() }));
}
