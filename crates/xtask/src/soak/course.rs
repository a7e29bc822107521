//! The course of a soak: jobs are kept coming, blows fall, and in the end everything is left alone until it has settled.
//!
//! One loop looks around every [`LOOK`] and does what is due; nothing in it waits for the program, so that a blow may fall
//! at any moment, the start of a controller included.

mod blows;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use testkit::gitea::{Away, Gitea, JobId, Latency};
use testkit::kubernetes::Fate;
use testkit::outcome::{Interval, Record, Rule, Slots, judge};
use testkit::real::{Signal, signal};
use testkit::world::{Plan, Programs, World, job};
use tokio::task::JoinHandle;

use super::chance::{Blow, Job, Target, Trouble};
use super::gaps;
use crate::backend_kind::BackendKind;
use crate::say::Step;
use crate::sides::Sides;

const LOOK: Duration = Duration::from_millis(20);

/// An end in order may wait for a FetchTask and for transfers under way.
const ENDING: Duration = Duration::from_secs(120);

/// Gitea hears of every held task every 5 s: one of which it did not hear for so long fills no place.
const SILENT: Duration = Duration::from_secs(30);

/// From the return of NATS until a task that it did not take is offered to it again: a connection is tried for 3.6 s apart at
/// most, and then the pause between two publishes may have grown to 4 s.
const OFFERED_AGAIN: Duration = Duration::from_secs(8);

/// From the last blow until the last task has ended and nothing is left; a stray job is given 60 s after its end.
const SETTLING: Duration = Duration::from_secs(240);

/// A job that is pushed to a program without work begins within this time.
const AT_ONCE: Duration = Duration::from_secs(20);

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) kills: usize,
    pub(super) seed: u64,
    pub(super) jobs: usize,
    pub(super) sides: Sides,
    /// No blow falls later than this.
    pub(super) limit: Duration,
}

/// What happened to an executor or runner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Struck {
    pub(super) at: Instant,
    pub(super) signal: Signal,
    pub(super) task: i64,
}

/// What somebody else did to a Pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Befallen {
    pub(super) at: Instant,
    pub(super) fate: Fate,
    pub(super) task: i64,
}

/// What came out, beside the record.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) blows: BTreeMap<(Target, &'static str), usize>,
    pub(super) struck: Vec<Struck>,
    pub(super) befallen: Vec<Befallen>,
    pub(super) pushed: usize,
    pub(super) cancelled: usize,
    /// From the cancel of a job that had an executor until it was gone.
    pub(super) cancel_to_gone: Vec<Duration>,
}

/// What the controller is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Paused { until: Instant },
    Ending { since: Instant, then: Duration },
    Down { until: Instant },
}

/// What is to be done later.
#[derive(Debug, Clone, Copy)]
enum Due {
    Resume(u32),
    Cancel(JobId),
    GiteaIsBack,
    Clears(Trouble),
}

/// A soak under way.
pub(super) struct Course {
    wanted: Wanted,
    pub(super) world: World,
    pub(super) account: Account,
    capacity: usize,
    blows: Rng,
    jobs: Rng,
    state: State,
    open: Vec<JobId>,
    due: Vec<(Instant, Due)>,
    dying: BTreeMap<i64, Instant>,
    away: Vec<Interval>,
    /// The blow to NATS that is not over.
    nats: Option<JoinHandle<Result<(), testkit::real::Error>>>,
    queue_away: Vec<Interval>,
    seen: Vec<(Rule, String)>,
    slots: Option<Slots>,
}

impl Course {
    pub(super) async fn begin(programs: &Programs, wanted: Wanted) -> Self {
        // Some of the tasks that are held wait for a slot, and some wait in Gitea.
        let capacity = (wanted.jobs * 2 / 5).max(1);
        let look_ahead = wanted.jobs / 5;
        let plan =
            Plan::capacity(u32::try_from(capacity).unwrap_or(u32::MAX)).set("LOOK_AHEAD", look_ahead.to_string());
        let (engine, backend) = (wanted.sides.queue.engine(), wanted.sides.backend.backend());
        let plan = Plan { engine, backend, ..plan };
        Self {
            world: World::start(programs, plan).await,
            account: Account::default(),
            capacity,
            blows: Rng::with_seed(wanted.seed),
            jobs: Rng::with_seed(wanted.seed ^ u64::MAX),
            state: State::Up,
            open: Vec::new(),
            due: Vec::new(),
            dying: BTreeMap::new(),
            away: Vec::new(),
            nats: None,
            queue_away: Vec::new(),
            seen: Vec::new(),
            slots: None,
            wanted,
        }
    }

    /// Everything, from the first job to the record.
    pub(super) async fn run(mut self) -> (Record, Account, World) {
        self.strike(&mut Step::begin(format!("{} kills among {} jobs", self.wanted.kills, self.wanted.jobs))).await;
        self.settle(&mut Step::begin("everything comes to an end")).await;
        self.use_every_slot().await;
        let limit = Instant::now() + SETTLING;
        while !self.world.left().is_empty() && Instant::now() < limit {
            tokio::time::sleep(LOOK).await;
        }
        let mut record = self.world.record();
        record.away.clone_from(&self.away);
        record.queue_away.clone_from(&self.queue_away);
        record.seen.extend(std::mem::take(&mut self.seen));
        record.slots = self.slots;
        (record, self.account, self.world)
    }

    async fn strike(&mut self, step: &mut Step) {
        let begun = Instant::now();
        let mut kills = 0;
        let mut next = Blow::draw(&mut self.blows, self.wanted.sides);
        let mut at = begun + next.after;
        while kills < self.wanted.kills && begun.elapsed() < self.wanted.limit {
            self.look_around().await;
            self.refill();
            if Instant::now() >= at {
                let fell = self.fall(&next);
                kills += usize::from(fell && next.kills());
                next = Blow::draw(&mut self.blows, self.wanted.sides);
                at = Instant::now() + next.after;
            }
            let ended = self.account.pushed - self.open.len();
            step.tick(&format!("{kills} kills, {} jobs pushed, {ended} ended", self.account.pushed));
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Does what is due, and sees what has ended.
    async fn look_around(&mut self) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.due).into_iter().partition(|(at, _)| *at <= now);
        self.due = later;
        let due: Vec<(Instant, Due)> = due;
        due.into_iter().for_each(|(_, due)| self.carry_out(due));
        self.mind_the_controller(now);
        self.mind_nats().await;
        let gitea = &self.world.gitea;
        self.open.retain(|job| gitea.find(*job).is_some_and(|state| !state.status.is_end()));
        let executors = self.world.executors();
        let gone = |task: &i64| !executors.iter().any(|name| name.starts_with(&format!("gitea-task-{task}-")));
        let dead: Vec<i64> = self.dying.keys().copied().filter(gone).collect();
        for task in dead {
            let since = self.dying.remove(&task).map(|since| since.elapsed());
            self.account.cancel_to_gone.extend(since);
        }
    }

    fn carry_out(&mut self, due: Due) {
        match due {
            Due::Resume(pid) => signal(pid, Signal::Continue),
            Due::Cancel(job) => self.cancel(job),
            Due::GiteaIsBack => {
                self.world.gitea.set_away(Away::No);
                if let Some(interval) = self.away.last_mut() {
                    interval.1 = Instant::now();
                }
            }
            Due::Clears(trouble) => self.cluster_clears(trouble),
        }
    }

    fn cluster_clears(&self, trouble: Trouble) {
        let cluster = self.world.cluster();
        match trouble {
            Trouble::Away(_) => cluster.kubernetes.set_away(Away::No),
            Trouble::Silent => cluster.kubernetes.silence_watches(false),
            Trouble::Agent => cluster.agent_is_away(false),
        }
    }

    fn cancel(&mut self, job: JobId) {
        let Some(state) = self.world.gitea.find(job).filter(|state| !state.status.is_end()) else { return };
        self.account.cancelled += 1;
        self.world.gitea.cancel(job);
        let Some(task) = state.task else { return };
        if self.world.executors().iter().any(|name| name.starts_with(&format!("gitea-task-{task}-"))) {
            self.dying.insert(task, Instant::now());
        }
    }

    /// Waits for nobody: what it looks at is over.
    async fn mind_nats(&mut self) {
        let Some(over) = self.nats.take_if(|blow| blow.is_finished()) else { return };
        let back =
            over.await.map_err(|error| error.to_string()).and_then(|back| back.map_err(|error| error.to_string()));
        self.seen.extend(back.err().map(|error| (Rule::EndedByItself, format!("NATS did not come back: {error}"))));
    }

    fn mind_the_controller(&mut self, now: Instant) {
        match self.state {
            State::Down { until } if until <= now => {
                self.world.restart();
                self.state = State::Up;
            }
            State::Down { .. } => {}
            State::Paused { until } if until <= now => {
                self.world.go_on();
                self.state = State::Up;
            }
            State::Ending { since, then } => {
                if self.world.exited().is_some() {
                    self.state = State::Down { until: now + then };
                } else if since.elapsed() > ENDING {
                    self.seen.push((Rule::EndedByItself, format!("not ended {ENDING:?} after SIGTERM")));
                    self.world.kill9();
                    self.state = State::Down { until: now };
                }
            }
            State::Up | State::Paused { .. } => {
                if let Some(status) = self.world.exited() {
                    self.seen.push((Rule::EndedByItself, format!("the controller ended by itself: {status}")));
                    self.state = State::Down { until: now };
                }
            }
        }
    }

    /// Keeps so many jobs waiting or running.
    fn refill(&mut self) {
        let now = self.world.gitea.now();
        let alive = |job: &&JobId| {
            let updated = self.world.gitea.find(**job).and_then(|state| state.updated);
            updated.is_none_or(|at| now.duration_since(at).unsigned_abs() < SILENT)
        };
        let missing = self.wanted.jobs.saturating_sub(self.open.iter().filter(alive).count());
        for _ in 0..missing {
            let drawn = Job::draw(&mut self.jobs, self.account.pushed);
            self.account.pushed += 1;
            let job = self.world.push_one(drawn.spec.runs_on([self.wanted.sides.backend.word()]));
            self.open.push(job);
            self.due.extend(drawn.cancelled_after.map(|after| (Instant::now() + after, Due::Cancel(job))));
        }
    }

    /// The weather clears, everybody goes on, and every job comes to its end.
    async fn settle(&mut self, step: &mut Step) {
        let gitea = &self.world.gitea;
        gitea.clear_faults();
        gitea.set_latency(Latency::default());
        if self.wanted.sides.backend == BackendKind::Pod {
            let kubernetes = &self.world.cluster().kubernetes;
            kubernetes.clear_faults();
            kubernetes.set_latency(Latency::default());
        }
        let limit = Instant::now() + SETTLING;
        while Instant::now() < limit {
            self.look_around().await;
            let calm = self.due.is_empty() && self.state == State::Up && self.nats.is_none();
            if calm && (self.open.is_empty() || self.only_lost_are_open()) {
                break;
            }
            step.tick(&format!("{} jobs are open, {:?}", self.open.len(), self.state));
            tokio::time::sleep(LOOK * 5).await;
        }
    }

    /// Gitea hands nothing out twice: a task that was lost stays open until Gitea's own time-out, and so does one that a
    /// known gap took.
    fn only_lost_are_open(&self) -> bool {
        let open: Vec<i64> = self.open.iter().filter_map(|job| self.world.gitea.find(*job)?.task).collect();
        let mut record = Record::of(&self.world.gitea, &self.world.desk);
        record.controllers = self.world.controllers().to_vec();
        record.queue_away.clone_from(&self.queue_away);
        record.tasks.retain(|task| open.contains(&task.task));
        let judgement = judge(&record);
        let pods = self.wanted.sides.backend == BackendKind::Pod;
        let unended = judgement.violations.iter().filter(|violation| pods && violation.rule == Rule::NoEnd);
        let excused = unended.filter(|violation| gaps::known(violation, &self.account, &record).is_some()).count();
        open.len() == self.open.len() && judgement.lost.len() + excused == open.len()
    }

    /// As many jobs as there are slots, each of which waits for all others.
    async fn use_every_slot(&mut self) {
        let jobs: Vec<JobId> = (0..self.capacity)
            .map(|number| job(&format!("slot{number}"), &["gate slots"]).runs_on([self.wanted.sides.backend.word()]))
            .map(|job| self.world.push_one(job))
            .collect();
        let desk = &self.world.desk;
        let used = || desk.notes().iter().filter(|note| note.verb == "gate" && note.rest == "slots").count();
        let limit = Instant::now() + AT_ONCE;
        while used() < self.capacity && Instant::now() < limit {
            tokio::time::sleep(LOOK * 5).await;
        }
        self.slots = Some(Slots { used: used(), capacity: self.capacity });
        desk.open_gate("slots");
        let ended = |gitea: &Gitea| jobs.iter().all(|job| gitea.state(*job).status.is_end());
        // One that does not end is found in the record.
        let _found_later = self.world.gitea.wait_for("the last jobs have ended", ended, SETTLING).await;
    }
}
