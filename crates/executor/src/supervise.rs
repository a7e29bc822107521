//! When the runner is ended, and how: the decisions about its process, without touching it.
//!
//! Held here: SIGTERM never goes out before the interruption was announced or its 5 s have passed (NEW-158); a runner
//! that has its job is never ended for polling (NEW-160).

use std::time::{Duration, Instant};

use crate::runner::orphans::strays::StrayGraces;

/// Time limits of requirements §1.4.
#[derive(Debug, Clone, Copy)]
pub struct Graces {
    /// From an announcement to SIGTERM when the facade does not answer.
    pub announcement: Duration,
    /// From SIGTERM to SIGKILL of a runner that may have a job: its post steps and its final report.
    pub shutdown: Duration,
    /// From the first `unauthenticated` to SIGTERM, and from there to SIGKILL.
    pub idle: Duration,
    /// What an interrupted job's processes get that its runner left behind.
    pub strays: StrayGraces,
}

impl Default for Graces {
    fn default() -> Self {
        Self {
            announcement: Duration::from_secs(5),
            shutdown: Duration::from_secs(6 * 60),
            idle: Duration::from_secs(5),
            strays: StrayGraces::default(),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A signal asks the executor to end, or the facade does.
    EndAsked,
    /// The facade knows of the interruption.
    Announced,
    /// Declare or FetchTask was answered `unauthenticated`.
    SentHome,
    /// FetchTask was answered with success after all.
    Welcome,
    /// The runner made an UpdateLog or UpdateTask: it has its job.
    JobSeen,
    /// Nothing but the clock.
    Tick,
}

/// What is to be done, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Tell the facade of the interruption.
    Announce,
    /// SIGTERM to the runner's group.
    Terminate,
    /// SIGKILL to the runner's group.
    Kill,
}

/// See the module.
pub(crate) struct Supervision {
    graces: Graces,
    job_seen: bool,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// `unauthenticated` was seen; the runner may still end by itself.
    SentHome {
        until: Instant,
    },
    Announcing {
        until: Instant,
    },
    Terminated {
        why: Why,
        kill_at: Instant,
    },
    Killed {
        why: Why,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Asked,
    NothingToDo,
}

impl Supervision {
    pub(crate) fn new(graces: Graces) -> Self {
        Self { graces, job_seen: false, phase: Phase::Running }
    }

    /// Takes an event and says what is to be done.
    pub(crate) fn handle(&mut self, event: Event, now: Instant) -> Option<Action> {
        match event {
            Event::JobSeen => self.job_seen(),
            Event::Welcome => self.welcome(),
            Event::SentHome => self.sent_home(now),
            Event::EndAsked => self.end_asked(now),
            Event::Announced => self.announced(now),
            Event::Tick => self.tick(now),
        }
    }

    /// When [`Event::Tick`] is due.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running | Phase::Killed { .. } => None,
            Phase::SentHome { until } | Phase::Announcing { until } => Some(until),
            Phase::Terminated { kill_at, .. } => Some(kill_at),
        }
    }

    /// Waiting for [`Event::Announced`].
    pub(crate) fn announcing(&self) -> bool {
        matches!(self.phase, Phase::Announcing { .. })
    }

    /// The job was interrupted and its runner has its last grace: what the job left behind must not use it up.
    pub(crate) fn winding_up(&self) -> bool {
        matches!(self.phase, Phase::Terminated { why: Why::Asked, .. })
    }

    /// The runner was told that there is nothing to do, or was ended for it; valid once it has ended.
    pub(crate) fn had_nothing_to_do(&self) -> bool {
        match self.phase {
            Phase::SentHome { .. } => !self.job_seen,
            Phase::Terminated { why, .. } | Phase::Killed { why } => why == Why::NothingToDo,
            Phase::Running | Phase::Announcing { .. } => false,
        }
    }

    fn job_seen(&mut self) -> Option<Action> {
        self.job_seen = true;
        self.welcome()
    }

    fn welcome(&mut self) -> Option<Action> {
        if matches!(self.phase, Phase::SentHome { .. }) {
            self.phase = Phase::Running;
        }
        None
    }

    fn sent_home(&mut self, now: Instant) -> Option<Action> {
        if self.phase == Phase::Running && !self.job_seen {
            self.phase = Phase::SentHome { until: now + self.graces.idle };
        }
        None
    }

    fn end_asked(&mut self, now: Instant) -> Option<Action> {
        match self.phase {
            Phase::Running | Phase::SentHome { .. } => {
                self.phase = Phase::Announcing { until: now + self.graces.announcement };
                Some(Action::Announce)
            }
            Phase::Announcing { .. } | Phase::Terminated { .. } | Phase::Killed { .. } => None,
        }
    }

    fn announced(&mut self, now: Instant) -> Option<Action> {
        matches!(self.phase, Phase::Announcing { .. }).then(|| self.terminate(Why::Asked, self.graces.shutdown, now))
    }

    fn tick(&mut self, now: Instant) -> Option<Action> {
        match self.phase {
            Phase::SentHome { until } if now >= until => Some(self.terminate(Why::NothingToDo, self.graces.idle, now)),
            Phase::Announcing { until } if now >= until => Some(self.terminate(Why::Asked, self.graces.shutdown, now)),
            Phase::Terminated { why, kill_at } if now >= kill_at => {
                self.phase = Phase::Killed { why };
                Some(Action::Kill)
            }
            _ => None,
        }
    }

    fn terminate(&mut self, why: Why, patience: Duration, now: Instant) -> Action {
        self.phase = Phase::Terminated { why, kill_at: now + patience };
        Action::Terminate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Announce, Kill, Terminate};
    use Event::{Announced, EndAsked, JobSeen, SentHome, Tick, Welcome};

    /// Plays events at seconds and compares the actions with the seconds at which they came.
    #[track_caller]
    fn check(events: &[(u64, Event)], actions: &[(u64, Action)], nothing_to_do: bool) {
        let start = Instant::now();
        let mut supervision = Supervision::new(Graces::default());
        let seen: Vec<_> = events
            .iter()
            .filter_map(|(second, event)| {
                Some((*second, supervision.handle(*event, start + Duration::from_secs(*second))?))
            })
            .collect();
        assert_eq!(seen, actions);
        assert_eq!(supervision.had_nothing_to_do(), nothing_to_do);
    }

    /// NEW-158, NEW-113: announced, then SIGTERM, then SIGKILL after 6 min.
    #[test]
    fn interruption() {
        let told = [(0, JobSeen), (1, EndAsked), (2, Tick), (3, Announced), (362, Tick), (363, Tick), (900, Tick)];
        check(&told, &[(1, Announce), (3, Terminate), (363, Kill)], false);
        let silent = [(0, EndAsked), (4, Tick), (5, Tick), (6, Announced), (7, EndAsked)];
        check(&silent, &[(0, Announce), (5, Terminate)], false);
    }

    /// NEW-160, F158: 5 s, SIGTERM, 5 s, SIGKILL.
    #[test]
    fn polls_on() {
        let events = [(0, SentHome), (3, SentHome), (4, Tick), (5, Tick), (9, Tick), (10, Tick)];
        check(&events, &[(5, Terminate), (10, Kill)], true);
        check(&[(0, SentHome)], &[], true);
    }

    /// NEW-160: never once a job call has passed, before or after the refusal; nor when the next fetch was answered.
    #[test]
    fn has_its_job() {
        check(&[(0, JobSeen), (1, SentHome), (60, Tick)], &[], false);
        check(&[(0, SentHome), (1, JobSeen), (60, Tick)], &[], false);
        check(&[(0, SentHome), (4, Welcome), (60, Tick)], &[], false);
    }

    /// A signal while the idle grace runs is announced all the same.
    #[test]
    fn signal_while_sent_home() {
        check(&[(0, SentHome), (1, EndAsked), (2, Announced)], &[(1, Announce), (2, Terminate)], false);
    }
}
