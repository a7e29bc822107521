//! What a contender does with what it read and heard, and when: client-go's algorithm, without anybody's wall clock.
//!
//! Invariant: a holder stops [`Times::renew_deadline`] after the sending of its last confirmed write. A standby begins
//! [`Times::lease`] after it *saw* that write, or a later one, and nothing newer since. Seeing comes after sending, so the
//! holder has stopped first, as long as both clocks run at about the same speed.

use std::time::Duration;

use super::super::Lost;
use super::super::boot_time::BootTime;
use super::Times;

/// What stands under the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing, and nothing is known of what was.
    Nothing,
    /// Somebody deleted it by hand: its holder may not know yet.
    Removed { revision: u64 },
    /// Its last holder gave it up.
    Free { revision: u64 },
    /// What this session wrote, perhaps without an answer.
    Ours { revision: u64 },
    /// What another session wrote, perhaps of the same process.
    Theirs { revision: u64, holder: String },
}

impl Seen {
    /// What must be the latest revision when we write: 0 where there is none.
    pub(super) fn revision(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Removed { revision }
            | Self::Free { revision }
            | Self::Ours { revision }
            | Self::Theirs { revision, .. } => *revision,
        }
    }
}

/// One who waits.
#[derive(Debug, Default)]
pub(super) struct Standby {
    /// What it saw last, and since when it has not changed.
    last: Option<(Seen, BootTime)>,
}

/// What one who waits does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Write itself in, on this revision.
    Take { expected: u64 },
    /// Look again after this time.
    Wait(Duration),
}

impl Standby {
    /// What to do about what was just seen. What is free, was never there, or is our own, is taken at once; everything
    /// else when it stayed the same for the length of a lease, because its holder may still lead.
    pub(super) fn see(&mut self, seen: Seen, now: BootTime, times: &Times) -> Move {
        let take = Move::Take { expected: seen.revision() };
        let never_there = seen == Seen::Nothing && self.last.is_none();
        if never_there || matches!(seen, Seen::Free { .. } | Seen::Ours { .. }) {
            return take;
        }
        match &self.last {
            Some((last, since)) if *last == seen => {
                let left = times.lease.saturating_sub(now.after(*since));
                if left.is_zero() { take } else { Move::Wait(left.min(times.retry)) }
            }
            _ => {
                self.last = Some((seen, now));
                Move::Wait(times.retry.min(times.lease))
            }
        }
    }
}

/// One who leads.
#[derive(Debug)]
pub(super) struct Term {
    times: Times,
    /// What we wrote last, as far as was confirmed or read.
    revision: u64,
    /// When the last confirmed write was sent.
    renewed: BootTime,
    /// The next call, and when it is due.
    next: (Call, BootTime),
    over: Option<Lost>,
}

/// A call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// Write ourselves in, on this revision.
    Write { expected: u64 },
    /// Read what is there.
    Look,
}

/// What a call brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// Our write is stored.
    Stored { revision: u64 },
    /// Another revision than the expected one is there; nothing was written.
    Refused,
    /// What is there.
    Found(Seen),
    /// No answer, or one that says nothing: a write may or may not be stored, now or later.
    Nothing,
}

/// What one who leads does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// This call, now.
    Do(Call),
    /// Nothing for so long.
    Sleep(Duration),
    /// It no longer leads.
    End(Lost),
}

impl Term {
    /// Begins with a confirmed write that was sent at `sent`.
    pub(super) fn new(times: Times, revision: u64, sent: BootTime) -> Self {
        let next = (Call::Write { expected: revision }, sent + times.retry);
        Self { times, revision, renewed: sent, next, over: None }
    }

    /// When it ends unless a write is confirmed before.
    pub(super) fn end(&self) -> BootTime {
        self.renewed + self.times.renew_deadline
    }

    /// The revision that ours is believed to have.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// What to do. Comes first on every waking: the end is judged before anything else is done.
    pub(super) fn next(&mut self, now: BootTime) -> Next {
        if let Some(lost) = self.judge(now) {
            return Next::End(lost);
        }
        let (call, due) = self.next;
        if now >= due { Next::Do(call) } else { Next::Sleep(due.after(now).min(self.end().after(now))) }
    }

    /// Takes note of what the call that was begun at `sent` brought. An answer that comes after the end changes nothing.
    pub(super) fn hear(&mut self, heard: Heard, sent: BootTime, now: BootTime) {
        if self.judge(now).is_some() {
            return;
        }
        let soon = now.max(sent + self.times.pause());
        self.next = match heard {
            Heard::Stored { revision } => {
                (self.revision, self.renewed) = (revision, sent);
                (Call::Write { expected: revision }, sent + self.times.retry)
            }
            Heard::Refused => (Call::Look, now),
            Heard::Nothing => (self.next.0, soon),
            // Older than what was confirmed to us: from a server that has missed something.
            Heard::Found(seen) if seen != Seen::Nothing && seen.revision() < self.revision => (Call::Look, soon),
            Heard::Found(Seen::Ours { revision }) => {
                // A write of ours whose answer was lost. When it was stored nobody can say, so it prolongs nothing.
                let due = if revision == self.revision { soon } else { now };
                self.revision = revision;
                (Call::Write { expected: revision }, due)
            }
            Heard::Found(Seen::Theirs { holder, .. }) => return self.over = Some(Lost::Taken { by: holder }),
            Heard::Found(Seen::Nothing | Seen::Removed { .. } | Seen::Free { .. }) => {
                return self.over = Some(Lost::Removed);
            }
        };
    }

    fn judge(&mut self, now: BootTime) -> Option<Lost> {
        if self.over.is_none() && now >= self.end() {
            self.over = Some(Lost::Expired);
        }
        self.over.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        lease: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn at(seconds: f64) -> BootTime {
        BootTime::at(Duration::from_secs_f64(1000.0 + seconds))
    }

    fn theirs(revision: u64) -> Seen {
        Seen::Theirs { revision, holder: "b".to_owned() }
    }

    fn wait(seconds: f64) -> Move {
        Move::Wait(Duration::from_secs_f64(seconds))
    }

    /// What a standby does at these times about what it sees.
    #[track_caller]
    fn check(looks: &[(f64, Seen, Move)]) {
        let mut standby = Standby::default();
        for (time, seen, expect) in looks {
            assert_eq!(standby.see(seen.clone(), at(*time), &TIMES), *expect, "at {time} s: {seen:?}");
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
        let another = Seen::Theirs { revision: 7, holder: "c".to_owned() };
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
        assert_eq!(silent.next(at(5.3)), WRITE_5);
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
        assert_eq!((term.next(at(2.0)), term.next(at(2.5))), (sleep(0.5), WRITE_5));
        term.hear(Heard::Nothing, at(9.8), at(9.8));
        assert_eq!(term.next(at(9.8)), Next::Sleep(term.end().after(at(9.8))));
    }

    /// NEW-59, F49: a write that was stored without an answer is found by its session, and prolongs nothing by itself.
    #[test]
    fn a_lost_answer_is_found_again() {
        let mut term = term();
        term.hear(Heard::Nothing, at(2.0), at(5.3));
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
}
