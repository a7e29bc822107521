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
    let looks = [(0.0, 2.0), (2.0, 2.0), (9.0, 2.0), (14.5, 0.5)].map(|(time, left)| (time, theirs(7), wait(left)));
    check(&[&looks[..], &[(15.0, theirs(7), take(7))]].concat());
    let renewed = [(14.9, theirs(8), wait(2.0)), (15.0, theirs(8), wait(2.0)), (22.0, theirs(8), wait(2.0))];
    check(&[&looks[..], &renewed[..], &[(29.9, theirs(8), take(8))]].concat());
    // Two who take turns do not add up.
    let another = Seen::Theirs { revision: 7, holder: "c".to_owned(), place: None };
    check(&[(0.0, theirs(7), wait(2.0)), (14.0, another, wait(2.0)), (16.0, theirs(7), wait(2.0))]);
}

/// NEW-47, NEW-59, T43: a standby that heard nothing for a renew deadline begins its wait anew: the holder may have been as
/// deaf, and has the time of a lease to renew it.
#[test]
fn a_standby_that_was_deaf_begins_anew() {
    let before = [(0.0, theirs(7), wait(2.0)), (9.9, theirs(7), wait(2.0))];
    check(&[&before[..], &[(15.0, theirs(7), take(7))]].concat());
    let after = [(19.9, 2.0), (29.8, 2.0), (34.8, 0.1)].map(|(time, left)| (time, theirs(7), wait(left)));
    check(&[&before[..], &after[..], &[(34.9, theirs(7), take(7))]].concat());
    check(&[&before[..], &[(7200.0, theirs(7), wait(2.0))]].concat());
}

/// NEW-59: what was removed by hand may still be led by its holder, which learns of it with its next renewal.
#[test]
fn what_was_removed_is_waited_for() {
    let removed = Seen::Removed { revision: 8 };
    for seen in [removed, Seen::Nothing] {
        let waits = [(14.0, 2.0), (20.0, 2.0), (28.9, 0.1)].map(|(time, left)| (time, seen.clone(), wait(left)));
        let taken = (29.0, seen.clone(), take(seen.revision()));
        check(&[&[(0.0, theirs(7), wait(2.0))][..], &waits[..], &[taken]].concat());
    }
    let removed = Seen::Removed { revision: 8 };
    check(&[0.0, 9.0].map(|time| (time, removed.clone(), wait(2.0))));
}

const WRITE_5: Next = Next::Do(Call::Write { expected: 5 });

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

/// Until when it decides, and until when it may speak, in seconds.
fn until(term: &Term) -> [f64; 2] {
    let Standing::Until { end, speaks } = term.standing() else { panic!("{:?}", term.standing()) };
    [end, speaks].map(|time| time.after(at(0.0)).as_secs_f64())
}

/// Tries in vain from one time on until another.
fn in_vain(term: &mut Term, from: f64, to: f64) {
    let mut time = from;
    while time < to {
        term.hear(Heard::Nothing, at(time), at((time + 3.0).min(to)));
        time += 3.5;
    }
}

/// SCH-11, NEW-47, F49, T16: without a confirmed write it decides nothing from the deadline on, however the answers come; a
/// write of its own on its own revision makes it lead again, from its sending on.
#[test]
fn a_holder_that_nobody_confirms_rests() {
    let mut silent = term();
    silent.hear(Heard::Nothing, at(2.0), at(5.3));
    assert_eq!(silent.next(at(10.0)), Next::Do(Call::Look));
    assert_eq!((silent.rests(at(9.9)), silent.rests(at(10.0))), (false, true));
    silent.hear(Heard::Found(Seen::Ours { revision: 6 }), at(3600.0), at(3600.1));
    assert_eq!((silent.next(at(3600.1)), silent.end()), (Next::Do(Call::Write { expected: 6 }), at(10.0)));
    silent.hear(Heard::Stored { revision: 7 }, at(3600.1), at(3600.2));
    assert_eq!((silent.rests(at(3600.2)), until(&silent)), (false, [3610.1, 3610.1]));

    let mut frozen = term();
    assert_eq!(frozen.next(at(2.0)), WRITE_5);
    frozen.hear(Heard::Stored { revision: 6 }, at(2.0), at(62.0));
    assert_eq!((frozen.rests(at(62.0)), frozen.end()), (true, at(12.0)));
}

/// NEW-47, NEW-59, T43: who rests may speak when he has tried for a renew deadline without a pause, and as long as he goes on.
#[test]
fn who_rests_may_speak_while_he_tries() {
    let mut term = term();
    in_vain(&mut term, 2.0, 11.9);
    assert_eq!(until(&term), [10.0, 10.0]);
    in_vain(&mut term, 11.9, 14.0);
    assert_eq!(until(&term), [10.0, 24.0]);
    in_vain(&mut term, 14.1, 7200.0);
    assert_eq!(until(&term), [10.0, 7210.0]);
    // What is found there is as good as nothing, but for another one.
    term.hear(Heard::Found(Seen::Ours { revision: 5 }), at(7200.0), at(7201.0));
    assert_eq!(until(&term), [10.0, 7211.0]);
    term.hear(Heard::Stored { revision: 6 }, at(7202.0), at(7202.1));
    assert_eq!(until(&term), [7212.0, 7212.0]);
}

/// NEW-59, SCH-11, F49, T16: a process that stood still knows nothing of that time, whether it stood in a try or between two:
/// it may not speak before it has tried for a renew deadline once more.
#[test]
fn who_stood_still_does_not_speak() {
    for (sent, heard) in [(14.5, 74.5), (71.5, 74.5)] {
        let mut term = term();
        in_vain(&mut term, 2.0, 14.0);
        assert_eq!(until(&term), [10.0, 24.0]);
        term.hear(Heard::Nothing, at(sent), at(heard));
        assert_eq!(until(&term), [10.0, 10.0], "{sent}");
        in_vain(&mut term, 75.0, 80.0);
        assert_eq!(until(&term), [10.0, 10.0], "{sent}");
        in_vain(&mut term, 80.5, 85.0);
        assert_eq!(until(&term), [10.0, 95.0], "{sent}");
    }
}

/// NEW-60: what fails at once is not tried in a hurry.
#[test]
fn a_failure_is_followed_by_a_pause() {
    let mut term = term();
    term.hear(Heard::Nothing, at(2.0), at(2.0));
    assert_eq!((term.next(at(2.0)), term.next(at(2.5))), (sleep(0.5), Next::Do(Call::Look)));
    // Not stored: written again.
    term.hear(Heard::Found(Seen::Ours { revision: 5 }), at(2.5), at(2.6));
    assert_eq!((term.next(at(2.6)), term.next(at(3.0))), (sleep(0.4), WRITE_5));
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

/// What one who leads with revision 5 does about this when it reads nothing else every half second from 2 s on: when it first
/// does anything but look, and what.
fn in_the_end(seen: &Seen) -> (f64, Next) {
    let mut term = term();
    term.hear(Heard::Refused, at(2.0), at(2.0));
    let mut time = 2.0;
    loop {
        assert!(time < 60.0, "it looks for ever: {seen:?}");
        assert_eq!(term.next(at(time)), Next::Do(Call::Look), "at {time} s: {seen:?}");
        term.hear(Heard::Found(seen.clone()), at(time), at(time));
        if term.next(at(time)) != sleep(0.5) {
            return (time, term.next(at(time)));
        }
        time += 0.5;
    }
}

/// NEW-59, F49: a replica that has missed the latest writes is not believed, and not asked in a hurry.
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
    // That it was behind once is no reason to believe it at once the next time.
    term.hear(Heard::Found(theirs(4)), at(20.0), at(20.0));
    assert_eq!(term.next(at(20.5)), Next::Do(Call::Look));
}

/// NEW-47, NEW-59, SCH-10, T43: a server that has lost writes for good says so for long: what was ours is written on, when
/// whoever led with what was lost rests, and before a standby takes it; it may be refused, and the rest be found after all.
#[test]
fn what_was_lost_is_written_again() {
    let (time, next) = in_the_end(&Seen::Ours { revision: 3 });
    assert_eq!((time, next), (12.0, Next::Do(Call::Write { expected: 3 })));
    assert!(time < 2.0 + TIMES.lease.as_secs_f64());
    for latest in [3, 5, 6] {
        let mut term = term();
        for time in [2.0, 8.0, 12.0] {
            term.hear(Heard::Found(Seen::Ours { revision: 3 }), at(time), at(time));
        }
        assert_eq!((term.rests(at(12.0)), term.revision()), (true, 3));
        term.hear(Heard::Refused, at(12.0), at(12.0));
        term.hear(Heard::Found(Seen::Ours { revision: latest }), at(12.0), at(12.0));
        let next = [at(12.0), at(12.5)].map(|time| term.next(time));
        let write = Next::Do(Call::Write { expected: latest });
        assert_eq!(next, [if latest == 3 { sleep(0.5) } else { write.clone() }, write]);
        term.hear(Heard::Stored { revision: latest + 1 }, at(12.5), at(12.6));
        assert_eq!((term.rests(at(12.6)), until(&term)), (false, [22.5, 22.5]));
    }
}

/// NEW-59, SCH-11, F49, T16: a server that has lost writes for good, and with them that this process leads: it ends.
#[test]
fn who_was_lost_leads_no_more() {
    let taken = Lost::Taken { by: "b".to_owned() };
    let (free, removed) = (Seen::Free { revision: 3 }, Seen::Removed { revision: 3 });
    for (seen, lost) in [(theirs(4), taken), (free, Lost::Removed), (removed, Lost::Removed)] {
        assert_eq!(in_the_end(&seen), (17.0, Next::End(lost)), "{seen:?}");
    }
}

/// NEW-59, F49: how long a server has been behind is not known to one who stood still, or who heard something newer meanwhile;
/// silence in between changes nothing.
#[test]
fn being_behind_for_long_is_seen_by_looking() {
    let looks = Next::Do(Call::Look);
    let mut frozen = term();
    frozen.hear(Heard::Found(theirs(4)), at(2.0), at(2.0));
    frozen.hear(Heard::Found(theirs(4)), at(2.5), at(3600.0));
    assert_eq!(frozen.next(at(3600.5)), looks);

    let mut caught_up = term();
    for (time, seen) in [(2.0, theirs(4)), (9.0, Seen::Ours { revision: 5 }), (10.0, theirs(4)), (17.0, theirs(4))] {
        caught_up.hear(Heard::Found(seen), at(time), at(time));
    }
    assert_eq!(caught_up.next(at(17.5)), looks);

    let mut silent = term();
    for time in [2.0, 9.0, 16.0] {
        silent.hear(Heard::Found(theirs(4)), at(time), at(time));
        silent.hear(Heard::Nothing, at(time + 0.5), at(time + 1.0));
    }
    assert_eq!(silent.next(at(17.5)), looks);
    silent.hear(Heard::Found(theirs(4)), at(17.5), at(17.5));
    assert_eq!(silent.next(at(17.5)), Next::End(Lost::Taken { by: "b".to_owned() }));
}

/// NEW-47, T43, F34: who has another proof of being the only one leads on while nobody confirms anything, however long; he
/// renews when he is heard again, and ends like everybody else when another one is seen.
#[test]
fn who_is_alone_anyway_outlasts_an_outage() {
    let mut term = Term::new(TIMES, 5, at(0.0)).when(Unconfirmed::GoesOn);
    for second in [2.0, 20.0, 7200.0] {
        assert!(matches!(term.next(at(second)), Next::Do(_)) && !term.rests(at(second)), "at {second} s");
        term.hear(Heard::Nothing, at(second), at(second + 3.0));
    }
    assert_eq!(term.next(at(7210.0)), Next::Do(Call::Look));
    term.hear(Heard::Found(Seen::Ours { revision: 6 }), at(7210.0), at(7210.1));
    assert_eq!(term.next(at(7210.1)), Next::Do(Call::Write { expected: 6 }));
    term.hear(Heard::Refused, at(7210.1), at(7210.2));
    term.hear(Heard::Found(theirs(7)), at(7210.2), at(7210.3));
    assert_eq!(term.next(at(7210.3)), Next::End(Lost::Taken { by: "b".to_owned() }));
}
