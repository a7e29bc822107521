//! Processes of an interrupted job that nobody waits for any more, while its runner still lives.
//!
//! A runner that was told to end kills the shell of its step and then waits for the end of the step's output, which
//! every process below that shell may hold open: for a `sleep 600` in a step that is longer than the whole grace, and the
//! final report would be lost with the runner. So what no longer descends from the runner is ended in time. Held here: the
//! runner and everything below it, its post steps for example, are never touched. Pure but for the look around.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::{Orphans, Seen, processes};

/// How long a stray may go on.
#[derive(Debug, Clone, Copy)]
pub struct StrayGraces {
    /// From its first sight to SIGTERM.
    pub terminate: Duration,
    /// From there to SIGKILL.
    pub kill: Duration,
}

impl Default for StrayGraces {
    fn default() -> Self {
        Self { terminate: Duration::from_secs(10), kill: Duration::from_secs(5) }
    }
}

/// The strays that were seen, each with its age.
pub(crate) struct Strays {
    orphans: Orphans,
    runner: Pid,
    graces: StrayGraces,
    known: HashMap<(Pid, u64), Stray>,
}

#[derive(Debug, Clone, Copy)]
struct Stray {
    first_seen: Instant,
    terminated: Option<Instant>,
    killed: bool,
}

impl Strays {
    /// Between two looks.
    pub(crate) const LOOK: Duration = Duration::from_millis(500);

    /// `runner` is the child that is no stray.
    pub(crate) fn new(orphans: Orphans, runner: Pid, graces: StrayGraces) -> Self {
        Self { orphans, runner, graces, known: HashMap::new() }
    }

    /// Looks around once and signals whose time has come.
    pub(crate) fn look(&mut self) {
        if self.orphans == Orphans::NotOurs {
            return;
        }
        for (pid, signal) in self.due(&processes(), getpid(), Instant::now()) {
            tracing::info!(pid = pid.as_raw_nonzero(), ?signal, "a process of the interrupted job is left over");
            // It may have ended since the look; a child of ours keeps its number until it is reaped here.
            let _ = kill_process(pid, signal);
        }
    }

    /// What is to be signalled now. A process that is not there any more is forgotten.
    fn due(&mut self, all: &[Seen], own: Pid, now: Instant) -> Vec<(Pid, Signal)> {
        let there: Vec<_> = strays(all, own, self.runner).into_iter().map(|seen| (seen.pid, seen.started)).collect();
        self.known.retain(|key, _| there.contains(key));
        let mut due = Vec::new();
        for key in there {
            let fresh = Stray { first_seen: now, terminated: None, killed: false };
            let stray = self.known.entry(key).or_insert(fresh);
            due.extend(stray.signal(self.graces, now).map(|signal| (key.0, signal)));
        }
        due
    }
}

impl Stray {
    fn signal(&mut self, graces: StrayGraces, now: Instant) -> Option<Signal> {
        match self.terminated {
            None if now >= self.first_seen + graces.terminate => {
                self.terminated = Some(now);
                Some(Signal::TERM)
            }
            Some(at) if !self.killed && now >= at + graces.kill => {
                self.killed = true;
                Some(Signal::KILL)
            }
            _ => None,
        }
    }
}

/// Everything below `own`, except `runner` and what is below it.
fn strays(all: &[Seen], own: Pid, runner: Pid) -> Vec<Seen> {
    let mut found: Vec<Seen> = Vec::new();
    let mut parents = vec![own];
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|seen| seen.parent == parent && seen.pid != runner);
        for child in children {
            found.push(*child);
            parents.push(child.pid);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const OWN: i32 = 10;
    const RUNNER: i32 = 11;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn seen(table: &[(i32, i32)]) -> Vec<Seen> {
        let seen = |(number, parent): &(i32, i32)| Seen { pid: pid(*number), parent: pid(*parent), started: 1 };
        table.iter().map(seen).collect()
    }

    /// Looks at tables at seconds and compares the signals with the seconds at which they came.
    #[track_caller]
    fn check(looks: &[(u64, &[(i32, i32)])], signals: &[(u64, i32, Signal)]) {
        let start = Instant::now();
        let mut strays = Strays::new(Orphans::Adopted, pid(RUNNER), StrayGraces::default());
        let mut sent = Vec::new();
        for (second, table) in looks {
            let due = strays.due(&seen(table), pid(OWN), start + Duration::from_secs(*second));
            sent.extend(due.into_iter().map(|(pid, signal)| (*second, pid.as_raw_nonzero().get(), signal)));
        }
        assert_eq!(sent, signals);
    }

    /// NEW-113: 10 s, SIGTERM, 5 s, SIGKILL, each once; with everything below it.
    #[test]
    fn in_time() {
        let table: &[_] = &[(RUNNER, OWN), (20, OWN), (21, 20)];
        let looks = [0, 9, 10, 14, 15, 60].map(|second| (second, table));
        let (term, kill) = (Signal::TERM, Signal::KILL);
        check(&looks, &[(10, 20, term), (10, 21, term), (15, 20, kill), (15, 21, kill)]);
    }

    /// NEW-113: a post step is not touched, nor is anybody who is not below us.
    #[test]
    fn nobody_else() {
        let table: &[_] = &[(OWN, 1), (RUNNER, OWN), (20, RUNNER), (21, 20), (30, 1), (31, 30)];
        check(&[(0, table), (10, table), (100, table)], &[]);
    }

    /// The time of a process begins when it is orphaned, and a number that comes again is somebody else.
    #[test]
    fn every_one_has_its_time() {
        let before: &[_] = &[(RUNNER, OWN), (20, RUNNER), (21, 20)];
        let orphaned: &[_] = &[(RUNNER, OWN), (21, OWN)];
        check(&[(0, before), (12, orphaned), (21, orphaned), (22, orphaned)], &[(22, 21, Signal::TERM)]);
        let gone: &[_] = &[(RUNNER, OWN)];
        check(&[(0, orphaned), (5, gone), (9, orphaned), (18, orphaned)], &[]);
    }
}
