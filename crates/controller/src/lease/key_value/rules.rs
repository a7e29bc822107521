//! What a contender does with what it read and heard, and when: client-go's algorithm, without anybody's wall clock.
//!
//! Invariant, but for [`Unconfirmed::GoesOn`]: a holder stops [`Times::renew_deadline`] after the sending of its last confirmed write. A standby begins
//! [`Times::lease`] after it *saw* that write, or a later one, and nothing newer since. Seeing comes after sending, so the
//! holder has stopped first, as long as both clocks run at about the same speed.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::super::Lost;
use super::super::boot_time::BootTime;
use super::{Times, Unconfirmed};

/// Longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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
    Theirs { revision: u64, holder: String, place: Option<String> },
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
    /// What to do about what was just seen. What is free, was never there, is our own, or was left at our place by a process
    /// that is gone, is taken at once; everything else when it stayed the same for the length of a lease, because its holder may still lead.
    pub(super) fn see(&mut self, seen: Seen, our_place: Option<&str>, now: BootTime, times: &Times) -> Move {
        let take = Move::Take { expected: seen.revision() };
        let never_there = seen == Seen::Nothing && self.last.is_none();
        let left_behind = matches!(&seen, Seen::Theirs { place: Some(place), .. } if Some(place.as_str()) == our_place);
        if never_there || left_behind || matches!(seen, Seen::Free { .. } | Seen::Ours { .. }) {
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
    unconfirmed: Unconfirmed,
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
        Self { times, unconfirmed: Unconfirmed::Ends, revision, renewed: sent, next, over: None }
    }

    /// With what becomes of it when nothing is confirmed for the renew deadline.
    pub(super) fn when(self, unconfirmed: Unconfirmed) -> Self {
        Self { unconfirmed, ..self }
    }

    /// When it ends unless a write is confirmed before.
    pub(super) fn end(&self) -> BootTime {
        match self.unconfirmed {
            Unconfirmed::Ends => self.renewed + self.times.renew_deadline,
            Unconfirmed::GoesOn => self.renewed + FOR_EVER,
        }
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
            // Stored or not: what is there says it.
            Heard::Nothing => (Call::Look, soon),
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
