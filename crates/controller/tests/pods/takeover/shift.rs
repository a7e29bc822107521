//! Two replicas under load, and what is looked at all the time.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use testkit::gitea::{JobId, Status};
use testkit::kubernetes::{Kubernetes, Resource};
use testkit::outcome::Rule;
use testkit::wires::{Cable, Switchboard};
use testkit::world::{SOON, asked_at};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::job;
use crate::site::Site;

/// Jobs that run; each is three processes, and the machine of a test is small.
pub(super) const CAPACITY: usize = 10;

/// Jobs that wait.
const QUEUED: usize = 5;

/// Rows of each job that runs, and the pause before each: they come until after the longest take-over.
const ROWS: usize = 60;
const PAUSE: u64 = 500;

/// All of them, two at a time on a small machine.
const ALL: Duration = Duration::from_secs(120);

/// Two answers prove something together when they came within this time.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The leader is number 0; number 1 stands by.
pub(super) struct Shift {
    pub(super) site: Site,
    /// Of each, to Gitea.
    pub(super) wires: [Cable; 2],
    /// Of the leader, to NATS.
    pub(super) nats: Cable,
    /// Behind which both listen for executors.
    facade: Switchboard,
    ops: [SocketAddr; 2],
    runs: Vec<JobId>,
    waits: Vec<JobId>,
    most: Most,
    both: Both,
}

impl Shift {
    pub(super) async fn begin() -> Self {
        let capacity = u32::try_from(CAPACITY).unwrap();
        // By itself the instance would be made of Gitea's address, which is another for each.
        let settings = [("LOOK_AHEAD", &*QUEUED.to_string()), ("INSTANCE_ID", "shift")];
        let mut site = Site::with_nats(capacity, &settings).await;
        assert!(site.sigterm(0).await.success());
        let (first, second) = (Cable::to(site.gitea.address()).await, Cable::to(site.gitea.address()).await);
        let wires = [first.unwrap(), second.unwrap()];
        let nats = Cable::to(site.nats()).await.unwrap();
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (ops, facades) = ([(); 2].map(|()| free()), [(); 2].map(|()| free()));
        let facade = Switchboard::at(Ipv4Addr::LOCALHOST.into(), facades.to_vec()).await.unwrap();
        site.set(&[("RUNNER_FACADE_URL", &format!("https://{}", facade.address()))]);
        let settings = |number: usize| {
            let gitea = ("GITEA_INSTANCE_URL", format!("http://{}", wires[number].address()));
            let facade = ("RUNNER_FACADE_LISTEN", facades[number].to_string());
            [gitea, facade, ("OPS_LISTEN", ops[number].to_string())]
        };
        let by_wire = [("NATS_URL", format!("nats://{}", nats.address()))];
        site.start_replica_with(0, &[settings(0).as_slice(), &by_wire].concat());
        site.eventually("it leads", SOON, |site| site.leader().is_some()).await;
        site.start_replica_with(1, &settings(1));
        let (most, both) = (Most::of(&site.kubernetes), Both::of(ops));
        let mut shift = Self { site, wires, nats, facade, ops, runs: Vec::new(), waits: Vec::new(), most, both };
        shift.fill().await;
        shift
    }

    /// Until all slots are taken by jobs that write rows, and the others are held.
    async fn fill(&mut self) {
        let rows: Vec<String> = (0..ROWS).map(|row| format!("sleep {PAUSE}\nsay row {row}")).collect();
        let rows = rows.join("\n");
        let run = (0..CAPACITY).map(|number| job(&format!("runs{number}"), &["say begins", &rows])).collect();
        self.runs = self.site.gitea.push(run);
        let begun = |gitea: &testkit::gitea::Gitea| {
            self.runs.iter().all(|job| gitea.state(*job).page().steps.first().is_some_and(|rows| !rows.is_empty()))
        };
        self.site.check(self.site.gitea.wait_for("all slots are taken", begun, ALL).await);
        let wait = (0..QUEUED).map(|number| job(&format!("waits{number}"), &["say waited"])).collect();
        self.waits = self.site.gitea.push(wait);
        // What Gitea handed out a moment ago may be in the memory of the leader only, and is lost with it (SCH-15).
        let held = |site: &Site| {
            let log = site.log();
            let dispatched = |task: i64| format!("\"assignment\":\"gitea-task-{task}\"");
            let is_stored =
                |line: &str, task| line.contains("\"event\":\"dispatched\"") && line.contains(&dispatched(task));
            let tasks: Vec<i64> = self.waits.iter().filter_map(|job| site.gitea.state(*job).task).collect();
            tasks.len() == QUEUED && tasks.iter().all(|task| log.lines().any(|line| is_stored(line, *task)))
        };
        self.site.eventually("the others are held", SOON, held).await;
    }

    /// Waits until one is ready, from now on.
    pub(super) async fn serves(&self, number: usize, limit: Duration) {
        let begun = Instant::now();
        while ready(self.ops[number]).await != Some(true) {
            assert!(begun.elapsed() < limit, "not ready within {limit:?}\n{}", self.site.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        say("until the other serves", begun.elapsed());
    }

    /// Every job has run once and to its end, with all its rows; so many processes led.
    pub(super) async fn ends(&self, leaders: usize) {
        let rows: Vec<String> = (0..ROWS).map(|row| format!("row {row}")).collect();
        for job in &self.runs {
            let state = self.site.ends_as(*job, Status::Success, ALL).await;
            assert_eq!(state.page().steps, [vec!["begins".to_owned()], rows.clone()], "{}", self.site.log());
        }
        for job in &self.waits {
            let state = self.site.ends_as(*job, Status::Success, ALL).await;
            assert_eq!(state.page().steps, [["waited"]]);
        }
        for job in self.runs.iter().chain(&self.waits) {
            let task = self.site.gitea.state(*job).task.unwrap();
            assert_eq!(self.site.desk.told(task, "task").len(), 1, "task {task} was handed out otherwise");
        }
        // One more led until the wires were laid.
        assert_eq!(self.site.gitea.counters().declares, leaders + 1, "{}", self.site.log());
        assert!(self.most.seen() <= CAPACITY, "{} Pods\n{}", self.most.seen(), self.site.log());
        assert_eq!(self.both.seen(), Vec::<Duration>::new(), "both were ready");
    }

    /// Nothing is left, and every task ended by the rules.
    pub(super) async fn finish(self) {
        self.finish_but_for(&[]).await;
    }

    /// The same without these rules.
    pub(super) async fn finish_but_for(self, left_out: &[Rule]) {
        let Self { site, wires, nats, facade, .. } = self;
        site.finish_but_for(left_out).await;
        drop((wires, nats, facade));
    }
}

#[expect(clippy::print_stderr, reason = "a figure that a person may ask for with --nocapture")]
fn say(what: &str, took: Duration) {
    eprintln!("figure: {what}: {:.2} s", took.as_secs_f64());
}

async fn ready(ops: SocketAddr) -> Option<bool> {
    let asked = timeout(Duration::from_millis(500), asked_at(&ops.to_string(), "/readyz")).await;
    Some(asked.ok()?.ok()?.0 == 200)
}

/// How many Pods there were at a time.
pub(super) struct Most {
    most: Arc<AtomicUsize>,
    looks: JoinHandle<()>,
}

impl Most {
    pub(super) fn of(kubernetes: &Arc<Kubernetes>) -> Self {
        let (kubernetes, most) = (Arc::clone(kubernetes), Arc::new(AtomicUsize::default()));
        let seen = Arc::clone(&most);
        let looks = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            loop {
                ticks.tick().await;
                seen.fetch_max(kubernetes.names(Resource::Pods).len(), Ordering::SeqCst);
            }
        });
        Self { most, looks }
    }

    pub(super) fn seen(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Drop for Most {
    fn drop(&mut self) {
        self.looks.abort();
    }
}

/// Whether both were ready at the same time.
struct Both {
    seen: Arc<Mutex<Vec<Duration>>>,
    looks: JoinHandle<()>,
}

impl Both {
    fn of(ops: [SocketAddr; 2]) -> Self {
        let (seen, begun) = (Arc::new(Mutex::default()), Instant::now());
        let found: Arc<Mutex<Vec<Duration>>> = Arc::clone(&seen);
        let looks = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let asked = Instant::now();
                let both = tokio::join!(ready(ops[0]), ready(ops[1]));
                if both == (Some(true), Some(true)) && asked.elapsed() < AT_ONCE {
                    found.lock().unwrap().push(begun.elapsed());
                }
            }
        });
        Self { seen, looks }
    }

    fn seen(&self) -> Vec<Duration> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        self.looks.abort();
    }
}
