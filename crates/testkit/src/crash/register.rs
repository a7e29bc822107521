//! Numbers the boundaries of one run as they are met, and kills the controller at the one that is wanted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use super::{Boundary, Moment};

/// The boundaries of one run. Who sees one calls [`Register::meets`], and then [`Register::strikes`] at each of its
/// moments; when that is true the controller is dead, and the rest of the boundary must not happen.
pub struct Register {
    state: Mutex<State>,
    struck: watch::Sender<bool>,
}

struct State {
    counts: BTreeMap<String, u32>,
    met: Vec<Boundary>,
    target: Option<(Boundary, Moment)>,
    victim: Option<Pid>,
    phase: Phase,
}

impl State {
    fn wants(&self, boundary: &Boundary, moment: Moment) -> bool {
        let open = self.phase == Phase::Open;
        open && self.target.as_ref().is_some_and(|(wanted, when)| wanted == boundary && *when == moment)
    }
}

/// What is met counts only while the register is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    NotYet,
    Open,
    Over,
}

impl Register {
    /// For a run that is only recorded, or that is struck once.
    #[must_use]
    pub fn new(target: Option<(Boundary, Moment)>) -> Self {
        let state = State { counts: BTreeMap::new(), met: Vec::new(), target, victim: None, phase: Phase::NotYet };
        Self { state: Mutex::new(state), struck: watch::Sender::new(false) }
    }

    /// Who is killed. Whoever says so says also when it is gone, before it is waited for: a process id is then free for
    /// somebody else.
    pub fn victim(&self, pid: Option<u32>) {
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        self.state().victim = pid;
    }

    /// Something is about to be done.
    pub fn meets(&self, name: String) -> Boundary {
        let mut state = self.state();
        let nth = state.counts.entry(name.clone()).and_modify(|count| *count += 1).or_insert(1);
        let boundary = Boundary { nth: *nth, name };
        if state.phase == Phase::Open {
            state.met.push(boundary.clone());
        }
        boundary
    }

    /// Kills the controller if this is the boundary and the moment; true: it was.
    pub fn strikes(&self, boundary: &Boundary, moment: Moment) -> bool {
        let mut state = self.state();
        let hit = state.wants(boundary, moment);
        let Some(victim) = state.victim.filter(|_| hit) else { return false };
        state.target = None;
        let _not_waited_for_yet = kill_process(victim, Signal::KILL);
        drop(state);
        self.struck.send_replace(true);
        true
    }

    /// Whether this boundary is still to be struck at this moment.
    #[must_use]
    pub fn wants(&self, boundary: &Boundary, moment: Moment) -> bool {
        self.state().wants(boundary, moment)
    }

    /// From here on boundaries are counted, recorded and struck.
    pub fn open(&self) {
        let mut state = self.state();
        if state.phase == Phase::NotYet {
            state.phase = Phase::Open;
            state.counts.clear();
        }
    }

    /// Nothing is recorded or struck any more.
    pub fn close(&self) {
        self.state().phase = Phase::Over;
    }

    /// Whether the controller was killed.
    #[must_use]
    pub fn struck(&self) -> bool {
        *self.struck.borrow()
    }

    /// What was met while it was open, in order.
    #[must_use]
    pub fn met(&self) -> Vec<Boundary> {
        self.state().met.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// The second time, at its moment, and once.
    #[test]
    fn strikes_at_the_boundary_and_the_moment() {
        let mut victim = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let second = Boundary { name: "call".to_owned(), nth: 2 };
        let register = Register::new(Some((second.clone(), Moment::Between)));
        register.victim(Some(victim.id()));
        let early = register.meets("call".to_owned());
        assert!(!register.strikes(&Boundary { nth: 2, ..early }, Moment::Between));
        register.open();
        let first = register.meets("call".to_owned());
        assert!(!register.strikes(&first, Moment::Between));
        assert_eq!(register.meets("call".to_owned()), second);
        assert!(!register.strikes(&second, Moment::Before) && !register.struck());
        assert!(register.strikes(&second, Moment::Between) && register.struck());
        assert!(!register.strikes(&second, Moment::Between));
        assert_eq!(victim.wait().unwrap().signal(), Some(9));
        assert_eq!(register.met().len(), 2);
    }

    #[test]
    fn closed_it_neither_records_nor_strikes() {
        let register = Register::new(Some((Boundary { name: "call".to_owned(), nth: 1 }, Moment::Before)));
        register.open();
        register.close();
        let first = register.meets("call".to_owned());
        assert!(!register.strikes(&first, Moment::Before));
        assert!(register.met().is_empty());
    }
}
