//! What is still owed to the facade: the announcement of an interruption, the runner's last log call, its last state.
//!
//! Held here: the announcement goes before the log, the log before the state, and a state that was not accepted brings
//! the log back with it. Nothing of the runner's end leaves while an announced interruption is not accepted (NEW-158).
//! Pure: it decides what is sent next and when to give up (NEW-112); `deliver` sends.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::answer::Outcome;

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

/// See the module.
pub(crate) struct Spool {
    patience: Patience,
    interruption: Owed<()>,
    log: Owed<Bytes>,
    state: Owed<Bytes>,
    trouble: Option<Trouble>,
    given_up: bool,
}

/// One debt. The last log stays known after it was accepted, because the state may ask for it again.
enum Owed<T> {
    Nothing,
    Forwarding(T),
    Due(T),
    Accepted(T),
    Refused,
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

impl<T> Owed<T> {
    fn is_due(&self) -> bool {
        matches!(self, Self::Due(_))
    }

    fn value(&self) -> Option<&T> {
        match self {
            Self::Nothing | Self::Refused => None,
            Self::Forwarding(value) | Self::Due(value) | Self::Accepted(value) => Some(value),
        }
    }

    fn accept(&mut self) {
        self.replace(Self::Accepted);
    }

    fn fall_due(&mut self) {
        self.replace(Self::Due);
    }

    fn replace(&mut self, to: impl FnOnce(T) -> Self) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Self::Nothing,
            Self::Refused => Self::Refused,
            Self::Forwarding(value) | Self::Due(value) | Self::Accepted(value) => to(value),
        };
    }
}

#[cfg(test)]
mod tests {
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
}
