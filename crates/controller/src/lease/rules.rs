//! What a contender does with what it read and heard, and when: client-go's algorithm, without anybody's wall clock.
//!
//! Invariant, but for [`Unconfirmed::GoesOn`]: a holder decides nothing from [`Times::renew_deadline`] after the sending of
//! its last confirmed write on. A standby begins [`Times::lease`] after it *saw* that write, or a later one, and nothing newer
//! since. Seeing comes after sending, so the holder has stopped first, as long as both clocks run at about the same speed.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::boot_time::BootTime;
use super::{Lost, Standing};

/// Longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What becomes of a leadership when nothing is confirmed for the renew deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconfirmed {
    /// Its holder rests, since somebody else may lead soon: it decides nothing. When it has tried for another while of the
    /// same length, without a pause, it may speak for its tasks; who was frozen begins that while anew.
    Rests,
    /// It lasts until somebody else is seen: for one who is the only one by another proof, so that an outage, however
    /// long, ends nothing (NEW-47). Who was frozen learns of another one with its next renewal only.
    GoesOn,
}

/// How long what takes; requirements §1.4.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// A standby that saw no change for so long takes over. Longer than the renew deadline, or two may lead at once.
    pub lease: Duration,
    /// A holder whose writes are not confirmed for so long decides nothing any more.
    pub renew_deadline: Duration,
    /// Between two renewals of a holder, and two looks of a standby.
    pub retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let [lease, renew_deadline, retry] = [15, 10, 2].map(Duration::from_secs);
        Self { lease, renew_deadline, retry }
    }
}

impl Times {
    /// How long one call may take: a holder has three tries.
    pub(super) fn call(&self) -> Duration {
        self.renew_deadline / 3
    }

    /// Between two calls that brought nothing.
    pub(super) fn pause(&self) -> Duration {
        self.retry / 4
    }

    /// For the end of the call under way and the release.
    pub(super) fn release(&self) -> Duration {
        2 * self.call()
    }
}

/// What stands where the lease is written.
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
    /// What it saw last, since when it has not changed, and when it was looked at last.
    last: Option<(Seen, BootTime, BootTime)>,
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
    /// that is gone, is taken at once; everything else when it stayed the same for the length of a lease, because its holder
    /// may still lead. Between two looks that are too far apart its holder may have been as blind as we were.
    pub(super) fn see(&mut self, seen: Seen, our_place: Option<&str>, now: BootTime, times: &Times) -> Move {
        let take = Move::Take { expected: seen.revision() };
        let never_there = seen == Seen::Nothing && self.last.is_none();
        let left_behind = matches!(&seen, Seen::Theirs { place: Some(place), .. } if Some(place.as_str()) == our_place);
        if never_there || left_behind || matches!(seen, Seen::Free { .. } | Seen::Ours { .. }) {
            return take;
        }
        match &mut self.last {
            Some((last, since, looked)) if *last == seen && now.after(*looked) < times.renew_deadline => {
                *looked = now;
                let left = times.lease.saturating_sub(now.after(*since));
                if left.is_zero() { take } else { Move::Wait(left.min(times.retry)) }
            }
            _ => {
                self.last = Some((seen, now, now));
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
    /// Since when it has tried in vain without a pause, and when the last of these tries ended.
    in_vain: Option<(BootTime, BootTime)>,
    /// Since when all that was read was older than what was confirmed, and when that was read last.
    older: Option<(BootTime, BootTime)>,
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
        Self {
            times,
            unconfirmed: Unconfirmed::Rests,
            revision,
            renewed: sent,
            in_vain: None,
            older: None,
            next,
            over: None,
        }
    }

    /// With what becomes of it when nothing is confirmed for the renew deadline.
    pub(super) fn when(self, unconfirmed: Unconfirmed) -> Self {
        Self { unconfirmed, ..self }
    }

    /// What others may know of it.
    pub(super) fn standing(&self) -> Standing {
        let deadline = self.times.renew_deadline;
        let tried = self.in_vain.filter(|(since, last)| last.after(*since) >= deadline);
        Standing::Until { end: self.end(), speaks: tried.map_or(self.end(), |(_, last)| last + deadline) }
    }

    /// Nothing confirms it now.
    pub(super) fn rests(&self, now: BootTime) -> bool {
        self.over.is_none() && now >= self.end()
    }

    /// From when on it decides nothing unless a write is confirmed before.
    pub(super) fn end(&self) -> BootTime {
        match self.unconfirmed {
            Unconfirmed::Rests => self.renewed + self.times.renew_deadline,
            Unconfirmed::GoesOn => self.renewed + FOR_EVER,
        }
    }

    /// The revision that ours is believed to have.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// What to do.
    pub(super) fn next(&self, now: BootTime) -> Next {
        if let Some(lost) = &self.over {
            return Next::End(lost.clone());
        }
        let (call, due) = self.next;
        if now >= due { Next::Do(call) } else { Next::Sleep(due.after(now)) }
    }

    /// Takes note of what the call that was begun at `sent` brought. After an end it changes nothing.
    pub(super) fn hear(&mut self, heard: Heard, sent: BootTime, now: BootTime) {
        if self.over.is_some() {
            return;
        }
        self.in_vain = if matches!(heard, Heard::Stored { .. }) { None } else { Some(self.tried(sent, now)) };
        self.older = self.older_since(&heard, now);
        let soon = now.max(sent + self.times.pause());
        self.next = match heard {
            Heard::Stored { revision } => {
                (self.revision, self.renewed) = (revision, sent);
                (Call::Write { expected: revision }, sent + self.times.retry)
            }
            Heard::Refused => (Call::Look, now),
            // Stored or not: what is there says it.
            Heard::Nothing => (Call::Look, soon),
            Heard::Found(seen) if self.is_no_news(&seen, now) => (Call::Look, soon),
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

    fn is_older(&self, seen: &Seen) -> bool {
        *seen != Seen::Nothing && seen.revision() < self.revision
    }

    /// What is older than what was confirmed to us is from a server that will learn of the rest, or from one that has lost it
    /// for good. The latter says so for long. By then whoever led with what was lost rests: its last confirmed write was sent
    /// before the loss. What was ours is then written on, before a standby takes it; else this process has lost.
    fn is_no_news(&self, seen: &Seen, now: BootTime) -> bool {
        let bears = if matches!(seen, Seen::Ours { .. }) { self.times.renew_deadline } else { self.times.lease };
        self.is_older(seen) && self.older.is_none_or(|(since, _)| now.after(since) < bears)
    }

    /// Answers that say nothing change nothing here. Who stood still between two looks counts anew.
    fn older_since(&self, heard: &Heard, now: BootTime) -> Option<(BootTime, BootTime)> {
        match (heard, self.older) {
            (Heard::Found(seen), before) if self.is_older(seen) => {
                let goes_on = before.filter(|(_, last)| now.after(*last) < self.times.renew_deadline);
                Some((goes_on.map_or(now, |(since, _)| since), now))
            }
            (Heard::Refused | Heard::Nothing, before) => before,
            (Heard::Stored { .. } | Heard::Found(_), _) => None,
        }
    }

    /// A try that took too long, or came too long after the one before, was that of a process which stood still meanwhile: it
    /// knows nothing of that time, and counts from now on.
    fn tried(&self, sent: BootTime, now: BootTime) -> (BootTime, BootTime) {
        let stood_still = self.times.renew_deadline;
        match self.in_vain {
            _ if now.after(sent) >= stood_still => (now, now),
            Some((since, last)) if sent.after(last) < stood_still => (since, now),
            _ => (sent, now),
        }
    }
}
