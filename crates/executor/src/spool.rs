//! What is still owed to the facade: the announcement of an interruption, the runner's last log call, its last state.
//!
//! Held here: the announcement goes before the log, the log before the state, and a state that was not accepted brings
//! the log back with it. Nothing of the runner's end leaves while an announced interruption is not accepted (NEW-158).
//! Pure: it decides what is sent next and when to give up (NEW-112); `deliver` sends.

mod owed;
pub(crate) mod shelf;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::answer::Outcome;
use owed::Owed;

/// How long the spool goes on trying (requirements §1.4).
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// While nobody answers, counted from the last answer.
    pub away: Duration,
    /// In total, while the facade answers that it cannot now.
    pub unavailable: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { away: Duration::from_secs(15 * 60), unavailable: Duration::from_secs(2 * 60 * 60) }
    }
}

/// One of the things that can be owed, in the order in which they are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    /// The report that the executor was told to end.
    Interruption,
    /// UpdateLog with `no_more`.
    Log,
    /// UpdateTask with a result.
    State,
}

/// What the proxy does with a final call of the runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handling {
    /// Send it on; then say how it went with [`Spool::forwarded`].
    Forward,
    /// Answer it ourselves; the spool delivers it.
    Keep,
}

/// What the runner hears of a final call that was sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The facade's answer.
    Theirs,
    /// An answer of our own: accepted.
    Ours,
}

/// What is kept of the runner's end and not delivered.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// An interruption happened, announced or not.
    pub(crate) interrupted: bool,
    /// The last log call.
    pub(crate) log: Option<Bytes>,
    /// The last state.
    pub(crate) state: Option<Bytes>,
}

/// See the module.
pub(crate) struct Spool {
    patience: Patience,
    interruption: Owed<()>,
    log: Owed<Bytes>,
    state: Owed<Bytes>,
    trouble: Option<Trouble>,
    given_up: bool,
}

/// A series of failures.
struct Trouble {
    since: Instant,
    answered: Instant,
}

impl Spool {
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            patience,
            interruption: Owed::Nothing,
            log: Owed::Nothing,
            state: Owed::Nothing,
            trouble: None,
            given_up: false,
        }
    }

    /// The executor was told to end while the runner lives. Only the first time counts.
    pub(crate) fn interrupt(&mut self) {
        if matches!(self.interruption, Owed::Nothing) {
            self.interruption = Owed::Due(());
        }
    }

    /// An interruption happened, accepted or not.
    pub(crate) fn interrupted(&self) -> bool {
        !matches!(self.interruption, Owed::Nothing)
    }

    /// The facade knows of the interruption.
    pub(crate) fn announced(&self) -> bool {
        matches!(self.interruption, Owed::Accepted(()))
    }

    /// The runner makes a final call, for the first time or again.
    pub(crate) fn offer(&mut self, item: Item, body: Bytes) -> Handling {
        let handling = if self.owes() { Handling::Keep } else { Handling::Forward };
        let owed = match handling {
            Handling::Keep => Owed::Due(body),
            Handling::Forward => Owed::Forwarding(body),
        };
        match item {
            Item::Interruption => self.interrupt(),
            Item::Log => self.log = owed,
            Item::State => self.state = owed,
        }
        // A new call is a new chance: what was given up before may have been somebody else's nonsense.
        self.given_up = false;
        handling
    }

    /// How a call that [`Handling::Forward`] sent on went.
    pub(crate) fn forwarded(&mut self, item: Item, outcome: Outcome, now: Instant) -> Reply {
        self.settle(item, outcome, now);
        match outcome {
            Outcome::Accepted | Outcome::Refused => Reply::Theirs,
            Outcome::Unavailable | Outcome::Away | Outcome::Unauthenticated => Reply::Ours,
        }
    }

    /// What is to be sent next.
    pub(crate) fn due(&self) -> Option<Item> {
        if self.given_up {
            return None;
        }
        let debts = [
            (Item::Interruption, self.interruption.is_due()),
            (Item::Log, self.log.is_due()),
            (Item::State, self.state.is_due()),
        ];
        debts.into_iter().find_map(|(item, due)| due.then_some(item))
    }

    /// The body of a kept call.
    pub(crate) fn body(&self, item: Item) -> Option<Bytes> {
        match item {
            Item::Interruption => None,
            Item::Log => self.log.value().cloned(),
            Item::State => self.state.value().cloned(),
        }
    }

    /// How a delivery went.
    pub(crate) fn settle(&mut self, item: Item, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Accepted => self.accepted(item),
            Outcome::Refused if item != Item::Interruption => self.refused(item),
            Outcome::Unavailable => self.failed(item, Answered::Yes, now),
            Outcome::Away | Outcome::Unauthenticated | Outcome::Refused => self.failed(item, Answered::No, now),
        }
    }

    /// When the spool gives up unless something is accepted before.
    pub(crate) fn gives_up_at(&self) -> Option<Instant> {
        let trouble = self.trouble.as_ref().filter(|_| self.owes())?;
        Some((trouble.since + self.patience.unavailable).min(trouble.answered + self.patience.away))
    }

    /// The clock says `now`.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.gives_up_at().is_some_and(|end| now >= end) {
            self.given_up = true;
        }
    }

    /// Something waits for delivery.
    pub(crate) fn owes(&self) -> bool {
        self.due().is_some()
    }

    /// Something was given up or refused.
    pub(crate) fn lost(&self) -> bool {
        self.given_up || matches!(self.log, Owed::Refused) || matches!(self.state, Owed::Refused)
    }

    /// What would be lost if the executor ended now.
    pub(crate) fn left(&self) -> Left {
        let due = |owed: &Owed<Bytes>| owed.value().filter(|_| owed.is_due()).cloned();
        Left { interrupted: self.interrupted(), log: due(&self.log), state: due(&self.state) }
    }

    fn accepted(&mut self, item: Item) {
        self.trouble = None;
        match item {
            Item::Interruption => self.interruption.accept(),
            Item::Log => self.log.accept(),
            Item::State => {
                self.state.accept();
                if !matches!(self.log, Owed::Refused) {
                    self.log = Owed::Nothing;
                }
            }
        }
    }

    fn refused(&mut self, item: Item) {
        match item {
            Item::Interruption => {}
            Item::Log => self.log = Owed::Refused,
            Item::State => self.state = Owed::Refused,
        }
    }

    fn failed(&mut self, item: Item, answered: Answered, now: Instant) {
        let trouble = self.trouble.get_or_insert(Trouble { since: now, answered: now });
        if answered == Answered::Yes {
            trouble.answered = now;
        }
        if item == Item::Log {
            self.log.fall_due();
        }
        if item == Item::State {
            self.state.fall_due();
            self.log.fall_due();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    Yes,
    No,
}
